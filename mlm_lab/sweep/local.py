"""A sweep on this machine, from its points to a finished study: tuning first where the file asks for it, then the points, then what to do
about what failed."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlm_lab import console
from mlm_lab.errors import Interrupted
from mlm_lab.report.records import TUNE_JSON, merge_tunes
from mlm_lab.sweep import tune
from mlm_lab.sweep.check import check_inputs, corners
from mlm_lab.sweep.points import Point
from mlm_lab.sweep.progress import summary_of
from mlm_lab.sweep.records import COMMON, TUNED, TUNING, Held, Records, finished_elsewhere, restore_step_times
from mlm_lab.sweep.runner import FAILED, FINISHED, STOPPED, Job, Listed, Runner, Source, is_finished, is_in_results
from mlm_lab.sweep.search import Search
from mlm_lab.sweep.sweep_file import Distribution, SweepFile, Tune
from mlm_lab.sweep.table import Display

EXPERIMENTS = Path("experiments")


def show(sweep: SweepFile, points: Sequence[Point]) -> None:
    """The arms, how far each is, and what can be done next."""
    console.heading(f"{sweep.name}: {sweep.study.question}" if sweep.study.question else sweep.name)
    if points:
        done = finished_elsewhere(EXPERIMENTS / (points[0].config.study or sweep.name))
        rows = [_arm_row(arm, [point for point in points if point.arm == arm], done) for arm in dict.fromkeys(p.arm for p in points)]
        console.table(f"{len(points)} points", ("arm", "seeds", "finished", "run folders"), rows)
    else:
        rows = [(key, _range(values)) for key, values in sweep.parameters.items()]
        console.table(f"{sweep.method} search, {sweep.run_cap or 'no'} points at most", ("parameter", "values"), rows)
    place = f"python -m mlm_lab.sweep {shlex.quote(str(sweep.path))}"
    words = f" {shlex.join(sweep.given)}" if sweep.given else ""
    console.say("\nnext")
    console.say(f"  {place} --plan{words}\n      what it will cost, and what differences it can show")
    console.say(f"  {place} --run --jobs 2{words}\n      run it here, two points at a time")
    console.say(f"  wandb sweep {shlex.quote(str(sweep.path))}\n      with an account; then wandb agent, on as many machines as you like")


def _arm_row(arm: str, points: Sequence[Point], done: Mapping[str, Held]) -> tuple[object, ...]:
    seeds = ", ".join(str(point.seed) for point in points if point.seed is not None)
    finished = sum(is_in_results(point, done) or is_finished(point) for point in points)
    return arm, seeds or "-", f"{finished} of {len(points)}", " ".join(point.folder.run_id for point in points)


def _range(values: tuple | Distribution) -> str:
    if isinstance(values, Distribution):
        return f"{values.low:g} to {values.high:g}" + (", logarithmic" if values.is_log else "")
    return ", ".join(map(str, values))


def run(sweep: SweepFile, points: Sequence[Point], jobs: int) -> int:
    """Run the sweep's points here, `jobs` at a time. Returns the exit code: 0, or 1 where a point failed.

    Raises:
        UserError: files that the points read are missing.
        Interrupted: stopped on request; the same call goes on.
    """
    sample = list(points) or corners(sweep)
    check_inputs(sample)
    config = sample[0].config
    study = config.study or sweep.name
    records = Records(config.output_dir, study)
    finished = finished_elsewhere(EXPERIMENTS / study)
    restore_step_times(EXPERIMENTS / study, config.output_dir)

    def go_through(title: str, source: Source) -> None:
        total = source.cap if isinstance(source, Search) else len(source.jobs)
        try:
            with console.live_table() as draw:
                Runner(
                    records, finished, jobs, Display(f"{title}: {total} points, {jobs} at a time", sweep.metric, total, jobs, draw).show
                ).run(source)
        except Interrupted:
            console.say("stopped; the same command goes on from here")
            raise

    if sweep.is_searched or sweep.early_terminate is not None:
        source: Source = Search(sweep, records, points)
        go_through(f"{study}, {sweep.method} search", source)
    else:
        every = [(COMMON, point) for point in points]
        if sweep.study.tune is not None:
            chosen = _tune(sweep.study.tune, points, records, EXPERIMENTS / study, go_through)
            every += [(TUNED, point) for point in tune.tuned_points(chosen, points)]
        source = Listed([Job(point) for point in _plan(records, every)])
        go_through(study, source)
    code = _conclude(source, records)
    place = "" if config.output_dir == Path("runs") else f" output_dir={shlex.quote(str(config.output_dir))}"
    file = "" if sweep.path == Path(f"sweeps/{study}.yaml") else f" sweep={shlex.quote(str(sweep.path))}"
    console.say(f"next: python -m mlm_lab.report {study}{file}{place}")
    return code


def _plan(records: Records, points: Sequence[tuple[str, Point]]) -> list[Point]:
    """Each run once, noted with its tables; one that is common and tuned carries the tuned word."""
    runs: dict[str, Point] = {}
    for table, point in points:
        records.plan(point, table)
        known = runs.setdefault(point.config_hash, point)
        runs[point.config_hash] = replace(known, tuned=point.tuned or known.tuned)
    return list(runs.values())


def _tune(
    settings: Tune, points: Sequence[Point], records: Records, experiment: Path, go_through: Callable[[str, Source], None]
) -> dict[str, Any]:
    """What tune.json holds. The short runs of arms that the study's folder has no scores of are run first."""
    title, tried = f"{settings.key} of each arm", tune.trials(settings, points)
    before = tune.chosen_before(settings, points, experiment, tried)
    if before is not None:
        console.say(f"{title}: {', '.join(before['arms'])} from {experiment / TUNE_JSON}")
        tried = {arm: of_arm for arm, of_arm in tried.items() if arm not in before["arms"]}
    chosen = before
    if tried:
        short = [(TUNING, trial) for of_arm in tried.values() for trial in of_arm.values()]
        go_through(f"{records.path.name}, {title}", Listed([Job(point) for point in _plan(records, short)]))
        found = tune.choose(settings, points, tried)
        chosen = found if before is None else merge_tunes(found, before)
    tune.record(records, chosen)
    rows = [(arm, chosen["common"][arm], of_arm["best"], *of_arm["scores"].values()) for arm, of_arm in chosen["arms"].items()]
    cost = chosen["cost"]
    spent = f" of {cost['runs']} short runs: {cost['tokens']:,} tokens, {cost['flops']:.2g} FLOPs" if cost else ""
    console.table(title, ("arm", "common", "its own", *map(str, settings.values)), rows, note=f"{settings.metric}{spent}")
    for arm, of_arm in chosen["arms"].items():
        if of_arm["best"] is None:
            console.warn(f"{arm}: none of its short runs has a {settings.metric}: it is not in the tuned table")
    return chosen


