"""What the planned seeds can show; and from the runs of a pilot, how many would be needed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from mlm_lab import console
from mlm_lab.errors import UserError
from mlm_lab.run_folder import RunFolder
from mlm_lab.statistics import power
from mlm_lab.statistics.pilot import Pilot, pilot
from mlm_lab.sweep.points import Point
from mlm_lab.sweep.progress import metric_of
from mlm_lab.sweep.sweep_file import SweepFile


def show_power(sweep: SweepFile, points: Sequence[Point], found: Pilot | None, difference: float | None) -> None:
    """The smallest attainable p and the detectable difference; with a pilot, the seeds for a difference (else the margin)."""
    arms, seeds = len({point.arm for point in points}), len({point.seed for point in points})
    metric = primary_metric(sweep)
    console.say("\nwhat it can show")
    for line in power.attainable(seeds, arms, std=None if found is None else found.std).lines():
        console.say(f"  {line}")
    wanted = difference if difference is not None else sweep.study.margin
    if found is not None and wanted is not None:
        needed, careful = (_seeds(std, wanted, max(arms, 2)) for std in (found.std, found.std_high))
        console.say(
            f"  pilot: standard deviation of {metric} about arm{' and seed' if found.paired else ''} {found.std:.3g}, "
            f"upper 80 % limit {found.std_high:.3g}, from {found.degrees_of_freedom} degrees of freedom"
        )
        console.say(f"  to show a difference of {wanted:g} by the primary contrast: {needed} seeds, {careful} at the upper limit")


def _seeds(std: float, difference: float, arms: int) -> str:
    try:
        return f"{power.seeds_needed(std, difference, arms)}"
    except ValueError:
        return "more than a million"


def primary_metric(sweep: SweepFile) -> str:
    return sweep.study.primary.metric if sweep.study.primary else sweep.metric


def read_pilot(sweep: SweepFile, runs: Sequence[Path], planned: Collection[int | None]) -> Pilot:
    """The spread of the primary metric over finished runs, by arm (the values of the study's factors) and seed.

    runs: run folders, or parents of them. planned: the seeds of the sweep; said where the pilot has some of them.
    Raises:
        UserError: there is no such run; none was repeated.
    """
    metric = primary_metric(sweep)
    scores: dict[str, dict[int, float]] = {}
    for folder in (inside for given in runs for inside in _run_folders(given)):
        summary = folder.read_summary()
        value = metric_of(summary, metric) if summary.get("status") == "finished" else None
        if value is not None:
            scores.setdefault(_arm(folder, sweep.study.factor), {})[summary["seeds"]["init"]] = value
    given = " ".join(map(str, runs))
    if not scores:
        raise UserError(f"--pilot: no finished run that has {metric}", given=given, fix="folders of runs, or an output_dir with them")
    found = pilot(scores)
    if found is None:
        seen = "; ".join(f"{arm}: {len(of_arm)}" for arm, of_arm in scores.items())
        raise UserError("--pilot: a spread needs an arm with two seeds", given=f"{given} ({seen})", fix="run a second seed of each arm")
    if both := sorted({seed for of_arm in scores.values() for seed in of_arm} & set(planned)):
        console.warn(
            f"the pilot's seeds {', '.join(map(str, both))} are planned too: what chose a metric, a size or a margin does not test it; "
            "plan others (seed=10,11,12), and name these in the study's pilot_seeds if the report shows them"
        )
    return found


def _run_folders(given: Path) -> list[RunFolder]:
    if (given / "summary.json").exists():
        return [RunFolder(given)]
    return [RunFolder(path.parent) for path in sorted(given.glob("*/summary.json"))]


def _arm(folder: RunFolder, factors: Sequence[str]) -> str:
    import yaml

    values: Any = yaml.safe_load((folder.path / "config.yaml").read_text(encoding="utf-8"))
    return " ".join(f"{factor}={_at(values, factor.split('.'))}" for factor in factors if factor != "arm")


def _at(values: Any, parts: Sequence[str]) -> Any:
    for part in parts:
        values = values.get(part) if isinstance(values, dict) else None
    return values
