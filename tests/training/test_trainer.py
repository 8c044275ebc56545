"""A machine without the devices that are asked for says so before anything is prepared; what asks for none of them imports nothing."""

from __future__ import annotations

import pytest
from lightning.pytorch.accelerators import CUDAAccelerator, MPSAccelerator, XLAAccelerator

from mlm_lab.config import compose
from mlm_lab.errors import UserError


def machine(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    for kind, count in ((CUDAAccelerator, gpus), (MPSAccelerator, 0), (XLAAccelerator, 0)):
        monkeypatch.setattr(kind, "is_available", staticmethod(lambda count=count: count > 0))
        monkeypatch.setattr(kind, "auto_device_count", staticmethod(lambda count=count: count))


MISSING = [
    (0, ["trainer=gpu"], "this machine has no GPU"),
    (0, ["trainer=fsdp", "trainer.devices=8"], "this machine has no GPU"),
    (0, ["trainer=ddp", "trainer.devices=8"], "this machine has no accelerator"),
    (0, ["trainer=tpu"], "this machine has no TPU"),
    (2, ["trainer=tpu"], "this machine has no TPU"),
    (2, ["trainer=ddp", "trainer.devices=8"], "this machine has 2 of the 8 devices"),
]


@pytest.mark.parametrize(("gpus", "words", "told"), MISSING, ids=str)
def test_devices_that_are_missing_are_told(gpus: int, words: list[str], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, gpus)
    with pytest.raises(UserError) as error:
        compose(words).trainer.check_devices()
    assert error.value.problem == told and "trainer." in str(error.value.given)


PRESENT = [
    (0, ["trainer=auto"]),
    (0, ["trainer=cpu"]),
    (0, ["trainer=ddp"]),
    (0, ["trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2"]),
    (8, ["trainer=ddp", "trainer.devices=8"]),
    (8, ["trainer=fsdp"]),
    (1, ["trainer=gpu"]),
]


@pytest.mark.parametrize(("gpus", "words"), PRESENT, ids=str)
def test_devices_that_are_here_pass(gpus: int, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, gpus)
    compose(words).trainer.check_devices()
