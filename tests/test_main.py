"""`python -m mlm_lab`: what it answers, how fast it can (what it imports), and what each mistake of a user's gets."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import pytest

from mlm_lab import __main__
from mlm_lab.errors import Diverged, Interrupted, UserError
from mlm_lab.run_folder import RunFolder

REPOSITORY = Path(__file__).resolve().parents[1]
HEAVY = {"torch", "lightning", "transformers", "datasets", "torchmetrics", "wandb", "numpy"}


@pytest.fixture(autouse=True)
def _keep_signal_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLM_LAB_CACHE", str(folder / "cache"))
    return folder


def call(*words: str, **environment: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=env)


MISTAKES = [
    (["modle=tiny"], "modle=tiny: no such key; did you mean model?"),
    (["objective.mask_ration=0.4"], "did you mean objective.mask_ratio?"),
    (["mask_ratio=0.4"], "did you mean objective.mask_ratio?"),
    (["+objective.extra=1"], "+objective.extra=1: no such key"),
    (["model=tinny"], "model=tinny: no such option; did you mean tiny?"),
    (["objective=mml"], "objective=mml: no such option; did you mean mlm?"),
    (["+experiment=no_such_one"], "+experiment=no_such_one: no such option"),
    (["arm=no_such_one"], "arm=no_such_one: no such option ("),
    (["evaluation.tasks=[colla]"], "no such task as colla; did you mean cola?"),
    (["evaluation.tasks=[my-own]", "evaluation.files={my-own: x.csv}"], "letters, digits and _ only"),
    (["evaluation.tasks=[mine]", "evaluation.files.mine=no/such.csv"], "evaluation.files.mine=no/such.csv"),
    (["task.cola.epochs=3"], "cola is not in evaluation.tasks"),
    (["objective.mask_ratio=1.5"], "objective.mask_ratio=1.5: must be "),
    (["objective.mask_ratio=high"], "objective.mask_ratio='high': must be a number"),
    (["objective.replace_mix=[0.5,0.1,0.1]"], "objective.replace_mix=[0.5, 0.1, 0.1]: must be "),
    (["objective.replace_mix=[1,0]"], "objective.replace_mix=[1, 0]: must be a list of 3"),
    (["batch_size=0"], "batch_size=0: must be at least 1"),
    (["batch_size=2.5"], "batch_size=2.5: must be a whole number"),
    (["max_length=null"], "max_length=None: must be a whole number"),
    (["seed=-1"], "seed=-1: must be at least 0"),
    (["stages=[prepare,train]"], "stages=['prepare', 'train']: must be a list of "),
    (["trainer.precision=half"], "trainer.precision='half': must be "),
    (["trainer.compile=1"], "trainer.compile=1: must be true or false"),
    (["budget.steps=0"], "budget.steps=0: must be greater than 0"),
    (["budget.tokens=null"], "exactly one of the four"),
    (["budget.steps=1", "budget.hours=1"], "two budgets are given"),
    (["model._target_=os.system"], "this _target_ is not one that a config may name"),
    (["seed=1,2"], "several values need -m"),
    (["model=tiny,mini"], "several options need -m"),
    (["seed"], "these words cannot be read"),
    (["tags=[a"], "these words cannot be read"),
    (["--no-such-option"], "unrecognized arguments: --no-such-option"),
    (["--cfg", "hydra"], "invalid choice: 'hydra'"),
    (["--help", "modell"], "given:   modell"),
    (["--help", "model=tinny"], "allowed: base, large"),
    (["--help", "objective=rdt"], "did you mean rtd?"),
    (["study=../x"], "study='../x': must be a name"),
    (["--config-dir", "no/such"], "there is no such folder"),
    (["cache_dir=${nowhere}"], "the config cannot be composed: Interpolation key 'nowhere' not found"),
    (["-m", "seed=0,1", "modle=tiny"], "did you mean model?"),
    (["-m", "batch_size=0,1"], "batch_size=0: must be at least 1"),
]


@pytest.mark.parametrize(("words", "expected"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_gets_a_few_lines_and_exit_code_2_and_writes_nothing(
    words: list[str], expected: str, empty_folder: Path, capfd: pytest.CaptureFixture
) -> None:
    assert __main__.main(words) == 2
    out, err = capfd.readouterr()
    assert out == "" and expected in err
    assert err.startswith("error: ") and "Traceback" not in err and len(err.splitlines()) <= 12
    assert list(empty_folder.iterdir()) == []


def test_a_mistake_is_told_so_in_a_process_of_its_own_too(empty_folder: Path) -> None:
    result = call("-m", "mlm_lab", "batch_size=0", "objective.mask_ratio=2", "modle=x")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: not in the config:\n  modle=x: no such key; did you mean model?\n")
    assert list(empty_folder.iterdir()) == []


def test_a_long_error_is_cut(capsys: pytest.CaptureFixture) -> None:
    assert __main__._tell("\n".join(map(str, range(40))), 2) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10 and lines[-1] == "  ... and 31 lines more"


# ---- start-up


def imported_by(*words: str) -> set[str]:
    """Top-level modules that the command imports."""
    result = call("-X", "importtime", "-m", "mlm_lab", *words)
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in result.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize("words", [["--help"], ["--cfg", "job"], ["modle=x"], ["model=x"], ["+experiment=x"]], ids=" ".join)
def test_help_the_config_and_unknown_words_are_answered_without_what_computes(words: list[str], empty_folder: Path) -> None:
    imported = imported_by(*words)
    assert "mlm_lab" in imported and imported.isdisjoint(HEAVY)
    if words == ["--help"]:
        assert "hydra" not in imported


def test_a_range_error_is_answered_without_torch(empty_folder: Path) -> None:
    imported = imported_by("batch_size=0", "evaluation.tasks=[cola,pydocs_odd_word,conll2003]")
    assert imported.isdisjoint(HEAVY - {"numpy"})


def test_the_public_names_are_lazy() -> None:
    code = "import sys, mlm_lab; assert 'hydra' not in sys.modules; from mlm_lab import RunConfig, compose, run; print(callable(run))"
    assert call("-c", code).stdout == "True\n"


# ---- help


def test_help_shows_every_group_option_and_key(capsys: pytest.CaptureFixture) -> None:
    assert __main__.main(["--help"]) == 0
    text = capsys.readouterr().out
    for path in (REPOSITORY / "conf").glob("*/*.yaml"):
        header = next(line for line in path.read_text().splitlines() if line.startswith("# ") and "@package" not in line)
        assert any(path.stem in line.split() and header[2:] in line for line in text.splitlines()), path
    for key in ["max_length", "batch_size", "budget", "seeds", "stages", "output_dir", "cache_dir"]:
        assert f"\n  {key}:" in text
    assert "_target_" not in text
    for door in ("mlm_lab", "mlm_lab.sweep", "mlm_lab.report", "mlm_lab.export"):
        assert f"\n  python -m {door} " in text
        assert (REPOSITORY / door.replace(".", "/") / "__main__.py").exists()


def test_help_of_a_group_shows_its_keys_with_what_they_mean(capsys: pytest.CaptureFixture) -> None:
    assert __main__.main(["--help", "trainer=cpu"]) == 0
    text = capsys.readouterr().out
    assert "trainer.accelerator=cpu\n    auto, cpu, gpu, tpu, mps: Lightning's names.\n" in text
    assert __main__.main(["--help", "task=cola"]) == 0
    assert "task.cola.epochs=null\n    Passes over the training examples.\n" in capsys.readouterr().out


def test_the_config_is_printed_as_it_would_be_kept(capsys: pytest.CaptureFixture) -> None:
    import yaml

    assert __main__.main(["--cfg", "job", "seed=3", "budget.steps=5", "evaluation.tasks=[rte]"]) == 0
    values = yaml.safe_load(capsys.readouterr().out)
    assert values["seeds"] == {"init": 3, "order": 3, "corruption": 3, "finetune": 3}
    assert values["budget"]["tokens"] is None and list(values["task"]) == ["rte"]


def test_a_reader_that_has_gone_is_no_traceback() -> None:
    command = f"{sys.executable} -m mlm_lab --help | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=REPOSITORY)
    assert result.stderr == "" and result.stdout.startswith("python -m mlm_lab")


# ---- running


class Stages:
    """Stand-ins for the three stages that note what they were called with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.calls: list[tuple[str, object]] = []
        self.failure: BaseException | None = None
        for name in ("prepare", "pretrain", "evaluate"):
            module = ModuleType(f"mlm_lab.stages.{name}")
            module.run = lambda config, folder, name=name: self._run(name, config, folder)
            monkeypatch.setitem(sys.modules, module.__name__, module)

    def _run(self, name: str, config: object, folder: object) -> None:
        self.calls.append((name, config))
        if name == "pretrain" and self.failure is not None:
            raise self.failure
        folder.update_summary(steps=3)


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    return Stages(monkeypatch)


