"""How much of an evaluation set stands in the training text: examples that share a run of words with the token store.

    text -> words, lower case, without ASCII punctuation -> hash of each word -> hash of each run of 13 words (of 8 in a shorter text)
    store, from its memory-mapped tokens, a few million at a time -> the same hashes -> which of the wanted runs occur

The rule is that of GPT-3 (Brown et al. 2020, appendix C), whose runs have 8 to 13 words. A text of fewer than 8 words cannot be told from
chance and counts as too short. A word's hash is of its characters, not of its tokens, so that vocabularies agree on it but for words
that a tokenizer does not split alike. A run does not cross documents. 64-bit hashes: a false hit in 10^7 words x 10^5 runs has odds of
one to ten million.

Shapes: T tokens, W words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from mlm_lab.atomic import write_text
from mlm_lab.data.token_store import TokenStore
from mlm_lab.tokenizers.loading import LoadedTokenizer

CODE_VERSION = 1
"""Raised when the same store and examples come to give other counts."""
LONG, SHORT = 13, 8
"""Words of a run: in a text of at least so many words."""
TOKENS_AT_A_TIME = 1 << 20
CHARACTER, WORD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
"""Odd multipliers of the two polynomial hashes."""
SIEVE_BITS = 24
SPACES = "ĠĊĉ▁"
"""How byte-level and Unigram vocabularies spell white space."""


@dataclass(frozen=True)
class Overlap:
    """One part of a task against one store."""

    examples: int
    shared: int
    """Examples of which a text shares a run with the training text."""
    too_short: int
    """Examples of which no text has 8 words."""

    @property
    def share(self) -> float | None:
        """Of the examples that are long enough; None where none is."""
        return self.shared / (self.examples - self.too_short) if self.examples > self.too_short else None


def texts_of(example: Sequence) -> list[str]:
    """What an example has to read, text by text: its fields that are text, and the sentence that comes in words."""
    texts = [value for value in example if isinstance(value, str)]
    return [*texts, " ".join(example.words)] if hasattr(example, "words") else texts


def measure_overlaps(
    store: TokenStore, tokenizer: LoadedTokenizer, parts: Mapping[str, Sequence], cache_dir: Path, fingerprints: Mapping[str, str]
) -> dict[str, Overlap]:
    """The overlap of each part with the store's training text. Parts that are new are looked for in one pass, and kept under cache_dir.

    Args:
        parts: name -> examples.
        tokenizer: the store's.
        fingerprints: name -> digest of its examples.
    """
    places = {name: _place(cache_dir, store, fingerprints[name]) for name in parts}
    known = {name: Overlap(**json.loads(place.read_text(encoding="utf-8"))) for name, place in places.items() if place.exists()}
    if missing := {name: parts[name] for name in parts if name not in known}:
        for name, overlap in find_overlaps(store, tokenizer, missing).items():
            known[name] = overlap
            _write(places[name], overlap)
    return {name: known[name] for name in parts}


def find_overlaps(store: TokenStore, tokenizer: LoadedTokenizer, parts: Mapping[str, Sequence]) -> dict[str, Overlap]:
    """The overlap of each part, in one pass over the store."""
    sought = WordHashes(tokenizer, unknown=2)  # another value than in the store: nobody knows whether two unknown words are the same
    wanted = {name: _Wanted.of(examples, tokenizer, sought) for name, examples in parts.items()}
    runs = {n: np.unique(np.concatenate([part.runs[n] for part in wanted.values()])) for n in (LONG, SHORT)}
    found = {n: np.zeros(len(runs[n]), dtype=bool) for n in runs}
    sieves = {n: _sieve(runs[n]) for n in runs}
    for hashes, documents in _words_of(store.train, WordHashes(tokenizer, unknown=1)):
        for n in (n for n in runs if len(runs[n])):
            candidates, _ = run_hashes(hashes, n, documents)
            candidates = candidates[sieves[n][candidates >> np.uint64(64 - SIEVE_BITS)]]
            places = np.minimum(np.searchsorted(runs[n], candidates), len(runs[n]) - 1)
            found[n][places[runs[n][places] == candidates]] = True
    hits = {n: runs[n][found[n]] for n in runs}
    return {name: part.count(hits) for name, part in wanted.items()}


class WordHashes:
    """Words as 64-bit hashes of their characters, from token ids."""

    def __init__(self, tokenizer: LoadedTokenizer, unknown: int):
        """unknown: stands for the UNK token."""
        vocabulary = tokenizer.vocabulary
        hashes, lengths = np.zeros(vocabulary.padded_size, dtype=np.uint64), np.zeros(vocabulary.padded_size, dtype=np.int64)
        for token_id in vocabulary.ordinary_ids.tolist():
            characters = np.array([ord(c) for c in _plain(tokenizer.token(token_id))], dtype=np.uint64)
            lengths[token_id] = len(characters)
            hashes[token_id] = (_mix(characters) * _powers(CHARACTER, len(characters))).sum(dtype=np.uint64)
        hashes[vocabulary.unk_id], lengths[vocabulary.unk_id] = unknown, 1
        self._hashes, self._lengths = hashes, lengths

    def __call__(self, tokens: np.ndarray, word_starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(T,), (T,) bool, the first of them true -> (W,) uint64 hashes of the words with a character that counts, (W,) their places."""
        starts = np.flatnonzero(word_starts)
        if len(starts) == 0:
            return np.zeros(0, dtype=np.uint64), starts
        lengths = self._lengths[tokens]
        before = np.cumsum(lengths) - lengths
        offsets = before - np.repeat(before[starts], np.diff(starts, append=len(tokens)))  # characters of the word before each token
        hashes = np.add.reduceat(self._hashes[tokens] * _powers(CHARACTER, int(offsets.max()) + 1)[offsets], starts)
        kept = np.add.reduceat(lengths, starts) > 0
        return _mix(hashes[kept]), starts[kept]


