"""The pretrain and plan stages on a prepared corpus, through the same door as the command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mlm_lab.config import compose
from mlm_lab.errors import Interrupted, UserError
from mlm_lab.run_folder import RunFolder
from mlm_lab.stages import plan, prepare, pretrain
from mlm_lab.training import estimate

WORDS = [
    "the",
    "a",
    "model",
    "layer",
    "token",
    "mask",
    "value",
    "list",
    "returns",
    "takes",
    "sets",
    "reads",
    "of",
    "in",
    "with",
    "from",
    "is",
]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """400 documents of sentences that follow a pattern."""
    folder = tmp_path_factory.mktemp("corpus")
    text = []
    for number in range(400):
        words = [WORDS[(number * 7 + place * (number % 3 + 1)) % len(WORDS)] for place in range(14)]
        text.append(f"The {' '.join(words)}. It {' '.join(words[::-1])}.")
    (folder / "text.txt").write_text("\n\n".join(text), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def words(corpus) -> list[str]:
    """Overrides of a tiny run; the cache is shared by all tests of this file."""
    return [
        "data=text",
        f"data.files={corpus}/text.txt",
        f"cache_dir={corpus}/cache",
        "tokenizer.vocab_size=300",
        "tokenizer.num_sentinels=0",
        "model.hidden_size=32",
        "model.intermediate_size=64",
        "trainer=cpu",
        "trainer.precision=32-true",
        "max_length=32",
        "batch_size=8",
        "budget.steps=12",
        "validation.sequences=16",
        "stages=[pretrain]",
    ]


def run(words: list[str], folder: Path) -> dict:
    config, run_folder = compose(words), RunFolder(folder)
    pretrain.run(config, run_folder)
    return run_folder.read_summary()


def test_a_run_folder_is_complete(words, tmp_path, capsys):
    summary = run(words, tmp_path)
    assert summary["steps"] == summary["budget_steps"] == 12
    assert 0 < summary["tokens"] < summary["positions"] <= 12 * 8 * 32
    assert summary["supervised_positions"] == pytest.approx(0.15 * summary["tokens"], rel=0.25)  # rows of 16: 2 of 2.4
    assert 0 < summary["flops"]["head"] < summary["flops"]["total"]
    assert summary["parameters"]["encoder"] < summary["parameters"]["total"]
    assert len(summary["weights_sha256"]) == 64
    assert set(summary["fingerprints"]) == {"corpus", "tokenizer", "store"}
    assert summary["seconds"] > 0 < summary["peak_memory_bytes"]
    for name in ("val/loss", "probe/mlm_15_loss", "probe/mlm_40_masked_loss", "unigram_loss", "neighbour_loss", "train/loss"):
        assert summary["metrics"][name] > 0
    assert summary["metrics"]["left_plateau"] is False and summary["metrics"]["plateau_left_step"] is None
    assert {"weights.safetensors", "tokenizer.json", "metrics.csv", "summary.json", "checkpoints"} <= {p.name for p in tmp_path.iterdir()}
    shown = capsys.readouterr().out
    for text in ("12 steps", "parameters", "FLOPs", "about", "DID NOT LEAVE", "neighbouring", "kept", "Fill-mask", "top 5", "[MASK]"):
        assert text in shown, text


def test_a_finished_run_returns_at_once(words, tmp_path, capsys, monkeypatch):
    before = run(words, tmp_path)
    capsys.readouterr()
    monkeypatch.setattr(pretrain, "prepare", None)  # must not be needed
    assert run(words, tmp_path) == before
    shown = capsys.readouterr().out
    assert "pretraining is finished" in shown
    assert "probe/mlm_15" in shown


def test_lost_weights_are_written_again_from_the_last_checkpoint(words, tmp_path):
    before = run(words, tmp_path)
    (tmp_path / "weights.safetensors").write_bytes(b"damaged")
    after = run(words, tmp_path)
    assert after["weights_sha256"] == before["weights_sha256"]
    assert after["metrics"] == before["metrics"]


def test_the_same_config_gives_the_same_hash(words, tmp_path):
    first, second = run(words, tmp_path / "a"), run(words, tmp_path / "b")
    timings = {"train/tokens_per_second", "train/flops_per_second", "train/ceiling_share"}
    assert first["weights_sha256"] == second["weights_sha256"]
    assert {k: v for k, v in first["metrics"].items() if k not in timings} == {
        k: v for k, v in second["metrics"].items() if k not in timings
    }
    assert run([*words, "seed=1"], tmp_path / "c")["weights_sha256"] != first["weights_sha256"]


def test_an_interrupted_run_says_with_which_code_and_resumes(words, tmp_path, monkeypatch):
    from mlm_lab.training.module import Pretraining

    whole = run(words, tmp_path / "whole")
    step = Pretraining.training_step

    def stop_at_five(self, batch, batch_idx):
        if self.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        step(self, batch, batch_idx)

    monkeypatch.setattr(Pretraining, "training_step", stop_at_five)
    with pytest.raises(Interrupted) as stopped:
        run(words, tmp_path / "parts")
    assert stopped.value.exit_code == 143
    assert RunFolder(tmp_path / "parts").read_summary()["steps"] == 6
    monkeypatch.undo()
    assert run(words, tmp_path / "parts")["weights_sha256"] == whole["weights_sha256"]


def test_a_resumed_run_announces_the_threads_and_the_time_that_it_has(words, tmp_path, monkeypatch, capsys):
    import torch

    from mlm_lab.training.module import Pretraining

    threads = torch.get_num_threads()
    step = Pretraining.training_step

    def stop_at_two(self, batch, batch_idx):
        if self.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        step(self, batch, batch_idx)

    try:
        torch.set_num_threads(2)
        with monkeypatch.context() as changed, pytest.raises(Interrupted):
            changed.setattr(Pretraining, "training_step", stop_at_two)
            run(words, tmp_path)
        torch.set_num_threads(1)
        capsys.readouterr()
        monkeypatch.setattr(Pretraining, "seconds_per_step", None)  # a copy may have no room beside a restored optimiser
        run(words, tmp_path)
    finally:
        torch.set_num_threads(threads)
    shown = capsys.readouterr().out
    assert "threads 2" in shown and re.search(r"time +about .* \([\d.e-]+ s a step, 9 steps are left\)", shown)


def test_weights_of_another_vocabulary_are_refused(words, tmp_path, monkeypatch):
    """Of the same size: every row of the embeddings would be another token."""
    run(words, tmp_path / "first")
    run([*words, f"pretrained={tmp_path / 'first'}"], tmp_path / "second")
    words = [word.replace("vocab_size=300", "vocab_size=299") for word in words]  # the same rows once padded
    with pytest.raises(UserError, match="the same ids are other pieces"):
        run([*words, f"pretrained={tmp_path / 'first'}", "tokenizer=wordpiece", "tokenizer.lowercase=false"], tmp_path / "third")


def test_another_text_than_the_checkpoint_is_refused(words, corpus, tmp_path):
    """traps 25: numbers of different tokenizers or texts must not meet in one run."""
    run([*words, "budget.steps=2"], tmp_path)
    (tmp_path / "weights.safetensors").unlink()
    with pytest.raises(UserError, match="another token store"):
        run([*words, "budget.steps=2", "tokenizer.lowercase=false"], tmp_path)


def test_what_would_fail_later_is_refused_beforehand(words, tmp_path):
    too_long = compose([*words, "model.positions=learned", "model.max_positions=16"])
    no_weights = compose([*words, f"pretrained={tmp_path}"])
    for stage in (pretrain, plan):
        with pytest.raises(UserError, match="too few learned positions"):
            stage.check(too_long)
        with pytest.raises(UserError, match="no weights"):
            stage.check(no_weights)
        with pytest.raises(UserError, match="no such file"):
            stage.check(compose([*words, "data.files=nothing.txt"]))


def test_hours_are_measured_once_and_frozen(words, tmp_path, monkeypatch):
    from mlm_lab.training.module import Pretraining

    monkeypatch.setattr(Pretraining, "seconds_per_step", lambda self, *enough: 0.36)
    words = in_hours(words, tmp_path)
    found = run(words, tmp_path / "one")
    assert found["budget_steps"] == 5 and found["step_time"]["seconds"] == 0.36
    (tmp_path / "one" / "weights.safetensors").unlink()
    monkeypatch.setattr(Pretraining, "seconds_per_step", lambda self, *enough: 0.001)
    shutil.rmtree(tmp_path / "step_times")
    assert run(words, tmp_path / "one")["budget_steps"] == 5


def in_hours(words: list[str], output_dir: Path) -> list[str]:
    return [*(word for word in words if not word.startswith("budget")), "budget.hours=0.0005", f"output_dir={output_dir}"]


def test_seeds_and_rates_of_an_arm_get_the_same_steps(words, tmp_path, monkeypatch):
    """The machine did other work when the second run began; a run of other steps is measured on its own."""
    from mlm_lab.training.module import Pretraining

    words = in_hours(words, tmp_path)
    for seconds, word, steps in (
        (0.36, "seed=1", 5),
        (0.18, "seed=2", 5),
        (0.18, "optim.peak_lr=0.003", 5),
        (0.18, "objective.mask_ratio=0.3", 10),
        (0.09, "batch_size=2", 20),
        (0.01, "objective.mask_ratio=0.3", 10),
    ):
        monkeypatch.setattr(Pretraining, "seconds_per_step", lambda self, *enough, seconds=seconds: seconds)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        assert run([*words, word], tmp_path / "run")["budget_steps"] == steps, word


def test_hours_are_measured_on_the_module_as_it_will_compute(words, tmp_path, monkeypatch):
    from mlm_lab.models.transformer import TransformerEncoder
    from mlm_lab.training.module import Pretraining

    seen = []

    def measured(self, *enough: float) -> float:
        (encoder,) = (part for part in self.module.modules() if isinstance(part, TransformerEncoder))
        seen.append((encoder.recomputes, encoder.written_out, self.module.static_shapes))
        return 0.36

    monkeypatch.setattr(Pretraining, "seconds_per_step", measured)
    words = in_hours(words, tmp_path)
    run([*words, "trainer.activation_checkpointing=true", "trainer.attention=sdpa", "trainer.static_shapes=true"], tmp_path)
    assert seen[0] == (True, False, True)


def test_a_run_may_start_from_another(words, tmp_path):
    first = run(words, tmp_path / "first")
    second = run([*words, f"pretrained={tmp_path / 'first'}"], tmp_path / "second")
    assert second["metrics"]["val/loss"] < first["metrics"]["val/loss"]
    with pytest.raises(UserError, match="weights"):
        run([*words, f"pretrained={tmp_path}"], tmp_path / "third")
    with pytest.raises(UserError, match="of another model"):
        run([*words, "model.num_layers=3", f"pretrained={tmp_path / 'first'}"], tmp_path / "fourth")


def test_a_sweep_of_the_plan_needs_no_training(words, tmp_path, capsys):
    plan.run(compose(words), RunFolder(tmp_path))
    shown = capsys.readouterr().out
    for text in ("parameters", "steps", "12", "epochs", "FLOPs", "GiB"):
        assert text in shown
    time = next(line for line in shown.splitlines() if line.startswith("time"))
    assert "s a step" in time and "on one cpu" in time
    assert not list(tmp_path.iterdir())


def test_the_plan_of_bert_at_the_papers_size_comes_from_shapes(words, tmp_path, capsys, monkeypatch):
    """1,000,000 steps of 256 rows of 128, then 512, from a corpus of a few hundred sentences; a machine may have no room to time it."""
    monkeypatch.setattr(estimate, "BYTES_A_PARAMETER", 1e9)
    corpus = [word for word in words if word.startswith(("data", "cache_dir", "tokenizer"))]
    for phases, positions in (([], "4.26e10"), (["length_phases=null"], "1.31e11")):
        plan.run(compose(["+experiment=bert", *corpus, *phases]), RunFolder(tmp_path))
        shown = capsys.readouterr().out
        assert next(line.split()[1] for line in shown.splitlines() if line.startswith("positions")) == positions
        assert ("900,000" in shown) == (not phases)
        assert "true continuation" in shown, "the balance of the pairs"
        assert "not measured: the model does not fit" in shown


def test_a_corpus_that_cannot_serve_the_objective_is_refused_when_it_is_prepared(words, tmp_path, capsys):
    """traps 16."""
    (tmp_path / "one.txt").write_text("One sentence. Another one. And a third.\n", encoding="utf-8")
    alone = [f"data.files={tmp_path}/one.txt" if word.startswith("data.files") else word for word in words]
    with pytest.raises(UserError):
        prepare.run(compose([*alone, f"cache_dir={tmp_path}/cache", "objective=mlm_nsp"]), RunFolder(tmp_path / "run"))
    prepare.run(compose([*words, "objective=mlm_nsp"]), RunFolder(tmp_path / "run"))
    assert "true continuation" in capsys.readouterr().out


def test_only_training_imports_lightning():
    """Importing it takes seconds: loading weights, planning and configs must not."""
    names = "mlm_lab.training.weights, mlm_lab.training.course, mlm_lab.stages.plan, mlm_lab.stages.pretrain"
    code = f"import sys, {names}; print('lightning' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_wandb_is_offline_without_a_key(words, tmp_path, monkeypatch):
    """The run folder's id names the run, and the record stays in the run folder."""
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    run([*words, "logger=wandb", "budget.steps=3"], tmp_path)
    recorded = list(tmp_path.glob("wandb/offline-run-*"))
    assert len(recorded) == 1
    assert recorded[0].name.endswith(tmp_path.name)
    assert json.loads((tmp_path / "summary.json").read_text())["steps"] == 3
