"""500 documents of every odd kind, by a trained tokenizer, through every objective of conf/objective/: whole, legal, and only corrupted
where a label says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from mlm_lab.corruption.draws import Draws
from mlm_lab.data.documents import RawDocument, split_document
from mlm_lab.data.packing import PackedRows
from mlm_lab.data.pairs import SentencePairs
from mlm_lab.data.store_build import encode_chunk
from mlm_lab.data.token_store import TokenStore
from mlm_lab.objectives.span_corruption import SpanCorruption
from mlm_lab.tokenizers.loading import LoadedTokenizer
from mlm_lab.types import IGNORE_INDEX, Batch, Plan
from tests.corruption.stores import keys_of
from tests.models.conftest import encoder_config
from tests.objectives.test_contract import OPTIONS, load
from tests.objectives.test_span_corruption import check_rows
from tests.tokenizers.trained import reference_texts, train

DOCUMENTS, ROWS, MOST_ROWS, LENGTHS = 500, 512, 3000, (16, 64)
SPELLED = ["[MASK]", "[SEP]", "<extra_id_0>", "[CLS]", "[PAD]", "[UNK]", "<extra_id_19>", "</s>", "<mask>", "[unused0]", "##", "##ing"]
RIGHT_TO_LEFT = ["שלום", "עולם.", "مرحبا", "بالعالم", "ما؟", "\u202eabc\u202c", "\u2067עברית\u2069"]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "☃️", "👍🏽", "🇺🇳!", "e\u0301\u0302\u0303"]
CONTROL = [chr(code) for code in (*range(32), *range(127, 160), 0x200B, 0x200D, 0x2028, 0xAD, 0xFEFF, 0xFFFD, 0xFFFF, 0x10FFFF)]
KINDS = ("empty", "one sentence", "one token", "spelled", "right to left", "emoji", "control", "mixed", "no stop", "prose")


@pytest.fixture(scope="module")
def tokenizer() -> LoadedTokenizer:
    return train("wordpiece", vocab_size=600, characters=20_000)


def write(kind: str, generator: np.random.Generator, prose: list[str]) -> str:
    def some(words: list[str], most: int = 30) -> str:
        return " ".join(generator.choice(words, size=generator.integers(1, most)))

    match kind:
        case "empty":
            return str(generator.choice(["", " ", "\n\n", "\t \r\n", "\u2028", "\u3000"]))
        case "one sentence":
            return prose[generator.integers(len(prose))].split(". ")[0]
        case "one token":
            return str(generator.choice(["a", "7", ".", "中", "[", "\ud7ff"]))
        case "spelled":
            return generator.choice(["", " ", ". "]).join(generator.choice(SPELLED, size=generator.integers(1, 40)))
        case "right to left":
            return some(RIGHT_TO_LEFT)
        case "emoji":
            return generator.choice(["", " "]).join(generator.choice(EMOJI, size=generator.integers(1, 40)))
        case "control":
            return "".join(generator.choice(CONTROL, size=generator.integers(1, 60)))
        case "mixed":
            return some([*SPELLED, *RIGHT_TO_LEFT, *EMOJI, *CONTROL, "Then it ends. And", "x" * 150, "3.14", "\n\n"], 80)
        case "no stop":
            return some(["word", "and", "longer,", "(never)", "ends"], 900)
    return " ".join(generator.choice(prose, size=generator.integers(1, 5)))


@pytest.fixture(scope="module")
def texts(tokenizer: LoadedTokenizer) -> list[str]:
    """One of them of 100,000 tokens, in the midst of the others."""
    generator, prose = np.random.default_rng(0), reference_texts(100_000)
    documents = [write(KINDS[number % len(KINDS)], generator, prose) for number in range(DOCUMENTS - 1)]
    block = " ".join(prose)
    times = -(-100_000 // len(tokenizer.encode(block)))
    return [*documents[:250], " ".join([block] * times), *documents[250:]]


def as_prepared(texts: list[str], tokenizer: LoadedTokenizer) -> TokenStore:
    """As the prepare stage makes it: what gives no token is left out."""
    chunk = encode_chunk([RawDocument(text, "", "train") for text in texts], "train", tokenizer)
    sentences, documents = (np.append(0, np.cumsum(lengths)) for lengths in (chunk.sentence_lengths, chunk.document_lengths))
    return TokenStore.from_arrays(chunk.tokens, chunk.word_starts, sentences, documents, tokenizer.vocabulary)


def with_empty_ones(texts: list[str], tokenizer: LoadedTokenizer) -> TokenStore:
    """With the sentences and documents that gave no token."""
    split = [split_document(RawDocument(text, "", "train")).sentences for text in texts]
    tokens, word_starts, lengths = tokenizer.encode_batch([sentence for sentences in split for sentence in sentences])
    documents = np.append(0, np.cumsum([len(sentences) for sentences in split]))
    return TokenStore.from_arrays(tokens, word_starts, np.append(0, np.cumsum(lengths)), documents, tokenizer.vocabulary)


@pytest.fixture(scope="module")
def stores(texts: list[str], tokenizer: LoadedTokenizer) -> dict[str, TokenStore]:
    return {"prepared": as_prepared(texts, tokenizer), "with empty ones": with_empty_ones(texts, tokenizer)}


@pytest.fixture(params=["prepared", "with empty ones"])
def store(request: pytest.FixtureRequest, stores: dict[str, TokenStore]) -> TokenStore:
    return stores[request.param]


@pytest.fixture(params=OPTIONS, ids=lambda option: option.stem)
def objective(request: pytest.FixtureRequest) -> Any:
    kind, values = load(request.param)
    return kind(**values)


def chunks(plan: Plan) -> Iterator[np.ndarray]:
    """Rows all over the plan, the first and the last among them; the last chunk is smaller."""
    index = np.unique(np.linspace(0, len(plan) - 1, MOST_ROWS).astype(int))
    return iter(np.split(index, range(ROWS, len(index), ROWS)))


def text_of(store: TokenStore, plan: PackedRows | SentencePairs, index: np.ndarray) -> np.ndarray:
    """The tokens that the rows hold, end to end."""
    starts, stops = plan.starts[index].ravel(), plan.stops[index].ravel()
    return np.concatenate([store.tokens[start:stop] for start, stop in zip(starts, stops, strict=True)])


def check_text(ids: np.ndarray, store: TokenStore, plan: PackedRows | SentencePairs, index: np.ndarray) -> None:
    """Rows before corruption hold the store's tokens, in order, and nothing else but [CLS], [SEP] and padding."""
    vocabulary = store.vocabulary
    assert (ids[:, 0] == vocabulary.cls_id).all()
    assert (ids[~np.isin(ids, [vocabulary.cls_id, vocabulary.sep_id, vocabulary.pad_id])] == text_of(store, plan, index)).all()


