"""Collocations, and single words outside of them, each as likely as any other, until the row's count of tokens (PMI-masking, Levine et
al. 2021). `data.collocations` says which n-grams they are; from there on they are masked as words are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.corruption.units.word import longest, select

if TYPE_CHECKING:
    from mlm_lab.data.token_store import TokenStore

__all__ = ["longest", "select", "starts"]


def starts(store: TokenStore) -> np.ndarray:
    """(T,) bool: the first token of each collocation and of each word outside of them."""
    return store.collocation_starts