def run_hashes(words: np.ndarray, n: int, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(W,) uint64, (W,) the text of each word -> hashes of each run of n words of one text, and the text of each."""
    count = max(len(words) - n + 1, 0)
    total = words[:count].copy()
    for k in range(1, n):  # Horner's rule
        total *= WORD
        total += words[k : k + count]
    whole = owners[:count] == owners[len(words) - count :]
    return _mix(total[whole]), owners[:count][whole]


@dataclass(frozen=True)
class _Wanted:
    """The runs of one part's examples."""

    runs: dict[int, np.ndarray]
    """n -> hashes of the runs of n words, of all texts end to end."""
    owners: dict[int, np.ndarray]
    """n -> the example of each of them."""
    examples: int

    @classmethod
    def of(cls, examples: Sequence, tokenizer: LoadedTokenizer, words: WordHashes) -> _Wanted:
        texts = [texts_of(example) for example in examples]
        ids, starts, lengths = tokenizer.encode_batch([text for several in texts for text in several])
        example_of = np.repeat(np.arange(len(texts)), [len(several) for several in texts])  # of each text
        hashes, places = words(ids, starts)
        text_of = np.searchsorted(np.cumsum(lengths), places, side="right")  # of each word
        sizes = np.bincount(text_of, minlength=len(lengths))[text_of]  # of each word's text
        runs, run_owners = {}, {}
        for n, mine in ((LONG, sizes >= LONG), (SHORT, (sizes >= SHORT) & (sizes < LONG))):
            runs[n], of_texts = run_hashes(hashes[mine], n, text_of[mine])
            run_owners[n] = example_of[of_texts]
        return cls(runs, run_owners, len(texts))

    def count(self, hits: Mapping[int, np.ndarray]) -> Overlap:
        shared = np.unique(np.concatenate([self.owners[n][np.isin(self.runs[n], hits[n])] for n in self.runs]))
        long_enough = np.unique(np.concatenate(list(self.owners.values())))
        return Overlap(self.examples, len(shared), self.examples - len(long_enough))


def _words_of(store: TokenStore, words: WordHashes) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(W,) hashes and (W,) documents of the words, a few at a time; runs that cross from one piece to the next are in the next."""
    start, total = 0, len(store.tokens)
    while start < total:
        stop = min(start + TOKENS_AT_A_TIME, total)
        if stop < total:  # the last word may go on: it belongs to the next piece
            last = int(np.flatnonzero(store.word_starts[start:stop])[-1])
            stop = start + last if last else stop
        hashes, places = words(np.asarray(store.tokens[start:stop]), np.asarray(store.word_starts[start:stop]))
        yield hashes, np.searchsorted(store.document_offsets, start + places, side="right")
        again = start + int(places[1 - LONG]) if stop < total and len(places) >= LONG else stop
        start = again if again > start else stop


def _sieve(hashes: np.ndarray) -> np.ndarray:
    """A table that says at once that most hashes are not among these."""
    table = np.zeros(1 << SIEVE_BITS, dtype=bool)
    table[hashes >> np.uint64(64 - SIEVE_BITS)] = True
    return table


def _plain(piece: str) -> str:
    """The characters of a piece that count."""
    return "".join(c for c in piece.lower() if c not in SPACES and (c.isalnum() or not c.isascii()))


def _powers(base: np.uint64, count: int) -> np.ndarray:
    """(count,) uint64: base^0, base^1, ... modulo 2^64."""
    powers = np.full(max(count, 1), base, dtype=np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)[:count]


def _mix(values: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: every bit of the result depends on every bit of the value."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _place(cache_dir: Path, store: TokenStore, fingerprint: str) -> Path:
    key = blake2b(json.dumps([store.fingerprint, fingerprint, CODE_VERSION]).encode(), digest_size=8).hexdigest()
    return cache_dir / "overlap" / f"{key}.json"


def _write(place: Path, overlap: Overlap) -> None:
    write_text(place, json.dumps(asdict(overlap)))
