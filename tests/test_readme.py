"""Every command of the README is one that the program takes; those that need nothing special are run, at a size of seconds."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from mlm_lab.config import compose
from mlm_lab.config.overrides import first_values
from mlm_lab.runner import run
from mlm_lab.sweep.reading import read
from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BERT = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
BERT |= {"max_position_embeddings": 64, "hidden_act": "gelu"}
SMALL = ["budget.steps=2", "batch_size=4", "max_length=32", "validation.sequences=8", "evaluation.seeds=1", "evaluation.epochs=1"]
SMALL += ["tokenizer.vocab_size=400", "model=tiny", "evaluation.floor=false", "length_phases=null"]


class Command(NamedTuple):
    words: tuple[str, ...]
    """What stands before the comment, as a shell takes it apart."""
    needs: str
    """What it needs beside the install; "" for nothing."""

    def __str__(self) -> str:
        return " ".join(self.words)


def commands() -> list[Command]:
    """Of the code blocks in bash, and those that the introduction indents."""
    lines = [line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
    lines += re.findall(r"^    ((?:pip|python) .*)$", README, re.MULTILINE)
    found = []
    for line in lines:
        command, _, comment = line.partition("  #") if not line.startswith("#") else ("", "", line)
        for part in command.split("&&"):
            if words := tuple(shlex.split(part)):
                found.append(Command(words, comment.partition("needs ")[2]))
    return found


COMMANDS = commands()
RUNS = [command for command in COMMANDS if command.words[:3] == ("python", "-m", "mlm_lab")]
ELSEWHERE = ("--", "-m", "trainer=", "pretrained=")
"""Words of commands that run in tests of their own: tests/test_main.py, tests/training and tests/strategies, and below."""
RUN = "runs/0123456789ab"
"""What stands for a finished run."""
CONTINUED = [command for command in RUNS if not command.needs and " pretrained=" in str(command)]
MULTIPLIED = [command for command in RUNS if not command.needs and "-m" in command.words[3:]]
ALONE = [command for command in RUNS if not command.needs and not any(word.startswith(ELSEWHERE) for word in command.words[3:])]
DOORS = {"mlm_lab", "mlm_lab.sweep", "mlm_lab.report", "mlm_lab.export"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the upper-case words of the README stand for."""
    sentences = [
        f"The {noun} {verb} the {other}." for noun in ("cat", "dog", "bird") for verb in ("saw", "met") for other in ("mat", "tree")
    ]
    text = "\n\n".join(" ".join(sentences[start : start + 4]) for start in range(9)) + "\n"
    (tmp_path / "CORPUS").mkdir()
    (tmp_path / "CORPUS/a.txt").write_text(text * 4)
    (tmp_path / "CORPUS/a.jsonl").write_text("".join(json.dumps({"text": part}) + "\n" for part in text.split("\n\n") * 4))
    (tmp_path / "NER.conll").write_text("".join(f"the O\n{word}{i} B-X\nsat O\n\n" for i in range(40) for word in ("cat", "dog")))
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FOLDER/config.json").write_text(json.dumps(BERT))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog"]
    Tokenizer(WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]")).save(
        str(tmp_path / "FOLDER/tokenizer.json")
    )
    (tmp_path / "words.txt").write_text("catdog\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def overrides(command: Command) -> list[str]:
    return [word.replace(".jsonl.gz", ".jsonl") for word in command.words[3:] if word != "-m"]


def with_data(words: list[str], request: pytest.FixtureRequest) -> list[str]:
    """DATA as the folder of public sets, of which a few examples do."""
    if not any("DATA" in word for word in words):
        return words
    data = request.getfixturevalue("shared_data")
    return [word.replace("DATA", str(data)) for word in words] + ["evaluation.train_limit=50"]


def test_the_readme_has_every_recipe() -> None:
    assert len(RUNS) >= 14
    for recipe in ("My own corpus", "My own NER file", "Compare two ratios", "Continue from a published model", "Eight GPUs, SLURM, a TPU"):
        assert f"**{recipe}" in README, recipe
    for recipe in ("W&B agents", "An objective in two files", "From Python or a notebook"):
        assert f"**{recipe}" in README, recipe


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_is_of_a_program_that_is_known(command: Command) -> None:
    if command.words[:2] == ("python", "-m"):
        assert command.words[2] in DOORS | {"tests.benchmarks.throughput"}
    else:
        assert command.words[0] in ("pip", "pytest", "wandb", "taskset", "srun", "cp", "mkdir") or command.words == (".ci/run",)
    if command.words[0] == "wandb":
        assert command.needs


@pytest.mark.parametrize("command", RUNS, ids=str)
def test_a_run_composes(command: Command, place: Path) -> None:
    words = [word for word in overrides(command) if not word.startswith(("--", "hydra"))]
    compose(first_values(words))


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.words[2:3] == ("mlm_lab.sweep",)], ids=str)
def test_a_sweep_is_read(command: Command) -> None:
    words = [word for word in command.words[4:] if "=" in word]
    sweep = read(REPOSITORY / command.words[3]).with_words(words)
    assert sweep.points() or sweep.is_searched


