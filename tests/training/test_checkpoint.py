"""Checkpoints: whole or not there, damage is seen, a full disk is told and harms nothing."""

from __future__ import annotations

import resource
import signal

import pytest
import torch
from safetensors.torch import load_file

from mlm_lab.errors import InvalidFields, UserError
from mlm_lab.training import checkpoint
from mlm_lab.training.checkpoint import Checkpointing
from mlm_lab.training.weights import fresh_module, kept_steps, load_weights, save_weights
from tests.training.test_costs import OBJECTIVES
from tests.training.tiny_run import make_config, make_course, train


def state(step: int) -> dict:
    return {"module": {"w": torch.full((1000,), float(step))}, "step": step, "recorder": {"rows": 2, "meter": {"loss": (1.0, 2.0)}}}


@pytest.fixture
def folder(tmp_path):
    for step in (10, 20):
        checkpoint.save(tmp_path, step, state(step), keep=2)
    return tmp_path


def newest(folder):
    return max(folder.glob("*.ckpt"))


def test_the_newest_comes_back(folder):
    loaded = checkpoint.load_last(folder)
    assert loaded["step"] == 20
    assert torch.equal(loaded["module"]["w"], state(20)["module"]["w"])
    assert loaded["recorder"] == state(20)["recorder"]


def test_a_folder_without_checkpoints(tmp_path):
    assert checkpoint.load_last(tmp_path) is None
    assert checkpoint.load_last(tmp_path / "missing") is None


def test_the_last_and_the_one_before_are_kept(folder):
    checkpoint.save(folder, 30, state(30), keep=2)
    assert [path.name[:13] for path in sorted(folder.iterdir())] == ["step-00000020", "step-00000030"]


@pytest.mark.parametrize("damage", ["truncated", "emptied", "flipped bit"])
def test_a_damaged_one_gives_way_to_the_one_before(folder, damage, capsys):
    path = newest(folder)
    content = bytearray(path.read_bytes())
    if damage == "flipped bit":
        content[len(content) // 2] ^= 1
    path.write_bytes(content[: {"truncated": -100, "emptied": 0}.get(damage, len(content))])
    assert checkpoint.load_last(folder)["step"] == 10
    message = capsys.readouterr().err
    assert "step-00000020 is damaged" in message
    assert "using the one before" in message


def test_a_half_written_one_is_no_checkpoint(folder):
    (folder / "step-00000030.tmp").write_bytes(b"half")
    assert checkpoint.load_last(folder)["step"] == 20


@pytest.fixture
def full_disk():
    """Files of this process may not grow beyond 1 MB: writes fail as on a full disk."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_told_and_harms_nothing(folder, full_disk):
    with pytest.raises(UserError, match="the disk is full"):
        checkpoint.save(folder, 30, {"module": torch.zeros(500_000)}, keep=2)
    assert not list(folder.glob("*.tmp"))
    assert checkpoint.load_last(folder)["step"] == 20


def test_weights_that_find_no_room_are_told(tmp_path, full_disk):
    with pytest.raises(UserError, match=r"weights were not written.*\n.*\n.*free some space"):
        save_weights(torch.nn.Linear(1000, 500), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_in_a_checkpoint_can_run_code(folder):
    class Evil:
        def __reduce__(self):
            return print, ("run",)

    checkpoint.save(folder, 40, {"step": Evil()}, keep=2)
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        checkpoint.load_last(folder)


def test_weights_on_the_way_are_kept_for_good(tmp_path):
    config = make_config("checkpoint.keep_weights_at=[0.25,0.5]", "checkpoint.every_steps=4", "checkpoint.keep=3", steps=8)
    train(config, tmp_path)
    assert kept_steps(tmp_path) == [2, 4]
    (file,) = (tmp_path / "checkpoints").glob("step-00000004.*")
    at_step_4 = torch.load(file, weights_only=True)["module"]
    kept = load_file(tmp_path / "weights" / "step-00000004.safetensors")
    assert kept and all(torch.equal(value, at_step_4[name]) for name, value in kept.items())


@pytest.mark.parametrize(("shares", "steps"), [((0.5,), [5]), ((0.01, 0.999), [1]), ((0.1, 0.12), [1]), ((), [])])
def test_shares_of_the_steps(shares, steps):
    """At least one step, and never the last, whose weights are kept anyway; two shares may fall on one step."""
    settings = Checkpointing(every_steps=None, keep=2, keep_weights_at=shares)
    assert [step for step in range(1, 11) if settings.keeps_weights_at(step, 10)] == steps


def test_a_share_outside_of_the_run_is_refused():
    with pytest.raises(InvalidFields, match="keep_weights_at"):
        Checkpointing(every_steps=None, keep=2, keep_weights_at=(0.5, 1.0))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_same_weights_have_the_same_digest_and_come_back(tmp_path, objective):
    """Tied matrices too: which of their names is written must not depend on the process."""
    config = make_config(f"objective={objective}")
    module = make_course(config).module
    assert len({save_weights(module, tmp_path / str(number)) for number in range(6)}) == 1
    again = fresh_module(make_config(f"objective={objective}", "seeds.init=1"), make_course(config).train.vocabulary)
    load_weights(again, tmp_path / "0")
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in again.state_dict().items())
