"""Labelled examples as token ids, and batches of them in which lengths are alike.

    text_a, text_b  ->  [CLS] a [SEP]   or   [CLS] a [SEP] b [SEP]  with segments 0 and 1; the longer text is cut first, at its end
    words, tags     ->  [CLS] words [SEP]; a word's tag stands on its first sub-token, the others carry no loss;
                        words behind the cut have no token, so that they count as missed
    in a document   ->  [CLS] words before, words, words after [SEP]: as many sub-tokens of its document as fit, half of them on each side
                        or more where the other side has fewer; only the sentence's own words have tags and predictions

Shapes: B examples, L tokens, W words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlm_lab.evaluation.encoded_once import kept
from mlm_lab.evaluation.task import SequenceExample, TaggedExample, TaskData
from mlm_lab.types import IGNORE_INDEX, Batch

if TYPE_CHECKING:
    from mlm_lab.tokenizers.loading import LoadedTokenizer

POOL_BATCHES = 50
"""Shuffled examples are sorted by length within so many batches: padding all but goes, and the order stays random."""
NO_TOKEN = -1


@dataclass(frozen=True)
class EncodedPart:
    """The examples of one part (train, dev, ...) as token ids."""

    ids: list[np.ndarray]
    """(L,) int64 each, special tokens included."""
    first_segment: np.ndarray
    """(N,) int64: tokens of segment 0; the rest is segment 1."""
    labels: np.ndarray | list[np.ndarray]
    """(N,) class or value; tagging: (W,) tag ids each."""
    word_tokens: list[np.ndarray] | None
    """tagging: (W,) int64 each: place of the word's first sub-token, NO_TOKEN where it was cut off."""
    truncated: int
    """Examples that were cut."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> np.ndarray:
        """(N,) tokens of each example."""
        return np.array([len(ids) for ids in self.ids])

    @property
    def lost_words(self) -> int:
        """Words without a token."""
        return sum(int((tokens == NO_TOKEN).sum()) for tokens in self.word_tokens or [])

    def batch(self, indices: np.ndarray, pad_id: int) -> Batch:
        """The examples of these indices, padded to the longest: labels (B,), or (B, L) with IGNORE_INDEX where a token has none."""
        rows = [self.ids[i] for i in indices]
        lengths = np.array([len(row) for row in rows])
        places = np.arange(lengths.max())[None, :]  # (1, L)
        real = places < lengths[:, None]  # (B, L)
        input_ids = np.full(real.shape, pad_id, dtype=np.int64)
        input_ids[real] = np.concatenate(rows)
        if self.word_tokens is None:
            labels = self.labels[indices]
        else:
            labels = np.full(real.shape, IGNORE_INDEX, dtype=np.int64)
            for row, i in enumerate(indices):
                kept = self.word_tokens[i] != NO_TOKEN
                labels[row, self.word_tokens[i][kept]] = self.labels[i][kept]
        return {
            "input_ids": input_ids,
            "attention_mask": real.astype(np.int64),
            "position_ids": np.where(real, places, 0),
            "token_type_ids": (real & (places >= self.first_segment[indices][:, None])).astype(np.int64),
            "labels": labels,
        }


def encode(data: TaskData, examples: Sequence, tokenizer: LoadedTokenizer, max_length: int) -> EncodedPart:
    """Encode one part of a task, or take it from the cache (encoded_once). max_length: tokens of an example, special tokens included."""
    if data.kind == "tagging":
        labels = list(data.label_names)
        return kept(lambda: encode_words(examples, labels, tokenizer, max_length), examples, tokenizer.fingerprint, max_length, labels)
    return kept(lambda: encode_texts(examples, tokenizer, max_length), examples, tokenizer.fingerprint, max_length)


def encode_texts(examples: Sequence[SequenceExample], tokenizer: LoadedTokenizer, max_length: int) -> EncodedPart:
    """[CLS] a [SEP], or [CLS] a [SEP] b [SEP]."""
    first = _token_ids(tokenizer, [example.text_a for example in examples])
    has_pair = [example.text_b is not None for example in examples]
    second = _token_ids(tokenizer, [example.text_b or "" for example in examples]) if any(has_pair) else [None] * len(examples)
    cls, sep = [tokenizer.vocabulary.cls_id], [tokenizer.vocabulary.sep_id]
    ids, first_segment, truncated = [], [], 0
    for a, b, paired in zip(first, second, has_pair, strict=True):
        b = b if paired else a[:0]
        room = max_length - (3 if paired else 2)
        keep_a, keep_b = longest_first(len(a), len(b), room)
        truncated += keep_a < len(a) or keep_b < len(b)
        head = np.concatenate([cls, a[:keep_a], sep])
        ids.append(np.concatenate([head, b[:keep_b], sep]) if paired else head)
        first_segment.append(len(head))
    return EncodedPart(ids, np.array(first_segment), np.array([example.label for example in examples]), None, truncated)


def longest_first(a: int, b: int, room: int) -> tuple[int, int]:
    """Lengths of two texts after tokens were taken one by one from the end of the longer (of the second, when equal) until both fit."""
    if a + b <= room:
        return a, b
    if a <= room - room // 2:
        return a, room - a
    return (room - b, b) if b <= room // 2 else (room - room // 2, room // 2)


def encode_words(examples: Sequence[TaggedExample], label_names: Sequence[str], tokenizer: LoadedTokenizer, max_length: int) -> EncodedPart:
    """[CLS] words [SEP], in their document where they have one. The sentence is cut where its sub-tokens no longer fit."""
    index = {name: number for number, name in enumerate(label_names)}
    cls, sep = [tokenizer.vocabulary.cls_id], [tokenizer.vocabulary.sep_id]
    ids, labels, word_tokens, truncated, room = [], [], [], 0, max_length - 2
    document = None
    for example in examples:
        sentences = example.document or (example.words,)
        if sentences is not document:  # a document's sentences come one after the other: it is encoded once
            document, encoded = sentences, [tokenizer.encode_words(words) for words in sentences]
            tokens = np.array([i for sentence in encoded for word in sentence for i in word], dtype=np.int64)
            starts = np.cumsum([0, *(sum(map(len, sentence)) for sentence in encoded)])  # of its sentences, and its end
        lengths = np.array([len(word) for word in encoded[example.place]])
        own, size = int(starts[example.place]), int(lengths.sum())
        first = _window_start(own, size, len(tokens), room)
        row = tokens[first : first + room]
        places = own - first + np.cumsum(lengths) - lengths
        ids.append(np.concatenate([cls, row, sep]))
        word_tokens.append(np.where(places < len(row), 1 + places, NO_TOKEN))
        labels.append(np.array([index[tag] for tag in example.tags]))
        truncated += size > room
    return EncodedPart(ids, np.array([len(row) for row in ids]), labels, word_tokens, truncated)


def _window_start(start: int, size: int, total: int, room: int) -> int:
    """Where `room` tokens of a document of `total` begin that have the sentence [start, start + size) in their middle, or all of them."""
    centred = start - max(room - size, 0) // 2
    return max(min(centred, total - room), 0)


def _token_ids(tokenizer: LoadedTokenizer, texts: list[str]) -> list[np.ndarray]:
    encodings = tokenizer.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]


def training_batches(lengths: np.ndarray, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """Indices of the training batches, epoch after epoch without end. A function of its arguments alone.

    Each epoch shows every example once: shuffled, sorted by length within pools, cut into batches, and the batches shuffled.
    """
    epoch = 0
    while True:
        generator = np.random.default_rng([seed, epoch])
        order = generator.permutation(len(lengths))
        pools = np.array_split(order, range(pool := POOL_BATCHES * batch_size, len(order), pool))
        batches = []
        for pool in pools:
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            batches += np.array_split(pool, range(batch_size, len(pool), batch_size))
        yield from (batches[i] for i in generator.permutation(len(batches)))
        epoch += 1


def sorted_batches(lengths: np.ndarray, tokens: int = 16384) -> Iterator[np.ndarray]:
    """Indices of batches for prediction: every example once, alike lengths together, at most so many padded tokens a batch."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and lengths[order[stop]] * (stop + 1 - start) <= tokens:
            stop += 1
        yield order[start:stop]
        start = stop
