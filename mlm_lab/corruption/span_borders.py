"""The borders of the spans that are masked: what SpanBERT's second loss predicts from (Joshi et al. 2020, section 3.2)."""

from __future__ import annotations

import numpy as np


def span_borders(selected: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """(B, L) bool selected, (B, S) places of some of them -> (B, S, 2) int64: the nearest places to the left and to the right that are not
    selected, so that both show the original token. Spans that touch are one span. [CLS] and [SEP] are never selected, so there are such
    places, and none lies in another document. Where a place is not selected (unused slots) the answer has no meaning, but is in the row.
    """
    length = selected.shape[1]
    columns = np.arange(length)
    left = np.maximum.accumulate(np.where(selected, 0, columns), axis=1)
    right = np.minimum.accumulate(np.where(selected, length - 1, columns)[:, ::-1], axis=1)[:, ::-1]
    return np.stack([np.take_along_axis(side, positions, axis=1) for side in (left, right)], axis=-1)
