"""Held-out loss: the same masks always, each row once, and split by what became of the targets."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from mlm_lab.training import validation
from mlm_lab.training.validation import FURTHER_PROBES, HeldOut, _alike, evaluate
from tests.training.tiny_run import make_config, make_course


def held_out(course, sequences=16, batch_size=8):
    return HeldOut(course.config.objective, course.validation, course.config.max_length, sequences, batch_size)


def same(a, b):
    return all(np.array_equal(x[name], y[name]) for x, y in zip(a, b, strict=True) for name in x)


@pytest.fixture(scope="module")
def course():
    return make_course(make_config())


def test_the_probe_is_the_same_for_every_run(course):
    """traps 12: whatever the run's seeds and recipe; its own recipe has its own fixed masks."""
    other = make_course(make_config("seed=7", "objective.mask_ratio=0.4", "objective.replace_mix=[1,0,0]", "objective.duplicates=3"))
    ours, theirs = held_out(course), held_out(other)
    assert same(ours.batches["mlm_15"], theirs.batches["mlm_15"])
    assert not same(ours.batches[""], theirs.batches[""])
    again = make_course(make_config("seed=8", "objective.mask_ratio=0.4", "objective.replace_mix=[1,0,0]", "objective.duplicates=3"))
    assert same(theirs.batches[""], held_out(again).batches[""])


def test_the_probe_is_the_same_at_every_step(course):
    """traps 12: evaluating neither changes the module nor the next evaluation."""
    probe = held_out(course)
    module = course.module.train()
    first = evaluate(module, probe, torch.device("cpu"))
    assert module.training
    assert evaluate(module, probe, torch.device("cpu")) == first


def test_each_row_counts_once_for_any_number_of_ranks(course):
    """traps 30: sums over 1, 2, 3 ranks and any batch size are the same."""
    whole = evaluate(course.module, held_out(course, sequences=13), torch.device("cpu"))
    for world_size in (1, 2, 3):
        for batch_size in (4, 13):
            probe, shares = held_out(course, 13, batch_size), []
            probe.batches["mlm_15"] = list(probe.batches["mlm_15"])  # by itself, though it is the recipe's own
            for rank in range(world_size):
                evaluate(
                    course.module, probe, torch.device("cpu"), rank=rank, world_size=world_size, reduce=lambda t, s=shares: s.append(t) or t
                )
            for kind in (0, 1):  # val, probe
                loss, count = sum(shares[kind::3])[0].tolist()
                name = ("val/loss", "probe/mlm_15_loss")[kind]
                assert loss / count == pytest.approx(whole[name], rel=1e-6)
                assert count == len(probe.labels(("", "mlm_15")[kind]))


def test_rows_are_spread_over_the_split(course):
    everything = np.concatenate([batch["labels"] for batch in held_out(course, sequences=10**6).batches[""]])
    chosen = np.concatenate([batch["labels"] for batch in held_out(course, sequences=10).batches[""]])
    assert len(chosen) == 10 < len(everything)
    places = [next(place for place, row in enumerate(everything) if np.array_equal(row, one)) for one in chosen]
    assert places == np.linspace(0, len(everything), 10, endpoint=False).astype(int).tolist()


@pytest.mark.parametrize("objective", ["mlm", "mlm_nsp", "sop"])
def test_a_probe_reports_its_own_loss_whatever_weight_the_run_gives_it(objective):
    """The same weights, half the weight of the loss: the run's own loss changes, the probe's does not."""
    course = make_course(make_config(f"objective={objective}"))
    probe, values = held_out(course), []
    for weight in (1.0, 0.5):
        course.module.loss_weights = {**course.module.loss_weights, "mlm": weight}
        values.append(evaluate(course.module, probe, torch.device("cpu")))
    for name in ("probe/mlm_15_loss", "probe/mlm_15_accuracy"):
        assert values[1][name] == values[0][name]
    assert values[1]["val/loss"] < 0.8 * values[0]["val/loss"]


def test_a_probes_loss_is_that_of_its_masked_tokens():
    """With objective.mlm_weight=0.5: the number of the same weights at weight 1, and of a masked model that has no pairs."""
    courses = [make_course(make_config("objective=mlm_nsp", f"objective.mlm_weight={weight}")) for weight in (1.0, 0.5)]
    losses = [evaluate(course.module, held_out(course), torch.device("cpu"))["probe/mlm_15_loss"] for course in courses]
    assert losses[1] == losses[0]
    masked = make_course(make_config())
    masked.module.load_state_dict({name: value for name, value in courses[0].module.state_dict().items() if not name.startswith("pair")})
    assert evaluate(masked.module, held_out(masked), torch.device("cpu"))["probe/mlm_15_loss"] == pytest.approx(losses[0], rel=1e-6)


