"""The plateau watch: which targets it looks at, what it holds them against, and that the run is the same run with it and without."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from mlm_lab.training import plateau
from mlm_lab.training.plateau import LEFT_SHARE, PlateauWatch
from mlm_lab.training.validation import HeldOut, evaluate
from mlm_lab.types import IGNORE_INDEX
from tests.training.test_baselines import slow_probability
from tests.training.test_training import SignalAt, bits_of, rows_of
from tests.training.tiny_run import VOCABULARY, Run, make_config, make_course, train

NOTHING = -1
QUICK_ESCAPE = make_config(
    "model.hidden_dropout=0.1",
    "optim.peak_lr=1e-2",
    "schedule.warmup_steps=5",
    "objective.mask_ratio=0.4",
    "trainer.log_every_steps=20",
    "validation.every_steps=25",
    "checkpoint.every_steps=20",
    steps=80,
)


def watch_of(*overrides: str) -> tuple[PlateauWatch | None, HeldOut, object]:
    course = make_course(make_config(*overrides))
    held_out = HeldOut(course.config.objective, course.validation, course.config.max_length, 16, 8)
    return PlateauWatch.over(held_out, course.train), held_out, course


def labels_of(watch: PlateauWatch) -> np.ndarray:
    labels = np.concatenate([batch["labels"].ravel() for batch in watch.batches])
    return labels[labels != IGNORE_INDEX]


def slow_masked(held_out: HeldOut, store: object) -> list[tuple[float, float]]:
    """(unigram, neighbours) loss of each masked target of mlm_15, one at a time."""
    found = []
    for batch in held_out.batches["mlm_15"]:
        for ids, places, labels, kinds in zip(*(batch[n] for n in ("input_ids", "label_positions", "labels", "label_kinds")), strict=True):
            around = [NOTHING if token in (VOCABULARY.mask_id, VOCABULARY.pad_id) else int(token) for token in [*ids, VOCABULARY.pad_id]]
            for place, label in zip(places[kinds == 1], labels[kinds == 1], strict=True):
                beside = slow_probability(store, int(label), around[place - 1], around[place + 1])
                found.append((-np.log(slow_probability(store, int(label), NOTHING, NOTHING)), -np.log(beside)))
    return found


def test_the_baselines_are_those_of_the_masked_targets():
    watch, held_out, course = watch_of()
    unigram, neighbours = np.mean(slow_masked(held_out, course.train), axis=0)
    assert watch.baseline["unigram_loss"] == pytest.approx(unigram)
    assert watch.baseline["neighbour_loss"] == pytest.approx(neighbours) and neighbours < unigram - 1
    assert watch.baseline["plateau_mark"] == pytest.approx(unigram + LEFT_SHARE * (neighbours - unigram))
    assert watch.mark == pytest.approx(watch.baseline["plateau_mark"]), "16 rows are all looked at"
    kinds = np.concatenate([batch["label_kinds"].ravel() for batch in held_out.batches["mlm_15"]])
    assert len(labels_of(watch)) == (kinds == 1).sum() < (kinds > 0).sum(), "a token that is shown can be copied"


def test_every_arm_is_watched_on_the_same_targets():
    first, _, _ = watch_of()
    for arm in (["objective.mask_ratio=0.8", "objective.replace_mix=[1,0,0]"], ["objective=mlm_nsp"], ["objective=rtd"]):
        other, _, _ = watch_of(*arm)
        assert other.baseline == first.baseline and (labels_of(other) == labels_of(first)).all()


def test_few_rows_are_looked_at_in_whole_batches_spread_over_the_split(monkeypatch):
    monkeypatch.setattr(plateau, "ROWS", 5)
    course = make_course(make_config())
    held_out = HeldOut(course.config.objective, course.validation, course.config.max_length, 16, 4)
    watch = PlateauWatch.over(held_out, course.train)
    assert [len(batch["labels"]) for batch in watch.batches] == [4, 4]
    for place, batch in zip((0, 2), watch.batches, strict=True):
        assert (batch["input_ids"] == held_out.batches["mlm_15"][place]["input_ids"]).all()
    assert watch.mark != watch.baseline["plateau_mark"], "of these rows' own targets"


def test_a_recipe_that_never_masks_is_watched_on_its_random_targets():
    """Against all that a predictor could say, one token at a time."""
    watch, held_out, course = watch_of("objective.replace_mix=[0,0.4,0.6]", "objective.mask_ratio=0.3")
    kinds = np.concatenate([batch["label_kinds"].ravel() for batch in held_out.batches[""]])
    random, kept = (kinds == 2).sum() / (kinds > 0).sum(), (kinds == 3).sum() / (kinds > 0).sum()
    assert len(labels_of(watch)) == (kinds == 2).sum()
    losses = []
    for batch in held_out.batches[""]:
        for row, place_of in enumerate(batch["label_positions"]):
            shown = [*batch["input_ids"][row].tolist(), NOTHING]
            shown = [NOTHING if token == VOCABULARY.pad_id else token for token in shown]
            for place, label, kind in zip(place_of, batch["labels"][row], batch["label_kinds"][row], strict=True):
                if kind == 2:
                    pair = []
                    for left, right in ((NOTHING, NOTHING), (shown[place - 1], shown[place + 1])):
                        unseen, seen = (slow_probability(course.train, int(token), left, right) for token in (label, shown[place]))
                        chance = random / len(VOCABULARY.ordinary_ids)
                        all_ways = chance + kept * seen
                        pair.append(-np.log((chance * unseen + (label == shown[place]) * kept * seen) / all_ways))
                    losses.append(pair)
    unigram, neighbours = np.mean(losses, axis=0)
    assert watch.baseline["unigram_loss"] == pytest.approx(unigram) and watch.baseline["neighbour_loss"] == pytest.approx(neighbours)


@pytest.mark.parametrize("objective", ["clm", "span_corruption"])
def test_models_without_probes_are_watched_on_the_text_of_their_own_targets(objective):
    watch, held_out, course = watch_of(f"objective={objective}", *(["model=t5_tiny"] if objective == "span_corruption" else []))
    labels, own = labels_of(watch), held_out.labels("")
    assert (labels == own[(own >= 5) & (own < 60)]).all() and len(labels) < len(own), "neither sentinels nor [SEP]"
    assert 0 < watch.baseline["neighbour_loss"] < watch.baseline["unigram_loss"] - 0.5
    assert watch.has_left(course.module, torch.device("cpu")) is False


def test_where_nothing_is_predicted_nothing_is_watched(tmp_path):
    for arm in (["objective=sop", "objective.mlm_weight=0"], ["objective.replace_mix=[0,0,1]"]):
        assert watch_of(*arm)[0] is None
    assert train(make_config("objective.replace_mix=[0,0,1]"), tmp_path).recorder.plateau == {
        "plateau_left_step": None,
        "left_plateau": None,
    }


@pytest.mark.parametrize("world_size", [1, 3])
def test_a_look_is_the_masked_loss_over_all_ranks(world_size, monkeypatch):
    watch, held_out, course = watch_of()
    loss = evaluate(course.module, held_out, torch.device("cpu"))["probe/mlm_15_masked_loss"]
    for mark, expected in ((loss - 1e-4, False), (loss + 1e-4, True)):
        here = PlateauWatch(watch.baseline, watch.batches, mark)
        sums = []
        for rank in range(world_size):
            ours = {"rank": rank, "world_size": world_size}
            here.has_left(course.module.train(), torch.device("cpu"), **ours, reduce=lambda t, s=sums: s.append(t) or t)
        assert course.module.training
        answer = here.has_left(course.module, torch.device("cpu"), world_size=world_size, reduce=lambda _, s=sums: sum(s))
        assert answer is expected


class Whole(NamedTuple):
    """A run that leaves the plateau, and what each look said."""

    run: Run
    folder: Path
    looks: list[bool]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Whole:
    folder, looks, look = tmp_path_factory.mktemp("whole"), [], PlateauWatch.has_left
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlateauWatch, "has_left", lambda self, *args, **more: looks.append(look(self, *args, **more)) or looks[-1])
        return Whole(train(QUICK_ESCAPE, folder), folder, looks)


def test_the_watch_ends_when_the_plateau_is_left_and_changes_nothing_in_the_run(whole, tmp_path, monkeypatch):
    step = whole.run.recorder.plateau_left_step
    assert step % 5 == 0 and whole.looks == [False] * (step // 5 - 1) + [True], "each fifth of a validation's interval, until it has left"
    assert step < 80 and whole.run.recorder.plateau == {"plateau_left_step": step, "left_plateau": True}
    monkeypatch.setattr(PlateauWatch, "over", classmethod(lambda cls, held_out, train: None))
    alone = train(QUICK_ESCAPE, tmp_path)
    assert bits_of(alone.module.module) == bits_of(whole.run.module.module)
    assert rows_of(tmp_path) == rows_of(whole.folder)


@pytest.mark.parametrize("after", [-7, 7])
def test_a_resumed_run_leaves_at_the_same_step(whole, tmp_path, after):
    """Stopped before it has left and afterwards: found again, or kept and not looked for any more."""
    stop_at = whole.run.recorder.plateau_left_step + after
    stopped = train(QUICK_ESCAPE, tmp_path, SignalAt(stop_at, signal.SIGTERM))
    assert stopped.module.step == stop_at + 1 and stopped.recorder.plateau["left_plateau"] == (after > 0)
    resumed = train(QUICK_ESCAPE, tmp_path)
    assert resumed.recorder.plateau == whole.run.recorder.plateau
    assert bits_of(resumed.module.module) == bits_of(whole.run.module.module)
    assert rows_of(tmp_path) == rows_of(whole.folder)
