"""Each objective of conf/objective from text to a result: prepare, pretrain, evaluate an own task, at the size of +experiment=tiny."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mlm_lab.config import compose
from mlm_lab.runner import run
from tests.training.test_costs import OBJECTIVES

GOOD, BAD = ["warm", "clear", "kind", "bright"], ["cold", "dull", "cruel", "dark"]
SUBJECTS, PLACES = ["The house", "A letter", "Her answer", "That river", "This evening"], ["in town", "by the sea", "at night", "for us"]


def write_corpus(folder: Path) -> None:
    """Documents of a few sentences in one mood, and a task that asks for the mood of one."""
    generator = random.Random(0)

    def sentence(mood: list[str]) -> str:
        return f"{generator.choice(SUBJECTS)} was {generator.choice(mood)} and {generator.choice(mood)} {generator.choice(PLACES)}."

    documents = [" ".join(sentence(mood) for _ in range(generator.randint(3, 9))) for mood in (GOOD, BAD) * 1500]
    (folder / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    rows = [f'"{sentence(mood)}",{label}' for label, mood in (("good", GOOD), ("bad", BAD)) for _ in range(150)]
    (folder / "mood.csv").write_text("\n".join(["text,label", *generator.sample(rows, len(rows))]) + "\n", encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_from_text_to_a_result(objective: str, tmp_path: Path):
    write_corpus(tmp_path)
    summary = run(
        compose(
            [
                "+experiment=tiny",
                f"objective={objective}",
                "data=text",
                f"data.files={tmp_path}/text.txt",
                f"cache_dir={tmp_path}/cache",
                f"output_dir={tmp_path}/runs",
                "tokenizer.vocab_size=400",
                "budget.steps=200",
                "validation.sequences=64",
                "evaluation.tasks=[mood]",
                f"evaluation.files.mood={tmp_path}/mood.csv",
                "evaluation.seeds=1",
            ]
        )
    )
    assert summary["status"] == "finished" and summary["steps"] == 200
    accuracy = summary["evaluation"]["mood"]["accuracy"]
    assert accuracy["floor"]["mean"] > 0.8, "the task is easy: the encoder as it starts learns it"
    assert accuracy["n"] == 1 and accuracy["mean"] > 0.8, "200 steps take nothing from it: no encoder has collapsed"
    assert min(summary["supervised_positions"], summary["flops"]["total"]) > 0