def _conclude(source: Source, records: Records) -> int:
    """Say what came out, and list what failed with its last lines."""
    counts = Counter(job.state for job in source.jobs)
    before = sum(job.skipped for job in source.jobs if job.state == FINISHED)
    words = [f"{counts[FINISHED]} of {len(source.jobs)} points are finished" + (f" ({before} were before)" if before else "")]
    words += [f"{counts[state]} {state}" for state in (STOPPED, FAILED) if counts[state]]
    console.say("\n" + ", ".join(words))
    metrics = {id(job): summary_of(job.point.folder).get("metrics", {}) for job in source.jobs if job.state == FINISHED}
    stuck = [job for job in source.jobs if metrics.get(id(job), {}).get("left_plateau") is False]
    if stuck:
        arms = ", ".join(dict.fromkeys(job.point.arm for job in stuck))
        console.warn(f"{len(stuck)} of them never left the unigram plateau ({arms}): what they measure says little about the recipe")
    if isinstance(source, Search) and (best := source.best()) is not None:
        console.say(f"best: {' '.join(f'{key}={value}' for key, value in best.point.values.items())}")
    for job in source.jobs:
        if job.state == FAILED:
            console.warn(f"\n{job.name} failed: {records.log_file(job.point)}")
            for line in records.read(job.point).get("error") or ():
                console.warn(f"    {line}")
    if counts[FAILED] and not isinstance(source, Search):
        console.say("the same command tries the failed ones again")
    return 1 if counts[FAILED] else 0
