"""Every preset and every objective on Wikipedia articles, from text to a fine-tuned result, at the size of +experiment=tiny.

By hand, about a quarter of an hour of one core:

    pytest -m exhaustive tests/stages/test_real_text.py -s

It shows that a recipe runs on real text and learns something of it, not what it is worth: 60 steps of 16 rows are 0.1 M tokens.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mlm_lab.config import compose
from mlm_lab.runner import run
from tests.stages.test_objectives import write_corpus
from tests.test_conf import EXPERIMENTS
from tests.training.test_costs import OBJECTIVES

PRESETS = [name for name in EXPERIMENTS if name not in ("tiny", "quickstart", "first_light", "ablation", "ablation_base")]
"""The papers' recipes; the other experiments bring their own text."""
ARTICLES = "text/en-wiki"
RUNS = {
    **{name: [f"+experiment=[{name},tiny]"] for name in PRESETS},
    **{name: ["+experiment=tiny", f"objective={name}"] for name in OBJECTIVES},
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizers and token stores of all runs, and a task of its own."""
    folder = tmp_path_factory.mktemp("real_text")
    write_corpus(folder)
    return folder


def run_on_articles(words: list[str], articles: Path, cache: Path, output_dir: Path) -> dict:
    return run(
        compose(
            [
                *words,
                "data=text",
                f"data.files={articles / 'train.txt.gz'}",
                f"data.validation_files={articles / 'valid.txt.gz'}",
                f"cache_dir={cache}/cache",
                f"output_dir={output_dir}",
                "tokenizer.vocab_size=4096",
                "budget.steps=60",
                "validation.sequences=128",
                "evaluation.tasks=[mood]",
                f"evaluation.files.mood={cache}/mood.csv",
                "evaluation.seeds=1",
                "evaluation.floor=false",
            ]
        )
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", RUNS)
def test_it_runs_on_wikipedia(name: str, shared_data: Path, cache: Path, tmp_path: Path):
    summary = run_on_articles(RUNS[name], shared_data / ARTICLES, cache, tmp_path)
    metrics, accuracy = summary["metrics"], summary["evaluation"]["mood"]["accuracy"]
    assert summary["status"] == "finished" and summary["steps"] == 60 and accuracy["n"] == 1
    assert min(summary["tokens"], summary["supervised_positions"], summary["flops"]["total"]) > 0
    perplexity = next(value for key, value in metrics.items() if key.startswith("val/") and key.endswith("_perplexity"))
    assert math.log(perplexity) < 0.95 * math.log(4096), "it has begun to learn which tokens are frequent"
    shown = "  ".join(f"{key} {value:.3f}" for key, value in metrics.items() if key.startswith(("val/", "probe/")) and value is not None)
    print(f"\n{name}: {shown}  mood {accuracy['mean']:.2f}  {summary['seconds']:.0f} s")