def check_masked(batch: Batch, store: TokenStore, plan: PackedRows | SentencePairs, index: np.ndarray) -> None:
    vocabulary, ids, labels = store.vocabulary, batch["input_ids"], batch["labels"]
    positions, kinds, used = batch["label_positions"], batch["label_kinds"], labels != IGNORE_INDEX
    assert (positions[~used] == 0).all() and (kinds[~used] == 0).all() and (positions[used] > 0).all()
    assert ((np.diff(positions, axis=1) > 0) | ~used[:, 1:]).all(), "no place twice"
    shown = np.take_along_axis(ids, positions, axis=1)
    assert (shown[kinds == 1] == vocabulary.mask_id).all() and (shown[kinds == 3] == labels[kinds == 3]).all()
    assert np.isin(shown[kinds == 2], vocabulary.ordinary_ids).all() and np.isin(kinds[used], [1, 2, 3]).all()
    assert np.isin(labels[used], [*vocabulary.ordinary_ids, vocabulary.unk_id]).all(), "no special token is a target"
    row, slot = np.nonzero(used)
    original = ids.copy()
    original[row, positions[row, slot]] = labels[row, slot]
    check_text(original, store, plan, index)


def check_next(batch: Batch, store: TokenStore, plan: PackedRows, index: np.ndarray) -> None:
    ids, labels = batch["input_ids"], batch["labels"]
    check_text(ids, store, plan, index)
    row, place = np.nonzero(labels != IGNORE_INDEX)
    assert (labels[row, place] == ids[row, place + 1]).all(), "each target is what stands next"
    is_last = (ids == store.vocabulary.sep_id) | (ids == store.vocabulary.pad_id)
    assert ((labels == IGNORE_INDEX) == is_last).all()


