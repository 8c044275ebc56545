"""Steps whose gradient is not finite: no update, no number in any mean, no wait for the device; and an end after many in a row."""

from __future__ import annotations

import json
from contextlib import ExitStack
from unittest.mock import patch

import lightning
import numpy as np
import pytest
import torch

from mlm_lab.corruption.draws import Draws
from mlm_lab.errors import Diverged
from mlm_lab.training import recorder
from mlm_lab.training.finite import step_where
from mlm_lab.types import ExampleKeys
from tests.training.test_costs import OBJECTIVES
from tests.training.test_training import bits_of, rows_of
from tests.training.tiny_run import make_config, train

EVERY_STEP = "trainer.log_every_steps=1"


class Poison(lightning.Callback):
    """A gradient that is not finite, in these steps (from 0)."""

    def __init__(self, *steps: int, value: float = float("nan")):
        self.steps, self.value = steps, value

    def on_after_backward(self, trainer, module):
        if module.step in self.steps:
            next(p for p in module.parameters() if p.grad is not None).grad.view(-1)[3] = self.value


class NoUpdate(lightning.Callback):
    """The same run with an optimiser that is left out in these steps."""

    def __init__(self, *steps: int):
        self.steps = steps

    def on_before_optimizer_step(self, trainer, module, optimizer):
        if module.step in self.steps:
            for p in module.parameters():
                p.grad = None


def world(fused: bool) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Linear(4, 3)
    return module, torch.optim.AdamW(module.parameters(), lr=0.1, fused=fused)


def steps(fused: bool, finite: list[bool]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Weights and moments after one step for each, where a gradient that is not finite is nan."""
    module, optimizer = world(fused)
    for number, is_finite in enumerate(finite):
        for p in module.parameters():
            p.grad = torch.full_like(p, float(number + 1) if is_finite else float("nan"))
        step_where(optimizer, torch.tensor(is_finite))
    return list(module.parameters()), [value for state in optimizer.state.values() for value in state.values()]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("finite", [[True, False, True], [False, True, True], [True, True, False]])
def test_weights_moments_and_counts_stay_where_a_step_is_skipped(fused, finite):
    found = steps(fused, finite)
    module, optimizer = world(fused)
    for number, is_finite in enumerate(finite):
        if is_finite:
            for p in module.parameters():
                p.grad = torch.full_like(p, float(number + 1))
            optimizer.step()
    expected = list(module.parameters()), [value for state in optimizer.state.values() for value in state.values()]
    for a, b in zip(found, expected, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_skipped_step_is_counted_told_and_in_no_mean(tmp_path, capsys, value):
    config = make_config(EVERY_STEP, steps=6)
    run = train(config, tmp_path / "poisoned", Poison(2, value=value))
    left_out = train(config, tmp_path / "left_out", NoUpdate(2))
    assert bits_of(run.module.module) == bits_of(left_out.module.module)
    assert run.module.skipped.total == 1
    rows = rows_of(tmp_path / "poisoned")
    assert [row.get("train/skipped_steps", 0) for row in rows] == [0, 0, 1, 0, 0, 0]
    assert "train/loss" not in rows[2] and "train/gradient_norm" not in rows[2] and rows[2]["train/supervision_density"] == 0
    assert all(np.isfinite(list(row.values())).all() for row in rows)
    assert "no update in step 3" in capsys.readouterr().err


def test_a_mean_over_several_steps_is_that_of_those_that_were_taken(tmp_path):
    train(make_config("trainer.log_every_steps=3", steps=3), tmp_path / "three", Poison(1))
    train(make_config(EVERY_STEP, steps=3), tmp_path / "single", Poison(1))
    row, single = rows_of(tmp_path / "three")[-1], rows_of(tmp_path / "single")
    counts = [single[number]["train/supervised_positions"] for number in (0, 2)]
    mean = sum(count * single[number]["train/loss"] for count, number in zip(counts, (0, 2), strict=True)) / sum(counts)
    assert row["train/loss"] == pytest.approx(mean, rel=1e-6) and row["train/skipped_steps"] == 1


def test_a_resumed_run_tells_of_the_same_steps(tmp_path):
    """A step is skipped between a row and a checkpoint."""
    config = make_config("trainer.log_every_steps=5", "checkpoint.every_steps=4", steps=10)

    class Killed(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if module.step == 9:
                raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(config, tmp_path / "parts", Poison(6), Killed())
    train(config, tmp_path / "parts", Poison(6))
    train(config, tmp_path / "whole", Poison(6))
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")
    assert rows_of(tmp_path / "whole")[-1]["train/skipped_steps"] == 1


def test_many_in_a_row_end_the_run_with_their_examples_and_a_state_to_resume(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "IN_A_ROW", 3)
    config = make_config("trainer.log_every_steps=2", "checkpoint.every_steps=3", "objective.mask_ratio=0.3", steps=12)
    with pytest.raises(Diverged, match=r"not finite: 4 steps in a row(.|\n)*peak_lr") as error:
        train(config, tmp_path / "parts", Poison(*range(4, 12)))
    assert str(tmp_path / "parts/nonfinite.json") in str(error.value)
    content = json.loads((tmp_path / "parts/nonfinite.json").read_text())
    assert [entry["step"] for entry in content["steps"]] == [4, 5, 6, 7]

    whole = train(config, tmp_path / "whole")
    course, seed = whole.module.course, content["seeds"]["corruption"]
    dataset = course.dataset(content["total_steps"])
    for entry in content["steps"]:  # the examples come again from their keys alone
        draws = Draws(seed=seed, split=entry["split"])
        plan = config.objective.plan(course.train, entry["max_length"], draws)
        keys = ExampleKeys(*(np.array(entry[name]) for name in ("position", "epoch", "index")))
        batch = config.objective.make_batch(course.train, plan, keys)
        assert all(np.array_equal(batch[name], array) for name, array in dataset[entry["step"]][0].items())

    resumed = train(config, tmp_path / "parts")
    left_out = train(config, tmp_path / "left_out", NoUpdate(4, 5))  # the checkpoint of step 6 is from after two of them
    assert resumed.module.step == 12 and bits_of(resumed.module.module) == bits_of(left_out.module.module)


def test_a_run_does_not_end_in_a_step_that_was_skipped(tmp_path):
    with pytest.raises(Diverged, match="not finite: 1 steps in a row"):
        train(make_config(steps=4), tmp_path, Poison(3))


WAITS = ("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "cpu", "numpy", "nonzero")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_step_waits_for_the_device(tmp_path, objective):
    """What would make the host wait for a GPU, or an XLA graph be cut in two, does not happen between rows, finite or not."""
    from mlm_lab.training.module import Pretraining

    original = Pretraining.training_step

    def guarded(self, batch, batch_idx):
        def refuse(*_, **__):
            raise AssertionError("the step looks at a value")

        with ExitStack() as patches:
            for name in WAITS:
                patches.enter_context(patch.object(torch.Tensor, name, refuse))
            original(self, batch, batch_idx)

    with patch.object(Pretraining, "training_step", guarded):
        words = [f"objective={objective}", "trainer.log_every_steps=4", "trainer.micro_batch_size=4"]
        words += ["trainer.static_shapes=true", "trainer.fused_loss=false"]  # what auto comes to on a GPU
        run = train(make_config(*words, steps=4), tmp_path, Poison(1))
    assert run.module.skipped.total == 1