RUN = ["trainer.precision=32-true", "output_dir=out"]


def summaries(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("out/*/summary.json"))]


def test_a_run_goes_through_its_stages_and_records_itself(empty_folder: Path, stages: Stages, capsys: pytest.CaptureFixture) -> None:
    assert __main__.main([*RUN, "seed=3", "study=first"]) == 0
    assert [name for name, _ in stages.calls] == ["prepare", "pretrain", "evaluate"]
    (summary,) = summaries(empty_folder)
    assert (summary["status"], summary["steps"], summary["study"], summary["seeds"]["init"]) == ("finished", 3, "first", 3)
    assert summary["versions"]["torch"] and summary["hardware"]["cpus"] >= 1 and summary["error"] is None
    folder = empty_folder / "out" / summary["config_hash"][:12]
    assert {path.name for path in folder.iterdir()} == {"config.yaml", "overrides.txt", "summary.json", ".lock"}
    assert (folder / "overrides.txt").read_text() == "trainer.precision=32-true output_dir=out seed=3 study=first\n"
    assert f"run folder: out/{folder.name}" in capsys.readouterr().out
    assert {path.name for path in empty_folder.iterdir()} == {"out"}  # Hydra writes nothing


def test_a_finished_run_says_so_and_lets_the_stages_add_what_is_missing(
    empty_folder: Path, stages: Stages, capsys: pytest.CaptureFixture
) -> None:
    __main__.main(RUN)
    assert "is finished" not in capsys.readouterr().out
    assert __main__.main([*RUN, "evaluation.tasks=[pydocs_odd_word]"]) == 0
    assert "this run is finished: out/" in capsys.readouterr().out
    assert len(stages.calls) == 6 and len(summaries(empty_folder)) == 1


