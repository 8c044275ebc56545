"""A run through the door that takes seconds: a text, a task, the words of its command; and what of its folder has to be the same again."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

TIMINGS = ("tokens_per_second", "flops_per_second", "ceiling_share", "spent/seconds")
NOT_COMPARED = ("seconds", "tokens_per_second", "peak_memory_bytes", "hardware", "error", "git_commit")
STEPS = 60


def write_inputs(folder: Path) -> None:
    """text.txt: 300 short documents; mood.csv: a task that a word decides."""
    drawn = random.Random(0)
    words = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("a", "e", "io", "un", "ar")]
    documents = ["\n".join(" ".join(drawn.choices(words, k=9)).capitalize() + "." for _ in range(4)) for _ in range(300)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    rows = [f"{' '.join(drawn.choices(words, k=5))} {mood},{mood}" for mood in ("bad", "good") for _ in range(40)]
    (folder / "mood.csv").write_text("\n".join(["text,label", *drawn.sample(rows, len(rows))]) + "\n", encoding="utf-8")


def words(inputs: Path, objective: str = "mlm", steps: int = STEPS) -> list[str]:
    """Of the command; files relative to the working directory, so that a run is the same run anywhere."""
    return [
        *(f"objective={objective}", "data=text", f"data.files={inputs}/text.txt", "cache_dir=cache", "output_dir=runs"),
        *("tokenizer.vocab_size=400", "max_length=32", "batch_size=4", "model.hidden_size=32", "model.intermediate_size=64"),
        *("trainer=cpu", "trainer.precision=32-true", "model.hidden_dropout=0.1", f"budget.steps={steps}", "trainer.log_every_steps=1"),
        *("validation.sequences=8", "validation.every_steps=20", f"checkpoint.every_steps={max(1, steps // 6)}"),
        *("evaluation.tasks=[mood]", f"evaluation.files.mood={inputs}/mood.csv", "task.mood.steps=6", "evaluation.pooling=mean"),
        *("evaluation.seeds=1", "evaluation.floor=true", "evaluation.jobs=1"),  # the moments of one process, on any number of cores
    ]


def outcome(place: Path) -> dict[str, Any]:
    """All that a run in this working directory has come to, without timings: file -> content."""
    (folder,) = (path.parent for path in place.glob("runs/*/summary.json"))
    summary = json.loads((folder / "summary.json").read_text())
    kept = {name: value for name, value in summary.items() if name not in NOT_COMPARED}
    kept["metrics"] = {name: value for name, value in summary.get("metrics", {}).items() if not name.endswith(TIMINGS)}
    found: dict[str, Any] = {"summary.json": kept, "metrics.csv": rows(folder)}
    files = [folder / "weights.safetensors", folder / "tokenizer.json", *(place / "cache").rglob("*"), *(folder / "evaluation").rglob("*")]
    for path in [*files, *(place / "runs/floors").rglob("*")]:
        if path.is_file() and path.suffix not in (".lock", ".tmp") and not path.name.startswith("."):
            found[str(path.relative_to(place))] = _without_timings(path)
    return found


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return [{name: value for name, value in row.items() if not name.endswith(TIMINGS)} for row in csv.DictReader(file)]


def _without_timings(path: Path) -> object:
    if path.suffix == ".json" and path.stat().st_size < 100_000:
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return {name: value for name, value in content.items() if name not in NOT_COMPARED}
    return path.read_bytes()