@pytest.mark.slow
@pytest.mark.parametrize("command", ALONE, ids=str)
def test_a_command_that_needs_nothing_runs(command: Command, place: Path, request: pytest.FixtureRequest) -> None:
    words = with_data(overrides(command), request)
    text = [] if any(word.startswith("data=") for word in words) else ["data=text", f"data.files={place}/CORPUS/a.txt"]
    kept = [word for word in words if not word.startswith(("budget.", "+experiment=quickstart"))]
    small = [word for word in SMALL if word != "model=tiny" or "model=transformers" not in words]
    places = [f"cache_dir={place}/cache", f"output_dir={place}/runs", "trainer=cpu", "evaluation.jobs=1"]
    summary = run(compose([*kept, *text, *small, *places]))
    assert summary["status"] == "finished"


@pytest.fixture
def small_run(place: Path) -> Path:
    """A finished run with the name that the README has."""
    words = ["data=text", f"data.files={place}/CORPUS/a.txt", "stages=[prepare,pretrain]", *SMALL, "trainer=cpu"]
    run(compose([*words, f"cache_dir={place}/cache", f"output_dir={place}/runs"]))
    (made,) = (path.parent for path in place.glob("runs/*/weights.safetensors"))
    return made.rename(place / RUN)


@pytest.fixture
def published(place: Path) -> Path:
    """FOLDER with weights, as Transformers saves them."""
    transformers = pytest.importorskip("transformers")
    transformers.BertForMaskedLM(transformers.BertConfig(**{**BERT, "vocab_size": 7})).save_pretrained(place / "FOLDER")
    for name in ("TRAIN", "VALID"):
        (place / f"{name}.txt.gz").write_bytes(gzip.compress((place / "CORPUS/a.txt").read_bytes()))
    return place / "FOLDER"


@pytest.mark.slow
@pytest.mark.parametrize("command", CONTINUED, ids=str)
def test_a_command_that_starts_from_weights_runs(
    command: Command, place: Path, small_run: Path, published: Path, request: pytest.FixtureRequest
) -> None:
    small = [word for word in SMALL if not word.startswith(("tokenizer.", "model="))]
    kept = [word for word in with_data(overrides(command), request) if not word.startswith("budget.")]
    summary = run(compose([*kept, *small, f"cache_dir={place}/cache", "output_dir=runs", "trainer=cpu", "evaluation.jobs=1"]))
    assert summary["status"] == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("command", MULTIPLIED, ids=str)
def test_a_command_of_several_runs_runs(command: Command, place: Path) -> None:
    words = [word for word in command.words[3:] if not word.startswith("budget.")]
    small = [*SMALL, "stages=[prepare,pretrain]", "data=text", f"data.files={place}/CORPUS/a.txt", "trainer=cpu"]
    command_line = [sys.executable, "-m", "mlm_lab", *words, *small, f"cache_dir={place}/cache", "output_dir=runs"]
    subprocess.run(command_line, check=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
    assert len(list(place.glob("runs/*/summary.json"))) == 6


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--plan", "--run"])
def test_two_ratios_are_compared(option: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of the recipe, and of its section: a sweep by its file, and the report after it."""
    from mlm_lab.report import __main__ as report
    from mlm_lab.sweep import __main__ as sweep

    (place / "sweeps").symlink_to(REPOSITORY / "sweeps")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    words = next(command.words[3:] for command in COMMANDS if command.words[2:3] == ("mlm_lab.sweep",) and option in command.words)
    small = [word for word in SMALL if not word.startswith(("model=", "budget."))] + ["budget.tokens=600", "evaluation.tasks=[]"]
    places = ["data=text", f"data.files={place}/CORPUS/a.txt", f"cache_dir={place}/cache", "trainer=cpu", "seed=0,1"]
    arms = [] if any(word.startswith("objective.mask_ratio=") for word in words) else ["objective.mask_ratio=0.15,0.4"]
    assert sweep.main([*words, *arms, *small, *places]) == 0
    if option == "--plan":
        assert not (place / "runs").exists()
        return
    for command in COMMANDS:
        if command.words[2:3] == ("mlm_lab.report",):
            assert report.main(command.words[3:]) == 0
    assert "4 of 4 runs" in (made := (place / "experiments/mask_ratio/report.md").read_text()) or "All 4 runs" in made


@pytest.mark.slow
def test_the_lines_that_export_a_run_and_fill_a_mask_with_it(place: Path, small_run: Path) -> None:
    pytest.importorskip("transformers")
    from mlm_lab.export.__main__ import main

    (words,) = (command.words[3:] for command in COMMANDS if command.words[2:3] == ("mlm_lab.export",))
    assert main(words) == 0
    (block,) = (block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "pipeline(" in block)
    lines, _, rest = block.partition("\nfrom sentence_transformers")
    assert rest
    *imports, last = lines.strip().splitlines()
    names: dict = {}
    exec("\n".join(imports), names)
    assert len(eval(last, names)) == 5


@pytest.mark.slow
def test_the_lines_for_a_notebook_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand, but for the size and the text."""
    (block,) = (block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "plot(" in block)
    places = [f"data.files={place}/CORPUS/a.txt", f"cache_dir={place}/cache", "trainer=cpu", "data=text"]
    monkeypatch.setattr("mlm_lab.config.compose", lambda words: compose([*words, *places, *SMALL]))
    assert len([line for line in block.splitlines() if line]) <= 5
    *lines, last = block.strip().splitlines()
    names: dict = {}
    exec("\n".join(lines), names)
    assert len(eval(last, names).figure.axes[0].lines) == 2
