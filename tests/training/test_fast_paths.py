"""The switches of trainer.fused_loss, trainer.attention and trainer.activation_checkpointing: they reach the parts, and a run comes to the
same losses either way."""

from __future__ import annotations

import pytest
import torch

from mlm_lab.errors import InvalidFields, UserError
from mlm_lab.models.transformer import Layer, TransformerEncoder
from mlm_lab.models.vocabulary_loss import VocabularyHead
from mlm_lab.training.fast_paths import choose_paths
from tests.training.test_costs import OBJECTIVES
from tests.training.tiny_run import make_config, make_course, train

PLAIN = ("trainer.fused_loss=false", "trainer.attention=sdpa")
FAST = ("trainer.fused_loss=true", "trainer.attention=written_out")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_run_comes_to_the_same_losses_by_either_way(tmp_path, objective):
    runs = [train(make_config(f"objective={objective}", *words), tmp_path / words[0][-4:]) for words in (PLAIN, FAST)]
    plain, fast = (run.recorder.latest for run in runs)
    losses = [name for name in plain if name.endswith("loss")]
    assert "train/loss" in losses and "val/loss" in losses
    for name in losses:
        assert fast[name] == pytest.approx(plain[name], rel=2e-4), name


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_layers_that_are_computed_twice_come_to_the_same_bits(tmp_path, objective, monkeypatch):
    words = [f"objective={objective}", "model.hidden_dropout=0.1"]  # dropout has to be drawn again as it was
    calls, forward = [], Layer.forward
    monkeypatch.setattr(Layer, "forward", lambda self, *inputs: calls.append(1) or forward(self, *inputs))
    plain, single = train(make_config(*words), tmp_path / "plain"), len(calls)
    twice = train(make_config(*words, "trainer.activation_checkpointing=true"), tmp_path / "twice")
    assert len(calls) > 2 * single  # and once more in each step
    for ours, theirs in zip(twice.module.module.parameters(), plain.module.module.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("words", "fused", "written_out"), [(PLAIN, False, False), (FAST, True, True), ((), None, None)])
def test_the_switches_reach_the_parts(tmp_path, words, fused, written_out):
    module = train(make_config("objective=span_corruption", *words, steps=1), tmp_path).module.module
    heads = [part.fused for part in module.modules() if isinstance(part, VocabularyHead)]
    stacks = [part.written_out for part in module.modules() if isinstance(part, TransformerEncoder)]
    assert set(heads) == {fused} and stacks == [written_out] * 2


def test_varlen_is_refused_where_it_does_not_exist(tmp_path):
    with pytest.raises(UserError, match=r"varlen on cpu, precision 32-true"):
        train(make_config("trainer.attention=varlen", steps=1), tmp_path)
    module, settings = make_course(make_config("model.attention_dropout=0.1")).module, make_config("trainer.attention=varlen").trainer
    with pytest.raises(UserError, match=r"attention_dropout 0\.1"):
        choose_paths(module, settings, torch.device("cuda"), "bf16-mixed")


def test_varlen_is_for_encoders():
    pytest.importorskip("torch.nn.attention.varlen")
    module = make_course(make_config("objective=span_corruption", "model=t5_tiny")).module
    choose_paths(module, make_config("trainer.attention=varlen").trainer, torch.device("cuda"), "bf16-mixed")
    assert module.encoder.by_segments and not module.decoder.by_segments


@pytest.mark.parametrize("word", ["fused_loss=perhaps", "attention=flash"])
def test_other_values_are_refused(word):
    with pytest.raises(InvalidFields, match=word.partition("=")[0]):
        make_config(f"trainer.{word}")
