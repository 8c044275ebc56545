"""Seeds x examples from the predictions in run folders: the sums, what is refused, and that the result outlives the folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mlm_lab.report import results
from mlm_lab.report.__main__ import main
from mlm_lab.report.examples import example_sums
from tests.report import synthetic

SWEEP = (
    synthetic.SWEEP.replace("[10, 11, 12]", str(list(range(10))))
    .replace("[0.15, 0.4, 0.8]", "[0.15, 0.4]")
    .replace("pydocs_entities/f1", "odd/accuracy")
)


def write_predictions(folder: Path, task: str, lines: list[tuple[object, object]], seed: int = 0, part: str = "dev") -> None:
    cell = folder / "evaluation" / task / f"seed_{seed}-0123456789ab" / "pretrained"
    cell.mkdir(parents=True, exist_ok=True)
    rows = [{"part": part, "index": i, "gold": gold, "prediction": answer} for i, (gold, answer) in enumerate(lines)]
    (cell / "predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.parametrize(
    ("metric", "lines", "sums"),
    [
        ("t/accuracy", [(1, 1), (0, 1)], [[1, 1], [0, 1]]),
        ("t/accuracy", [(["A", "B"], ["A", "A"])], [[1, 2]]),
        ("t/f1", [(1, 1), (0, 1), (1, 0), (0, 0)], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]),
        ("t/f1", [(["B-X", "I-X", "O", "B-Y"], ["B-X", "O", "O", "B-Y"])], [[1, 1, 1]]),
        ("t/matthews", [(1, 1), (0, 0)], [[1, 0, 0, 0], [0, 0, 0, 1]]),
        ("t/pearson", [(2.0, 3.0)], [[1, 2, 3, 4, 9, 6]]),
    ],
)
def test_what_each_example_adds(tmp_path: Path, metric: str, lines: list, sums: list) -> None:
    write_predictions(tmp_path, "t", lines)
    assert example_sums(tmp_path, metric, 1).tolist() == sums


def test_what_cannot_be_summed(tmp_path: Path) -> None:
    write_predictions(tmp_path, "t", [(2, 1)])
    assert example_sums(tmp_path, "t/matthews", 1) is None and example_sums(tmp_path, "t/spearman", 1) is None
    assert example_sums(tmp_path, "other/accuracy", 1) is None and example_sums(tmp_path, "t/test/accuracy", 1) is None
    assert example_sums(tmp_path, "t/accuracy", 2) is None  # a cell is missing, or there is one too many


def write_ten_seeds(root: Path, recorded: float = 0.0, seeds: int = 10, sweep: str = SWEEP) -> None:
    """Ten seeds of two ratios, with the predictions on 200 examples. recorded: how far the recorded score is from theirs."""
    synthetic.write_sweep(root, sweep)
    rng = np.random.default_rng(5)
    gold = rng.integers(0, 2, 200)
    for ratio, share in ((0.15, 0.70), (0.4, 0.78)):
        for seed in range(seeds):
            right = rng.random(200) < share + 0.01 * rng.normal()
            accuracy = float(right.mean()) + recorded
            tasks = {"odd": {"accuracy": synthetic.entry([accuracy])}}
            folder = synthetic.write_run(root / "runs", seed=seed, config={"objective.mask_ratio": ratio}, evaluation=tasks)
            write_predictions(folder, "odd", [(int(g), int(g if hit else 1 - g)) for g, hit in zip(gold, right, strict=True)])


def test_ten_seeds_give_an_interval_over_examples_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ten_seeds(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["ratios"]) == 0
    study = tmp_path / "experiments" / "ratios"
    (row,) = results.read(study / "examples.csv", key="weights")
    assert (row["metric"], row["arm"], row["seeds"], row["examples"]) == ("odd/accuracy", "mask_ratio=0.4", "10.0", "200.0")
    assert float(row["low"]) < float(row["difference"]) < float(row["high"])
    report = (study / "report.md").read_text(encoding="utf-8")
    assert f"| **mask_ratio=0.4** | `odd/accuracy` | {float(row['difference']):+.4f} |" in report
    assert main(["ratios", "--verify"]) == 0
    file, low = study / "examples.csv", f"{float(row['low']):+.4f}"
    kept = file.read_text(encoding="utf-8")
    file.write_text(kept.replace(row["low"], "-0.5"), encoding="utf-8")  # and the report alike: the predictions know better
    (study / "report.md").write_text(report.replace(low, "-0.5000"), encoding="utf-8")
    assert main(["ratios", "--verify"]) == 1
    file.write_text(kept, encoding="utf-8")
    shutil.rmtree(tmp_path / "runs")
    assert main(["ratios"]) == 0 and (study / "report.md").read_text(encoding="utf-8") == report
    file.write_text(file.read_text(encoding="utf-8").replace(row["low"], "-0.5"), encoding="utf-8")
    assert main(["ratios", "--verify"]) == 1


def test_predictions_that_do_not_give_the_recorded_score_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ten_seeds(tmp_path, recorded=0.02)
    monkeypatch.chdir(tmp_path)
    assert main(["ratios"]) == 0
    assert not (tmp_path / "experiments" / "ratios" / "examples.csv").exists()


def test_seeds_that_chose_the_metric_are_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ten_seeds(tmp_path, seeds=12, sweep=SWEEP.replace("  margin:", "  pilot_seeds: [10, 11]\n  margin:"))
    monkeypatch.chdir(tmp_path)
    assert main(["ratios"]) == 0
    (row,) = results.read(tmp_path / "experiments" / "ratios" / "examples.csv", key="weights")
    assert row["seeds"] == "10.0"
