"""What an XLA device needs, without one: operations are logged in place of being recorded, and a step leaves none of them open. The check
with XLA itself is tests/strategies/xla_check.py."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mlm_lab.errors import UserError
from mlm_lab.optim.adamw import AdamW
from mlm_lab.training import finite, metrics, validation, xla
from mlm_lab.training import module as training_module
from mlm_lab.training.metrics import Meter
from mlm_lab.training.trainer import _precision, make_fabric
from mlm_lab.types import Output
from tests.training.test_costs import OBJECTIVES
from tests.training.tiny_run import make_config, make_course, train

XLA, CPU = torch.device("xla", 0), torch.device("cpu")


class Log(TorchDispatchMode):
    """Names of the operations, and marks between them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if not str(function).startswith("profiler"):
            self.names.append(str(function))
        return function(*arguments, **(keywords or {}))

    def mark(self, *_: object) -> None:
        self.names.append("closed")

    @property
    def open(self) -> list[str]:
        """After the last mark."""
        return self.names[len(self.names) - self.names[::-1].index("closed") :]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_step_ends_with_the_optimiser_s(tmp_path, monkeypatch, objective):
    """There Lightning closes it: what is computed later would be part of the next step, and make of it another graph whenever somebody has
    looked at a sum in between."""
    log, seen = Log(), []

    def unfused(self, module):
        return torch.optim.AdamW(module.parameters(), lr=1e-3, foreach=False)

    def step_where(optimizer, is_finite):
        step = optimizer.step
        optimizer.step = lambda: (step(), log.mark())
        finite.step_where(optimizer, is_finite)

    original = training_module.Pretraining.training_step

    def training_step(self, batch, batch_idx):
        with log:
            original(self, batch, batch_idx)
        seen.append(log.open)

    monkeypatch.setattr(AdamW, "build", unfused)
    monkeypatch.setattr(training_module, "step_where", step_where)
    monkeypatch.setattr(training_module.Pretraining, "training_step", training_step)
    train(make_config(f"objective={objective}", steps=2), tmp_path)
    assert seen == [[], []]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_running_sum_of_truth_values(objective):
    """XLA's stays bool where torch's counts: span_corruption's gaps were in wrong places there."""
    course, summed = make_course(make_config(f"objective={objective}")), []

    class Sums(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            if "cumsum" in str(function):
                summed.append(arguments[0].dtype)
            return function(*arguments, **(keywords or {}))

    course.module.static_shapes = True
    with Sums():
        course.module(course.sample_batch())
    assert torch.bool not in summed
    assert summed or objective != "span_corruption", "it is looked at where there are some"


def test_a_fetch_leaves_nothing_open(monkeypatch):
    meter, log = Meter(), Log()
    monkeypatch.setattr(metrics, "close_step", log.mark)
    for value in (1.0, 2.0):
        meter.add("loss:mlm", torch.tensor(value), torch.tensor(2), torch.tensor(True))
    with log:
        assert meter.fetch(lambda sums: sums) == {"loss:mlm": (3.0, 4.0)}
    assert log.open == []


def test_each_held_out_batch_is_closed_by_itself(monkeypatch):
    """Or all of them would be one graph, which grows with validation.sequences."""
    log, course = Log(), make_course(make_config())
    monkeypatch.setattr(xla, "close_step", log.mark)
    course.module.forward = lambda batch: log.names.append("forward") or Output({"mlm": torch.zeros(())}, {})
    held_out = validation.HeldOut(course.config.objective, course.validation, 32, sequences=20, batch_size=8)
    validation.measure(course.module, held_out.batches[""], CPU, rank=0, world_size=1, reduce=lambda sums: sums, context=torch.no_grad)
    assert log.names == ["forward", "closed"] * 3


def test_calibration_closes_its_steps_before_it_waits(monkeypatch):
    from mlm_lab.training import calibration

    calls, course = [], make_course(make_config())
    monkeypatch.setattr(calibration, "close_step", lambda device: calls.append("closed"))
    monkeypatch.setattr(calibration, "clip_gradient", lambda *_: SimpleNamespace(item=lambda: calls.append("waited")))
    batches = {"device": CPU, "micro_batch_size": None, "context": torch.no_grad, "enough_seconds": 0.0}
    monkeypatch.setattr(calibration, "accumulate_gradients", lambda *_, **__: None)
    calibration.seconds_per_step(course.module, course.config.optim, lambda step: course.sample_batch(), **batches)
    assert calls == ["closed", "waited"] * 2


def test_the_device_s_own_generator_is_seeded_and_its_steps_are_closed(monkeypatch):
    calls = []
    library = SimpleNamespace(manual_seed=lambda key: calls.append(key), sync=lambda: calls.append("sync"))
    monkeypatch.setitem(sys.modules, "torch_xla", library)
    for device in (CPU, XLA):
        with torch.random.fork_rng(devices=[]):
            xla.seed_generators(5, device)
            assert torch.initial_seed() == 5
        xla.close_step(device)
    assert calls == [5, "sync"]


def test_a_step_seeds_the_generators_of_its_device(tmp_path, monkeypatch):
    seeded = []
    monkeypatch.setattr(training_module, "seed_generators", lambda key, device: seeded.append((key, device)))
    train(make_config(steps=2), tmp_path)
    assert len({key for key, _ in seeded}) == 2 and {device for _, device in seeded} == {CPU}


class Plain:
    """Stands for Lightning's XLAPrecision, which cannot be made without torch_xla."""

    def __init__(self, precision: str):
        assert precision == "32-true"


def test_a_tpu_multiplies_in_bfloat16_beside_float32_weights(monkeypatch):
    """trainer=tpu says precision auto, which is bf16-mixed; Lightning's XLAPrecision refuses that name."""
    contexts = []
    monkeypatch.setattr(torch, "autocast", lambda *given, **named: contexts.append((given, named)))
    (plugin,) = _precision(make_config("trainer=tpu", "trainer.precision=auto").trainer, Plain)["plugins"]
    plugin.forward_context()
    assert isinstance(plugin, Plain) and plugin.precision == "bf16-mixed"
    assert contexts == [(("xla",), {"dtype": torch.bfloat16})]
    assert _precision(make_config("trainer=tpu", "trainer.precision=32-true").trainer, Plain) == {"precision": "32-true", "plugins": None}
    assert _precision(make_config().trainer, Plain) == {"precision": "32-true", "plugins": None}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize("trainer", ["tpu", "gpu"])
def test_a_device_that_is_not_here(tmp_path, trainer):
    config = make_config(f"trainer={trainer}")
    for make in (lambda: train(config, tmp_path), lambda: make_fabric(config.trainer)):
        with pytest.raises(UserError, match=f"cannot run that trainer(.|\n)*trainer.accelerator={trainer}(.|\n)*trainer=auto"):
            make()