def test_text_that_spells_special_tokens_is_ordinary_text(tokenizer: LoadedTokenizer, store: TokenStore) -> None:
    vocabulary = tokenizer.vocabulary
    for text in (*SPELLED, "".join(SPELLED), " ".join(SPELLED)):
        pieces = [tokenizer.token(number) for number in tokenizer.encode(text)]
        assert "".join(piece.removeprefix("##") if len(piece) > 2 else piece for piece in pieces) == text.replace(" ", "")
    assert set(store.tokens[np.isin(store.tokens, vocabulary.special_ids)].tolist()) == {vocabulary.unk_id}
    assert np.diff(store.document_offsets).max() >= 100_000 and store.num_sentences > store.num_documents > 400


def test_what_gives_no_token_leaves_no_trace(stores: dict[str, TokenStore]) -> None:
    prepared, kept = stores["prepared"], stores["with empty ones"]
    assert (prepared.tokens == kept.tokens).all() and (np.diff(kept.document_offsets) == 0).sum() >= DOCUMENTS // len(KINDS)
    assert (np.unique(prepared.document_offsets) == np.unique(kept.document_offsets)).all()
    assert np.diff(prepared.sentence_starts).min() > 0 and np.diff(prepared.document_starts).min() > 0


@pytest.mark.parametrize("length", LENGTHS)
def test_every_row_is_whole_and_legal(objective: Any, store: TokenStore, length: int) -> None:
    plan, vocabulary, shapes = objective.plan(store, length, Draws(0, "train")), store.vocabulary, set()
    for index in chunks(plan):
        batch = objective.make_batch(store, plan, keys_of(index))
        shapes.add(tuple((name, array.dtype, array.shape[1:]) for name, array in batch.items()))
        assert {len(array) for array in batch.values()} == {len(index)}
        for name, array in batch.items():
            if name.endswith("input_ids"):
                assert array.min() >= 0 and array.max() < vocabulary.size
        assert ((batch["input_ids"] == vocabulary.pad_id) == (batch["attention_mask"] == 0)).all()
        assert batch["position_ids"].min() == 0 and batch["position_ids"].max() < length
        labels = batch["labels"][batch["labels"] != IGNORE_INDEX]
        assert len(labels) and labels.min() >= 0 and labels.max() < vocabulary.size
        if "label_positions" in batch:
            check_masked(batch, store, plan, index)
        elif isinstance(objective, SpanCorruption):
            check_rows(store, objective, length, keys_of(index))
        else:
            check_next(batch, store, plan, index)
    assert len(shapes) == 1, "the last batch has the shapes of the others"


def test_every_objective_learns_from_finite_losses(objective: Any, store: TokenStore) -> None:
    plan = objective.plan(store, 64, Draws(0, "train"))
    module = objective.build(encoder_config(), store.vocabulary)
    arrays = objective.make_batch(store, plan, keys_of(np.linspace(0, len(plan) - 1, 48).astype(int)))
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    output = module(batch)
    sum(output.losses.values()).backward()
    assert output.losses.keys() == module.loss_weights.keys() and all(torch.isfinite(loss) for loss in output.losses.values())
    assert all(torch.isfinite(parameter.grad).all() for parameter in module.parameters() if parameter.grad is not None)