def test_missing_devices_are_told_before_anything_is_prepared_and_stop_no_finished_run(
    empty_folder: Path, stages: Stages, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlm_lab.training import trainer

    here = [0, 8]
    monkeypatch.setattr(trainer, "_devices_here", lambda accelerator: here[0])
    assert __main__.main([*RUN, "trainer=gpu"]) == 2
    assert capsys.readouterr().err.startswith("error: this machine has no GPU\n")
    assert stages.calls == [] and list(empty_folder.iterdir()) == []
    here.reverse()
    sys.modules["mlm_lab.stages.pretrain"].run = lambda config, folder: folder.update_summary(weights_sha256="0")
    assert __main__.main([*RUN, "trainer=gpu"]) == 0
    here.reverse()
    assert __main__.main([*RUN, "trainer=gpu"]) == 0, "elsewhere it can still be looked at"


def test_a_machine_without_slurm_says_so(empty_folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(empty_folder))
    assert __main__.main(["-m", "hydra/launcher=submitit_slurm", "seed=0,1"]) == 2
    assert capsys.readouterr().err.startswith("error: there is no Slurm on this machine") and list(empty_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("failure", "exit_code", "status"),
    [(KeyboardInterrupt(), 130, "interrupted"), (Interrupted(130), 130, "interrupted"), (Interrupted(143), 143, "interrupted")],
)
def test_an_interrupted_run_is_recorded_as_such(
    failure: BaseException, exit_code: int, status: str, empty_folder: Path, stages: Stages, capsys: pytest.CaptureFixture
) -> None:
    stages.failure = failure
    assert __main__.main(RUN) == exit_code
    assert summaries(empty_folder)[0]["status"] == status
    assert capsys.readouterr().err.startswith("interrupted")


def test_a_fault_of_ours_keeps_its_traceback_and_the_run_is_recorded_as_failed(empty_folder: Path, stages: Stages) -> None:
    stages.failure = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        __main__.main(RUN)
    (summary,) = summaries(empty_folder)
    assert (summary["status"], summary["error"], summary["failure"]) == ("failed", "RuntimeError: a bug", "fault")
    stages.failure = None
    assert __main__.main(RUN) == 0
    (summary,) = summaries(empty_folder)
    assert (summary["status"], summary["error"], summary["failure"]) == ("finished", None, None)


def test_a_mistake_that_a_stage_finds_leaves_nothing_half_written(
    empty_folder: Path, stages: Stages, capsys: pytest.CaptureFixture
) -> None:
    stages.failure = UserError("The corpus is empty", where="a.txt")
    assert __main__.main(RUN) == 2
    assert capsys.readouterr().err == "error: The corpus is empty\n  where:   a.txt\n"
    assert list(empty_folder.iterdir()) == []


def test_a_mistake_after_a_checkpoint_leaves_the_run_to_be_resumed(empty_folder: Path, stages: Stages) -> None:
    stages.failure = UserError("The loss is not finite")
    pretrain = sys.modules["mlm_lab.stages.pretrain"]
    fail = pretrain.run
    pretrain.run = lambda config, folder: (folder.checkpoints.mkdir(), fail(config, folder))
    assert __main__.main(RUN) == 2
    assert summaries(empty_folder)[0]["status"] == "failed"


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (Diverged("the loss is not finite"), "diverged"),
        (UserError("the disk is full"), "outside"),
        (OSError(5, "input/output error"), "outside"),
        (RuntimeError("CUDA out of memory"), "outside"),
    ],
)
def test_a_run_that_diverged_stays_on_record_and_is_told_from_one_that_the_machine_ended(
    error: Exception, failure: str, empty_folder: Path, stages: Stages
) -> None:
    """traps.md 33: its rows are there to look at, though it never got to a checkpoint."""
    stages.failure = error
    pretrain = sys.modules["mlm_lab.stages.pretrain"]
    fail = pretrain.run
    pretrain.run = lambda config, folder: (folder.write_text("metrics.csv", "step,train/loss\n1,nan\n"), fail(config, folder))
    with suppress(RuntimeError, OSError):
        assert __main__.main(RUN) == 2
    (summary,) = summaries(empty_folder)
    assert (summary["status"], summary["error"]) == ("failed", f"{type(error).__name__}: {error}")
    assert summary["failure"] == failure


