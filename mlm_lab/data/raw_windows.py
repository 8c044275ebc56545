"""Raw windows: an epoch as contiguous ranges of the token store of one length, without special tokens.

    store    ... d0 d0 d0 | d1 d1 | d2 d2 d2 d2 ...
    windows  [------------------)[------------------)[-----)      the last one takes what is left

Windows run over the borders of documents, which leave no mark, as in T5's preprocessing; or each ends with its document.

Shapes: R windows of the plan; B windows of L tokens in a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlm_lab.corruption.draws import Draws
from mlm_lab.data.packing import SHORTEST_ROW
from mlm_lab.data.token_store import TokenStore


@dataclass(frozen=True)
class RawWindows:
    """The plan of an epoch of raw windows; every epoch has the same one."""

    draws: Draws
    max_length: int
    """Positions of what the windows become."""
    window_length: int
    """Tokens of a full window, L."""
    starts: np.ndarray
    """(R,) int64 offsets into the store's tokens."""
    stops: np.ndarray
    """(R,) int64"""
    dropped_tokens: int
    """Tokens in windows that were too short to be useful."""
    redrawn: bool = False

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def corpus_tokens(self) -> int:
        """Tokens of an epoch."""
        return int((self.stops - self.starts).sum())


def cut_windows(store: TokenStore, max_length: int, window_length: int, cross_documents: bool, draws: Draws) -> RawWindows:
    """Lay out the windows of an epoch. A window of fewer than `packing.SHORTEST_ROW` tokens is left out."""
    borders = store.document_offsets[[0, -1]] if cross_documents else store.document_offsets
    windows = -(-np.diff(borders) // window_length)  # of each document, or of all as one
    number = np.arange(windows.sum()) - np.repeat(np.cumsum(windows) - windows, windows)  # of the window in its document
    starts = np.repeat(borders[:-1], windows) + window_length * number
    stops = np.minimum(starts + window_length, np.repeat(borders[1:], windows))
    useful = stops - starts >= SHORTEST_ROW
    dropped = int((stops - starts)[~useful].sum())
    return RawWindows(draws, max_length, window_length, starts[useful], stops[useful], dropped)


def gather_windows(store: TokenStore, plan: RawWindows, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Read the windows plan[index] from the store: (B, L) int64 tokens, of no meaning behind a window's end, and (B,) int64 lengths."""
    places = plan.starts[index][:, None] + np.arange(plan.window_length)
    tokens = store.tokens[np.minimum(places, len(store.tokens) - 1)].astype(np.int64)
    return tokens, plan.stops[index] - plan.starts[index]