def test_no_perplexity_where_no_token_is_predicted():
    """Sentence order alone: the exponential of its loss would say nothing of text."""
    course = make_course(make_config("objective=sop", "objective.mlm_weight=0"))
    assert set(evaluate(course.module, held_out(course), torch.device("cpu"))) == {"val/loss", "val/sop_accuracy"}


def test_names(course):
    values = evaluate(course.module, held_out(course), torch.device("cpu"))
    split = {f"{word}_{what}" for word in ("masked", "random", "kept") for what in ("loss", "accuracy")}
    probes = {f"probe/{probe}_{name}" for probe in ("mlm_15", "mlm_40") for name in {"loss", "perplexity", "accuracy", *split}}
    assert values["probe/mlm_15_perplexity"] == pytest.approx(math.exp(values["probe/mlm_15_loss"]))
    assert set(values) == {"val/loss", "val/mlm_accuracy", "val/mlm_perplexity", *(f"val/mlm_{name}" for name in split), *probes}


def test_masked_random_and_kept_targets_add_up_to_the_probe(course):
    probe = held_out(course)
    values = evaluate(course.module, probe, torch.device("cpu"))
    for name in ("mlm_15", "mlm_40"):
        kinds = np.concatenate([batch["label_kinds"].ravel() for batch in probe.batches[name]])
        counts = {word: int((kinds == kind).sum()) for kind, word in ((1, "masked"), (2, "random"), (3, "kept"))}
        assert sum(counts.values()) == len(probe.labels(name)) and min(counts.values()) > 0
        for what in ("loss", "accuracy"):
            total = sum(count * values[f"probe/{name}_{word}_{what}"] for word, count in counts.items())
            assert total / len(kinds[kinds > 0]) == pytest.approx(values[f"probe/{name}_{what}"], rel=1e-6)


def test_training_does_not_pay_for_the_split(course):
    batch = {name: torch.from_numpy(array) for name, array in held_out(course).batches[""][0].items()}
    assert set(course.module.train()(batch).metrics) == {"mlm_loss", "mlm_accuracy"}


def test_a_held_out_batch_is_small_whatever_the_size_of_a_step(course, monkeypatch):
    monkeypatch.setattr(validation, "MOST_ROWS", 4)
    small, whole = held_out(course, 16, 8), HeldOut(course.config.objective, course.validation, course.config.max_length, 16, 2)
    assert {len(batch["labels"]) for batch in small.batches[""]} == {4}
    assert np.array_equal(small.labels(""), whole.labels(""))


def test_further_probes_are_measured_on_fewer_rows(course):
    rows = {name: sum(len(batch["labels"]) for batch in batches) for name, batches in held_out(course, 20).batches.items()}
    assert rows == {"": 20, "mlm_15": 20, "mlm_40": 20 * FURTHER_PROBES}


@pytest.mark.parametrize("mix", [[0, 0.2, 0.8], [0, 1, 0], [1, 0, 0]])
def test_a_recipe_that_never_masks_has_no_figure_for_masks(mix):
    course = make_course(make_config(f"objective.replace_mix={mix}"))
    values = evaluate(course.module, held_out(course), torch.device("cpu"))
    never = mix[0] == 0
    assert ("probe/mlm_15_masked_loss" in values) != never and ("probe/mlm_40_accuracy" in values) != never
    assert {"val/loss", "probe/mlm_15_random_loss", "probe/mlm_15_kept_accuracy", "probe/mlm_40_random_loss"} <= set(values)
    assert ("val/mlm_masked_loss" in values) != never


def test_other_numbers_of_batches_are_other_recipes(course):
    """A pair objective's rows may be fewer than its probe's, and begin alike."""
    batches = held_out(course).batches[""]
    assert _alike(batches, list(batches)) and not _alike(batches, batches[:1]) and not _alike(batches[:1], batches)


def test_a_probe_that_is_the_recipe_itself_is_measured_once():
    """And comes to what it comes to by itself."""
    course = make_course(make_config("objective.mask_ratio=0.15", "objective.input_format=full_sentences"))
    objective = course.config.objective
    held_out = HeldOut(objective, course.validation, 32, 16, 8)
    assert held_out.batches["mlm_15"] is held_out.batches[""] and held_out.batches["mlm_40"] is not held_out.batches[""]
    shared = evaluate(course.module, held_out, torch.device("cpu"))
    held_out.batches["mlm_15"] = list(held_out.batches[""])
    assert evaluate(course.module, held_out, torch.device("cpu")) == shared
    other = HeldOut(replace(objective, replace_mix=(0.8, 0.2, 0.0)), course.validation, 32, 16, 8)
    assert other.batches["mlm_15"] is not other.batches[""]