@pytest.mark.parametrize("before", ["finished", "interrupted"])
def test_a_mistake_after_pretraining_takes_nothing_from_the_weights(before: str, empty_folder: Path, stages: Stages) -> None:
    def evaluate(config: object, folder: RunFolder) -> None:
        raise UserError("task rte: a label that the task does not know")

    def pretrain(config: object, folder: RunFolder) -> None:
        folder.checkpoints.mkdir(exist_ok=True)
        (folder.path / "weights.safetensors").write_bytes(b"weights")
        folder.update_summary(weights_sha256=hashlib.sha256(b"weights").hexdigest())

    sys.modules["mlm_lab.stages.pretrain"].run = pretrain
    if before == "finished":
        assert __main__.main(RUN) == 0
    sys.modules["mlm_lab.stages.evaluate"].run = evaluate
    for _ in range(2):
        assert __main__.main(RUN) == 2
        (summary,) = summaries(empty_folder)
        assert summary["status"] == before and "a label that the task does not know" in summary["error"]
    (folder,) = empty_folder.glob("out/*")
    (folder / "weights.safetensors").write_bytes(b"damaged")
    sys.modules["mlm_lab.stages.pretrain"].run = evaluate
    assert __main__.main(RUN) == 2
    assert summaries(empty_folder)[0]["status"] == "failed"


