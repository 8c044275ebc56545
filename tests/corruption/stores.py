"""Token stores for tests: drawn from a seed, or by hypothesis with documents of odd sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from mlm_lab.data.token_store import TokenStore
from mlm_lab.types import ExampleKeys, Vocabulary

SENTINELS = tuple(range(190, 200))
VOCABULARY = Vocabulary(
    size=200,
    padded_size=256,
    pad_id=0,
    unk_id=1,
    cls_id=2,
    sep_id=3,
    mask_id=4,
    special_ids=(0, 1, 2, 3, 4, 50, 51, *SENTINELS),  # 50, 51: reserved ids in the midst of the ordinary ones
    sentinel_ids=SENTINELS,
    fingerprint="test",
)


def make_store(documents: Sequence[Sequence[int]], seed: int = 0, split: str = "train", unknown: float = 0.02) -> TokenStore:
    """A store of documents, each given as the lengths of its sentences in tokens; words of one to four tokens."""
    generator = np.random.default_rng(seed)
    sentences = np.asarray([length for document in documents for length in document], dtype=np.int64)
    sentence_starts = np.append(0, np.cumsum(sentences))
    document_starts = np.append(0, np.cumsum([len(document) for document in documents], dtype=np.int64))
    total = int(sentence_starts[-1])
    tokens = generator.choice(VOCABULARY.ordinary_ids, size=total)
    tokens[generator.random(total) < unknown] = VOCABULARY.unk_id
    word_starts = generator.random(total) < 0.6
    word_starts[sentence_starts[:-1][sentences > 0]] = True
    return TokenStore.from_arrays(tokens, word_starts, sentence_starts, document_starts, VOCABULARY, split)


def many_documents(count: int = 200, seed: int = 0) -> TokenStore:
    """Documents of a few sentences of about twenty tokens."""
    generator = np.random.default_rng(seed)
    return make_store([(1 + generator.geometric(0.05, size=generator.integers(1, 12))).tolist() for _ in range(count)], seed)


def odd_documents() -> TokenStore:
    """500 documents: empty ones, single tokens, one of 100,000 tokens, one sentence of 5,000, all else small."""
    generator = np.random.default_rng(5)
    documents: list[list[int]] = [[], [1], [20] * 5000, [5000], [1, 1, 1], []]
    documents += [generator.integers(1, 30, size=generator.integers(0, 8)).tolist() for _ in range(500 - len(documents))]
    return make_store(documents)


def stores() -> st.SearchStrategy[TokenStore]:
    """Small stores with at least two tokens in a document; empty documents and sentences longer than a row among them."""
    sentence = st.one_of(st.integers(1, 6), st.integers(1, 60))
    documents = st.lists(st.lists(sentence, max_size=6), min_size=1, max_size=12).filter(lambda all_: any(sum(one) > 1 for one in all_))
    return st.builds(make_store, documents, st.integers(0, 10))


def keys_of(index: Sequence[int] | np.ndarray, epoch: int | Sequence[int] = 0) -> ExampleKeys:
    numbers = np.asarray(index, dtype=np.int64)
    return ExampleKeys(numbers, np.broadcast_to(np.asarray(epoch, dtype=np.int64), numbers.shape).copy(), numbers)
