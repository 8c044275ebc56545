"""The MLM objective up to its batches; tests/models hold the module that it builds."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm_lab.corruption.draws import Draws
from mlm_lab.corruption.frequency import FREQUENCY_BINS
from mlm_lab.corruption.masking import unit_names
from mlm_lab.corruption.schedules import MASK_SCHEDULES
from mlm_lab.data.packing import INPUT_FORMATS
from mlm_lab.data.token_store import TokenStore
from mlm_lab.errors import InvalidFields, UserError
from mlm_lab.objectives.mlm import MLM
from mlm_lab.types import IGNORE_INDEX, Batch, ExampleKeys
from tests.corruption.stores import VOCABULARY, keys_of, make_store, many_documents, odd_documents, stores

DRAWS = Draws(0, "train")
DEFAULTS = yaml.safe_load((Path(__file__).resolve().parents[2] / "conf" / "objective" / "mlm.yaml").read_text())


def mlm(**changes) -> MLM:
    return MLM(**{name: value for name, value in DEFAULTS.items() if name != "_target_"} | changes)


def same(first: Batch, second: Batch) -> bool:
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype and (first[name] == second[name]).all() for name in first
    )


@settings(max_examples=60, deadline=None)
@given(
    stores(),
    st.integers(3, 40),
    st.fixed_dictionaries(
        {
            "unit": st.sampled_from(unit_names()),
            "mask_count": st.sampled_from(["exact", "bernoulli", "stochastic"]),
            "input_format": st.sampled_from(INPUT_FORMATS),
            "cross_document_attention": st.booleans(),
            "mask_schedule": st.sampled_from(MASK_SCHEDULES),
            "final_mask_ratio": st.just(0.7),
            "predict_share": st.sampled_from([1.0, 0.5]),
            "frequency_exponent": st.sampled_from([0.0, 0.5]),
            "span_boundary_weight": st.sampled_from([0.0, 1.0]),
        }
    ),
    st.data(),
)
def test_trap_08_a_batch_equals_its_rows_bit_for_bit(store: TokenStore, length: int, changes: dict, data: st.DataObject) -> None:
    objective = mlm(mask_ratio=0.4, **changes)
    try:
        plan = objective.plan(store, length, Draws(0, "train", horizon=100))
    except UserError:
        return  # no document fills a row
    index = data.draw(st.lists(st.integers(0, len(plan) - 1), min_size=1, max_size=6))
    epoch = data.draw(st.lists(st.integers(0, 50), min_size=len(index), max_size=len(index)))
    position = data.draw(st.lists(st.integers(0, 120), min_size=len(index), max_size=len(index)))
    keys = replace(keys_of(index, epoch), position=np.asarray(position))
    batch = objective.make_batch(store, plan, keys)
    slots = objective.slots(length)
    expected = {
        "input_ids": (length,),
        "attention_mask": (length,),
        "position_ids": (length,),
        "label_positions": (slots,),
        "labels": (slots,),
        "label_kinds": (slots,),
        "dropped_slots": (),
        "corpus_tokens": (),
    }
    expected |= {"selected_by_frequency": (FREQUENCY_BINS,)} if objective.frequency_exponent else {}
    expected |= {"span_borders": (slots, 2)} if objective.span_boundary_weight else {}
    assert {name: array.shape[1:] for name, array in batch.items()} == expected
    for row in range(len(index)):
        part = slice(row, row + 1)
        alone = objective.make_batch(store, plan, ExampleKeys(keys.position[part], keys.epoch[part], keys.index[part]))
        assert same({name: array[part] for name, array in batch.items()}, alone)


def test_documents_of_odd_sizes() -> None:
    store = odd_documents()
    for unit in ("token", "word", "span"):
        objective = mlm(unit=unit)
        plan = objective.plan(store, 64, DRAWS)
        for start in range(0, len(plan), 256):
            index = np.arange(start, min(start + 256, len(plan)))
            batch = objective.make_batch(store, plan, keys_of(index))
            assert batch["input_ids"].shape == (len(index), 64) and batch["labels"].shape == (len(index), objective.slots(64))
            assert (batch["corpus_tokens"] == np.isin(batch["input_ids"], [0, 2, 3], invert=True).sum(axis=1)).all()


def test_batches_travel_with_the_types_that_torch_takes() -> None:
    batch = mlm().make_batch(store := many_documents(20), mlm().plan(store, 32, DRAWS), keys_of([0, 1]))
    kinds = batch.pop("label_kinds")
    assert kinds.dtype == np.int8 and all(array.dtype == np.int64 for array in batch.values())


@pytest.mark.parametrize("input_format", INPUT_FORMATS)
def test_trap_26_documents_see_each_other_only_if_asked(input_format: str) -> None:
    store = many_documents()
    apart, together = (mlm(input_format=input_format, cross_document_attention=cross) for cross in (False, True))
    plan = apart.plan(store, 128, DRAWS)
    first, second = (objective.make_batch(store, plan, keys_of(range(20))) for objective in (apart, together))
    assert same({name: first[name] for name in ("input_ids", "labels")}, {name: second[name] for name in ("input_ids", "labels")})
    ids, numbers = first["input_ids"], first["attention_mask"]
    opens = ids == VOCABULARY.cls_id
    assert (opens == ((first["position_ids"] == 0) & (numbers > 0))).all(), "positions restart at each document's [CLS]"
    assert (numbers == np.where(ids == VOCABULARY.pad_id, 0, np.cumsum(opens, axis=1))).all(), "documents are numbered from 1"
    assert ((ids == VOCABULARY.sep_id).sum(axis=1) == opens.sum(axis=1)).all()
    assert (input_format == "document_sentences") == (numbers.max() == 1)
    padding = ids == VOCABULARY.pad_id
    assert (second["attention_mask"] == ~padding).all()
    assert (second["position_ids"] == np.where(padding, 0, np.arange(128))).all(), "places differ among tokens that see each other"


def test_trap_10_static_masks_repeat_after_duplicates() -> None:
    store = many_documents(60)
    objective = mlm(duplicates=10)
    plan = objective.plan(store, 64, DRAWS)
    masks = [objective.make_batch(store, plan, keys_of([5, 7], epoch))["input_ids"].tobytes() for epoch in range(40)]
    assert all(masks.count(mask) == 4 for mask in masks), "40 epochs see each mask four times"
    assert masks[:10] == masks[10:20] and len(set(masks)) == 10
    dynamic = mlm(duplicates=None)
    assert len({dynamic.make_batch(store, plan, keys_of([5, 7], epoch))["input_ids"].tobytes() for epoch in range(40)}) == 40


def test_trap_08_draws_depend_on_seed_split_epoch_and_index_alone() -> None:
    store = many_documents(60)
    objective = mlm()

    def labels(seed: int = 0, split: str = "train", epoch: int = 0, index: int = 3) -> bytes:
        plan = objective.plan(store, 64, Draws(seed, split))
        return objective.make_batch(store, plan, keys_of([index], epoch))["label_positions"].tobytes()

    assert labels() == labels()
    different = [labels(), labels(seed=1), labels(split="validation"), labels(epoch=1), labels(seed=1, epoch=2), labels(seed=2, epoch=1)]
    assert len(set(different)) == len(different)
    np.random.seed(0)
    before = labels()
    np.random.seed(1)
    assert labels() == before, "no global generator"


def test_trap_11_a_scheduled_ratio_follows_the_position_in_the_run() -> None:
    store = many_documents(60)
    objective = mlm(mask_ratio=0.1, mask_schedule="linear", final_mask_ratio=0.5, input_format="contiguous")
    plan = objective.plan(store, 64, Draws(0, "train", horizon=1000))
    assert plan.draws.horizon == 1000

    def positions_of(position: int) -> set[int]:
        batch = objective.make_batch(store, plan, replace(keys_of([4]), position=np.asarray([position])))
        assert (batch["labels"] != IGNORE_INDEX).sum() == np.rint((0.1 + 0.4 * min(position / 1000, 1)) * batch["corpus_tokens"][0])
        return set(batch["label_positions"][batch["labels"] != IGNORE_INDEX].tolist())

    masks = [positions_of(position) for position in (0, 300, 700, 1000, 1500)]
    assert all(before <= after for before, after in pairwise(masks)) and masks[0] < masks[-1]
    assert masks[3] == masks[4], "the course ends with the run"
    held_out = objective.make_batch(store, objective.plan(store, 64, Draws(0, "train")), keys_of([4]))
    assert set(held_out["label_positions"][held_out["labels"] != IGNORE_INDEX].tolist()) == masks[3]


def test_trap_10_static_masks_keep_their_ratio() -> None:
    store = many_documents(60)
    objective = mlm(duplicates=3, mask_schedule="uniform", mask_ratio=0.05, final_mask_ratio=0.9)
    plan = objective.plan(store, 64, DRAWS)
    masks = [objective.make_batch(store, plan, keys_of([5], epoch))["input_ids"].tobytes() for epoch in range(9)]
    assert masks[:3] == masks[3:6] == masks[6:] and len(set(masks)) == 3


def collocated() -> TokenStore:
    """Text in which token 60 is followed by 61, 62, each a word."""
    generator = np.random.default_rng(0)
    sentences = generator.choice(np.arange(5, 45), size=(600, 12))
    sentences[::3, 3:6] = [60, 61, 62]
    ones = np.ones(sentences.size, dtype=bool)
    return TokenStore.from_arrays(sentences.ravel(), ones, np.arange(601) * 12, np.arange(0, 601, 4), VOCABULARY)


def test_collocations_are_masked_together() -> None:
    store, objective = collocated(), mlm(unit="collocation", mask_ratio=0.3)
    plan = objective.plan(store, 64, DRAWS)
    seen = {}
    for unit in ("collocation", "word"):
        batch = mlm(unit=unit, mask_ratio=0.3).make_batch(store, plan, keys_of(range(len(plan))))
        whole = mlm(mask_ratio=1.0, replace_mix=[0, 0, 1]).make_batch(store, plan, keys_of(range(len(plan))))["input_ids"]
        chosen = np.zeros(whole.shape, dtype=bool)
        np.put_along_axis(chosen, batch["label_positions"], batch["labels"] != IGNORE_INDEX, axis=1)
        rows, columns = np.nonzero(whole == 60)
        seen[unit] = np.stack([chosen[rows, columns + offset] for offset in range(3)]).sum(axis=0)
    assert set(seen["collocation"]) == {0, 3} and {1, 2} <= set(seen["word"])
    assert 0.2 < (seen["collocation"] == 3).mean() < 0.4, "as often as a word"


def test_rare_tokens_are_selected_more_often() -> None:
    tokens = 5 + np.minimum(np.random.default_rng(0).geometric(0.2, size=6000), 40)
    store = TokenStore.from_arrays(tokens, np.ones(6000, dtype=bool), np.arange(0, 6001, 20), np.arange(0, 301, 4), VOCABULARY)
    counts = np.bincount(tokens, minlength=VOCABULARY.padded_size)
    assert (store.token_counts == counts).all()
    found = []
    for exponent in (0.0, 1.0):
        objective = mlm(frequency_exponent=exponent, mask_ratio=0.2)
        batch = objective.make_batch(store, plan := objective.plan(store, 64, DRAWS), keys_of(range(len(plan))))
        labels = batch["labels"][batch["labels"] != IGNORE_INDEX]
        found.append(np.mean(counts[labels]))
        if exponent:
            assert (batch["selected_by_frequency"].sum(axis=1) == (batch["labels"] != IGNORE_INDEX).sum(axis=1)).all()
    assert found[1] < 0.9 * found[0]


@pytest.mark.parametrize(("name", "ratio"), [("mlm_15", 0.15), ("mlm_40", 0.4)])
def test_trap_12_the_probe_is_the_same_for_every_arm(name: str, ratio: float) -> None:
    store = many_documents(100, seed=3)
    arms = [
        mlm(),
        mlm(mask_ratio=0.8, replace_mix=[1.0, 0.0, 0.0], unit="span", mask_count="bernoulli", overshoot="cut", duplicates=10),
        mlm(input_format="contiguous", replace_unit="word", mask_unknown=False, span_p=0.5, max_span_length=3),
        mlm(mask_schedule="uniform", final_mask_ratio=1.0, predict_share=0.5, frequency_exponent=1.0, unit="collocation"),
        mlm(max_predictions=3, span_law="inverse", span_boundary_weight=1.0),
    ]
    probes = [arm.probes()[name] for arm in arms]
    held_out = Draws(0, "validation")
    batches = [probe.make_batch(store, probe.plan(store, 64, held_out), keys_of(range(10))) for probe in probes]
    assert all(same(batches[0], other) for other in batches[1:])
    candidates = batches[0]["corpus_tokens"]
    assert ((batches[0]["labels"] != IGNORE_INDEX).sum(axis=1) == np.rint(ratio * candidates)).all()
    assert probes[0].replace_mix == (0.8, 0.1, 0.1)
    assert mlm(cross_document_attention=True).probes()[name].cross_document_attention


def test_the_masks_of_the_probes_are_nested() -> None:
    store, probes = many_documents(100, seed=3), mlm().probes()
    first, second = (probe.make_batch(store, probe.plan(store, 64, DRAWS), keys_of(range(10))) for probe in probes.values())
    places = [
        {
            (row, int(place)): int(kind)
            for row in range(10)
            for place, kind in zip(batch["label_positions"][row], batch["label_kinds"][row], strict=True)
            if kind
        }
        for batch in (first, second)
    ]
    assert len(places[0]) < len(places[1]) and places[0].items() <= places[1].items()


def test_trap_23_the_targets_of_a_step_are_those_of_its_parts() -> None:
    """Micro-batches and ranks together hold the targets of the whole step, so one denominator serves all."""
    store = many_documents()
    objective = mlm(mask_count="bernoulli")
    plan = objective.plan(store, 64, DRAWS)

    def targets(first: int, last: int) -> int:
        return int((objective.make_batch(store, plan, keys_of(range(first, last)))["labels"] != IGNORE_INDEX).sum())

    assert targets(0, 12) == targets(0, 3) + targets(3, 4) + targets(4, 12)


def test_trap_24_shapes_do_not_change_from_batch_to_batch() -> None:
    store = odd_documents()
    for mask_count, slots in [("exact", 19), ("stochastic", 19), ("bernoulli", 43)]:
        objective = mlm(mask_count=mask_count)
        plan = objective.plan(store, 128, DRAWS)
        assert objective.slots(128) == slots
        batches = [objective.make_batch(store, plan, keys_of(range(start, start + 50))) for start in (0, 300, 500)]
        assert {batch["labels"].shape for batch in batches} == {(50, slots)}
        assert sum(batch["dropped_slots"].sum() for batch in batches) == 0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"mask_ratio": 0.0}, "mask_ratio"),
        ({"mask_ratio": 1.5}, "mask_ratio"),
        ({"replace_mix": [0.8, 0.1, 0.2]}, "replace_mix"),
        ({"replace_mix": [1.2, -0.1, -0.1]}, "replace_mix"),
        ({"replace_mix": [0.5, 0.5]}, "replace_mix"),
        ({"replace_unit": "span"}, "replace_unit"),
        ({"mask_count": "some"}, "mask_count"),
        ({"unit": "sentence"}, "unit"),
        ({"overshoot": "ignore"}, "overshoot"),
        ({"span_p": 0.0}, "span_p"),
        ({"max_span_length": 0}, "max_span_length"),
        ({"duplicates": 0}, "duplicates"),
        ({"input_format": "sentence_pair"}, "input_format"),
        ({"span_boundary_weight": -1.0}, "span_boundary_weight"),
    ],
)
def test_values_out_of_range(changes: dict, field: str) -> None:
    with pytest.raises(InvalidFields) as error:
        mlm(**changes)
    assert [problem.field for problem in error.value.problems] == [field]


def test_a_mix_of_thirds_is_one() -> None:
    assert mlm(replace_mix=[0.1, 0.2, 0.7]).replace_mix == (0.1, 0.2, 0.7)
    assert mlm(replace_mix=[1 / 3, 1 / 3, 1 / 3]) == mlm(replace_mix=(1 / 3, 1 / 3, 1 / 3))


@pytest.mark.parametrize(("documents", "length", "says"), [([[1]], 8, "too small"), ([[5]], 2, "no room")])
def test_stores_and_lengths_without_rows(documents: list, length: int, says: str) -> None:
    with pytest.raises(UserError, match=says):
        mlm().plan(make_store(documents), length, DRAWS)


def test_a_span_longer_than_the_text_of_a_row_is_refused() -> None:
    with pytest.raises(UserError, match=r"max_span_length=10, max_length=11\n.*at most 9"):
        mlm(unit="span", max_span_length=10).plan(make_store([[40, 40]]), 11, DRAWS)
    mlm(unit="span", max_span_length=10).plan(make_store([[40, 40]]), 12, DRAWS)
    mlm(unit="word", max_span_length=10).plan(make_store([[40, 40]]), 11, DRAWS)


def test_masks_have_the_statistics_of_the_collator_of_transformers() -> None:
    """Same shares selected and replaced as DataCollatorForLanguageModeling, on the same rows."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    names = {0: "[PAD]", 1: "[UNK]", 2: "[CLS]", 3: "[SEP]", 4: "[MASK]"}
    words = {names.get(number, f"w{number}"): number for number in range(VOCABULARY.size)}
    specials = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="[UNK]")), **specials)
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)

    store = many_documents(1200)
    objective = mlm(mask_count="bernoulli", mask_unknown=False)
    plan = objective.plan(store, 128, DRAWS)
    keys = keys_of(range(len(plan)))
    ours = objective.make_batch(store, plan, keys)
    used = ours["labels"] != IGNORE_INDEX
    our_labels = np.full(ours["input_ids"].shape, IGNORE_INDEX)
    rows = np.broadcast_to(np.arange(len(plan))[:, None], used.shape)
    our_labels[rows[used], ours["label_positions"][used]] = ours["labels"][used]

    original = np.where(our_labels != IGNORE_INDEX, our_labels, ours["input_ids"])
    torch.manual_seed(0)
    theirs = collator([{"input_ids": row} for row in original.tolist()])

    candidates = ~np.isin(original, list(names))

    def statistics(input_ids: np.ndarray, labels: np.ndarray) -> np.ndarray:
        chosen = labels != IGNORE_INDEX
        assert not chosen[~candidates].any() and (labels[chosen] == original[chosen]).all()
        masked, kept = (input_ids == VOCABULARY.mask_id)[chosen].mean(), (input_ids == original)[chosen].mean()
        per_row = chosen.sum(axis=1) / candidates.sum(axis=1)
        return np.asarray([chosen.sum() / candidates.sum(), masked, kept, 1 - masked - kept, per_row.std()])

    difference = statistics(ours["input_ids"], our_labels) - statistics(theirs["input_ids"].numpy(), theirs["labels"].numpy())
    assert candidates.sum() > 100_000
    four_deviations = [
        0.005,
        0.015,
        0.012,
        0.012,
        0.005,
    ]  # of a difference of shares: of 100,000 candidates, of 15,000 targets; of 1200 rows
    assert (abs(difference) < four_deviations).all()


def test_a_varied_copy_is_checked() -> None:
    with pytest.raises(InvalidFields):
        replace(mlm(), mask_ratio=2.0)