def test_a_run_that_another_process_holds_is_left_alone(empty_folder: Path, stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that start at once: the one that comes second must not remove what the first has begun."""

    def lose(self: RunFolder) -> Iterator[None]:
        self.write_text("summary.json", "{}")
        raise UserError("another process is working on this run")
        yield

    monkeypatch.setattr(RunFolder, "claim", contextmanager(lose))
    assert __main__.main(RUN) == 2
    assert summaries(empty_folder) == [{}]


def test_what_trained_the_weights_stays_on_record(empty_folder: Path, stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    pretrain = sys.modules["mlm_lab.stages.pretrain"]
    pretrain.run = lambda config, folder: folder.update_summary(weights_sha256="0" * 64)
    assert __main__.main(RUN) == 0
    (before,) = summaries(empty_folder)
    monkeypatch.setattr("mlm_lab.runner.provenance", lambda: {"git_commit": "a later one"})
    assert __main__.main(RUN) == 0
    assert summaries(empty_folder)[0]["git_commit"] == before["git_commit"]


def test_a_full_disk_is_told_without_a_traceback(empty_folder: Path, stages: Stages, capsys: pytest.CaptureFixture) -> None:
    stages.failure = OSError(28, "No space left on device", "out/metrics.csv")
    assert __main__.main(RUN) == 2
    assert capsys.readouterr().err == "error: No space left on device\n  where:   out/metrics.csv\n"


def test_each_stages_own_check_comes_before_anything_is_written(empty_folder: Path, stages: Stages) -> None:
    def check(config: object) -> None:
        raise UserError("task cola: no file")

    sys.modules["mlm_lab.stages.evaluate"].check = check
    assert __main__.main(RUN) == 2
    assert stages.calls == [] and list(empty_folder.iterdir()) == []


def test_another_rank_runs_the_stages_and_writes_nothing(
    empty_folder: Path, stages: Stages, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert __main__.main(RUN) == 0
    assert len(stages.calls) == 3 and list(empty_folder.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_run_and_compose_do_what_the_command_does(empty_folder: Path, stages: Stages) -> None:
    from mlm_lab import compose, run

    summary = run(compose([*RUN, "seed=5"]))
    assert summary["status"] == "finished" and summary["seeds"]["init"] == 5


def test_a_multirun_runs_every_point_and_keeps_hydras_files_under_output_dir(empty_folder: Path, stages: Stages) -> None:
    options = empty_folder.parent / "options"
    (options / "arm").mkdir(parents=True)
    (options / "arm" / "high.yaml").write_text("# @package _global_\n# a high ratio\nobjective:\n  mask_ratio: 0.4\n")
    words = ["-m", "--config-dir", str(options), "arm=null,high", "seed=0,1", "evaluation.tasks=[mine]", "evaluation.files.mine=x.csv"]
    assert __main__.main([*words, "task.mine.epochs=2", "hydra.job.chdir=false", *RUN]) == 0
    configs = [config for name, config in stages.calls if name == "prepare"]
    assert [(config.objective.mask_ratio, config.seed) for config in configs] == [(0.15, 0), (0.15, 1), (0.4, 0), (0.4, 1)]
    assert all(config.tasks["mine"].epochs == 2 for config in configs)
    assert len(summaries(empty_folder)) == 4
    assert {path.name for path in empty_folder.glob("out/multirun/*/**/*") if path.is_file()} == {"multirun.yaml"}
    assert {path.name for path in empty_folder.iterdir()} == {"out"}


@pytest.mark.parametrize(("number", "exit_code", "said"), [("SIGINT", 130, "Ctrl-C"), ("SIGTERM", 143, "SIGTERM")])
def test_a_signal_outside_the_training_loop_ends_the_run_as_interrupted(number: str, exit_code: int, said: str, empty_folder: Path) -> None:
    """Also where the code that runs at that moment takes whatever a library raises, or turns KeyboardInterrupt into an exit code."""
    code = f"""
import os, signal, sys, time, types
def run(config, folder):
    try:
        os.kill(os.getpid(), signal.{number})
        time.sleep(1)
    except Exception:
        sys.exit(3)
    except KeyboardInterrupt:
        sys.exit(1)
stage = types.ModuleType("mlm_lab.stages.prepare")
stage.run = run
sys.modules["mlm_lab.stages.prepare"] = stage
from mlm_lab.__main__ import main
sys.exit(main({[*RUN, "stages=[prepare]"]!r}))
"""
    result = call("-c", code)
    assert result.returncode == exit_code, result.stderr
    assert result.stderr == f"interrupted ({said})\n"
    assert summaries(empty_folder)[0]["status"] == "interrupted"
