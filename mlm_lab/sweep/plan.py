"""`--plan`: what a sweep will cost and what it can show, before anything runs.

    points -> shapes: those whose steps cost the same  -> a short run of each (short_run.py) -> seconds of each point
           -> shared out over --jobs in their order    -> seconds in all
    seeds, arms, and the spread of a pilot             -> smallest p, detectable difference, seeds that are needed

Without a token store the shapes are those of a made-up text.
"""

from __future__ import annotations

import heapq
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from mlm_lab import console
from mlm_lab.errors import Interrupted
from mlm_lab.run_config import to_dict
from mlm_lab.sweep import pilots, tune
from mlm_lab.sweep.gates import show_gate
from mlm_lab.sweep.made_up import write_text
from mlm_lab.sweep.points import Point
from mlm_lab.sweep.runner import is_finished
from mlm_lab.sweep.short_run import EVALUATED_EXAMPLES, ShortRun, measure
from mlm_lab.sweep.sweep_file import SweepFile

if TYPE_CHECKING:
    from mlm_lab.run_config import RunConfig

GIVEN_TOKENIZER = 30_000
"""Pieces that a made-up text is as rich as, where the tokenizer is not trained on it."""
COLUMNS = ("arm", "runs", "parameters", "steps", "corpus tokens", "FLOPs", "head", "each", "in all")
NOTE = (
    "FLOPs: forward and backward of a run; head: the vocabulary projection's share of them; each, in all: predicted time of the processes"
)


@dataclass(frozen=True)
class Cost:
    """What a point will be."""

    point: Point
    parameters: float
    steps: float
    tokens: float
    flops: float
    head: float
    """The vocabulary projection's share of the FLOPs."""
    seconds: float
    """Of its process."""


def plan(sweep: SweepFile, points: Sequence[Point], jobs: int, pilot_runs: Sequence[Path] | None, difference: float | None) -> None:
    """Print the plan of a sweep.

    points: of the grid, or what stands for a search. difference: that the seeds are worked out for; None: the study's margin.
    Raises:
        UserError: the corpus is not there, a short run failed, a pilot's folder is none.
    """
    console.heading(f"{sweep.name}: {sweep.study.question}" if sweep.study.question else sweep.name)
    pilot = None if pilot_runs is None else pilots.read_pilot(sweep, pilot_runs, {point.seed for point in points})
    if sweep.is_searched:
        points = [points[0]] * (sweep.run_cap or 1)
    tried = [trial for of_arm in tune.trials(sweep.study.tune, points).values() for trial in of_arm.values()] if sweep.study.tune else []
    costs = predict([*tried, *points, *(points if tried else ())], jobs)  # tuned points cost what the common-rate ones cost
    tuning, common, tuned = costs[: len(tried)], costs[len(tried) :][: len(points)], costs[len(tried) + len(points) :]
    show_costs(sweep, tuning, common, tuned, jobs)
    pilots.show_power(sweep, points, pilot, difference)
    if not sweep.is_searched:
        show_gate(sweep, points)


def predict(points: Sequence[Point], jobs: int) -> list[Cost]:
    """What each point costs, from short runs of those whose steps differ.

    Raises:
        UserError: the corpus is not there, a short run failed.
    """
    with _sigterm_raises(), tempfile.TemporaryDirectory(prefix="mlm_lab-plan-") as place:
        shapes = _shapes(points, Path(place))
        distinct = {shape.key: shape for shape in shapes}
        first = {shape.encoder: shape.key for shape in reversed(distinct.values())}
        evaluated = [bool(shape.tasks) and first[shape.encoder] == key for key, shape in distinct.items()]
        console.say(f"timing {len(distinct)} kinds of run on this machine, {jobs} at a time, a few steps each")
        measured = dict(zip(distinct, measure([shape.words for shape in distinct.values()], evaluated, jobs, Path(place)), strict=True))
    costs, floors = [], set()
    for point, shape in zip(points, shapes, strict=True):
        with_floor = shape.encoder not in floors
        floors.add(shape.encoder)
        costs.append(_cost(point, measured[shape.key], measured[first[shape.encoder]], with_floor))
    return costs


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """So that the short runs are ended and their folder is removed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted(128 + number)

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@dataclass(frozen=True)
class _Shape:
    """Points with the same key cost the same."""

    key: str
    encoder: str
    """Points with the same one cost the same to evaluate, and share their floors."""
    tasks: tuple[str, ...]
    words: tuple[str, ...]
    """The command of a short run."""

    @classmethod
    def of(cls, point: Point, words: tuple[str, ...]) -> _Shape:
        import torch

        from mlm_lab.config import compose
        from mlm_lab.stages.prepare import prepare
        from mlm_lab.training.course import Course
        from mlm_lab.training.trainer import resolve_precision

        config = compose(words, loaded=point.loaded)
        with torch.device("meta"):
            course = Course.open(config, prepare(config).store_folder)
        steps = [
            (phase.max_length, phase.batch_size, phase.share, cost.positions, cost.flops, f"{cost.tokens:.2g}")
            for phase, cost in zip(course.phases, course.costs, strict=True)
        ]
        kind = (type(course.module).__qualname__, steps, course.parameters, type(config.optim).__qualname__, to_dict(config.validation))
        encoder = str((to_dict(config.model), to_dict(config.tokenizer), to_dict(config.data)))
        return cls(f"{kind} {resolve_precision(config.trainer)} {config.trainer} {encoder}", encoder, tuple(_evaluated(config)), words)


def _shapes(points: Sequence[Point], folder: Path) -> list[_Shape]:
    """Of each point; the seed does not change it. Where a store is not built yet, a made-up text in the folder stands for the corpus."""
    from mlm_lab.stages.prepare import find_store

    stores: dict[str, bool] = {}
    found: dict[tuple[str, ...], _Shape] = {}
    shapes = []
    for point in points:
        unseeded = tuple(word for word in point.overrides if not word.startswith("seed="))
        if unseeded not in found:
            config = point.config
            store = str((to_dict(config.data), to_dict(config.tokenizer), config.cache_dir))
            if store not in stores:
                stores[store] = find_store(config) is not None
            words = point.overrides if stores[store] else _with_made_up_text(point, folder)
            found[unseeded] = _Shape.of(point, words)
        shapes.append(found[unseeded])
    if not all(stores.values()):
        console.warn("the token store is not built yet: steps are timed on a made-up text, and preparing the corpus, once, is not counted")
    return shapes


def _with_made_up_text(point: Point, folder: Path) -> tuple[str, ...]:
    pieces = getattr(point.config.tokenizer, "vocab_size", GIVEN_TOKENIZER)
    text = folder / f"text-{pieces}.txt"
    if not text.exists():
        write_text(text, pieces)
    kept = [word for word in point.overrides if not word.startswith(("data=", "data."))]
    return (*kept, "data=text", f"data.files=[{text}]", f"cache_dir={folder / 'cache'}")


def _evaluated(config: RunConfig) -> list[str]:
    return list(config.tasks) if "evaluate" in config.stages else []


def _cost(point: Point, run: ShortRun, evaluated: ShortRun, with_floor: bool) -> Cost:
    steps = _steps(point.config, run)
    seconds = run.overhead + steps * run.step + _evaluation(point.config, evaluated, with_floor)
    return Cost(point, run.parameters, steps, steps * run.tokens, steps * run.flops, run.flops_head / run.flops, seconds)


def _steps(config: RunConfig, run: ShortRun) -> int:
    from mlm_lab.training.budget import StepFacts

    return config.budget.steps_for(StepFacts(run.tokens, run.flops, lambda: run.step))


def _evaluation(config: RunConfig, run: ShortRun, with_floor: bool) -> float:
    """Seconds after pretraining. run: the short one that evaluated this encoder."""
    from mlm_lab.provenance import available_cpus

    names = _evaluated(config)
    if not names or not run.cells:
        return 0.0
    side_by_side = config.evaluation.jobs or available_cpus()
    work = sum(run.cells[name] * _more(config, name) * _cells(config, name, with_floor) for name in names)
    loading = max(0.0, run.evaluation - sum(run.cells.values()) / min(side_by_side, len(names)))
    return loading + work / min(side_by_side, sum(_cells(config, name, with_floor) for name in names))


def _cells(config: RunConfig, name: str, with_floor: bool) -> int:
    """Cells of a task: those of the run, and where it is the first of its encoder those of the floor."""
    from mlm_lab.evaluation.plans import FLOOR_INITS
    from mlm_lab.evaluation.task import FLOOR, PRETRAINED

    task, evaluation, width = config.tasks[name], config.evaluation, config.model.hidden_size
    seeds = len(task.seeds(evaluation, 0))
    settings, floor_settings = (len(task.settings(evaluation, width, start)) for start in (PRETRAINED, FLOOR))
    own = seeds + (settings * min(evaluation.grid.seeds, seeds) if settings > 1 else 0)
    floor = FLOOR_INITS + (floor_settings if floor_settings > 1 else 0)
    return own + (floor if with_floor and evaluation.floor and FLOOR in task.starts else 0)


def _more(config: RunConfig, name: str) -> float:
    """How much longer a cell takes than one with EVALUATED_EXAMPLES: a training example costs three passes an epoch, another one."""
    task, evaluation = config.tasks[name], config.evaluation
    data = task.load(evaluation, config.cache_dir)
    held_out = sum(len(part) for part in data.parts.values())
    passes = 3 * (getattr(task, "epochs", None) or evaluation.epochs)
    train = min(len(data.train), evaluation.train_limit or len(data.train))
    return (passes * train + held_out) / (passes * min(train, EVALUATED_EXAMPLES) + held_out)


def show_costs(sweep: SweepFile, tuning: Sequence[Cost], common: Sequence[Cost], tuned: Sequence[Cost], jobs: int) -> None:
    """The table, and what is left to run of it. tuned: the points at the values that `tuning` is to find, or empty as that is."""
    arms: dict[str, list[Cost]] = {}
    for kind, costs in ((", tuning", tuning), ("", common), (", tuned", tuned)):
        for cost in costs:
            arms.setdefault(f"{cost.point.arm}{kind}", []).append(cost)
    rows = [_row(arm, of_arm) for arm, of_arm in arms.items()]
    at_most = " at most" if sweep.is_searched or tuned else ""
    note = f"{NOTE}\ntuned: at each arm's own value, which is not known yet; where it is the common one its runs are the common ones"
    console.table(f"Plan: {len(tuning) + len(common) + len(tuned)} runs{at_most}", COLUMNS, rows, note if tuned else NOTE)
    known = [*tuning, *common]
    left = [cost for cost in known if sweep.is_searched or not is_finished(cost.point)]
    missing, done = [*left, *tuned], len(known) - len(left)
    flops, tokens = (sum(getattr(cost, name) for cost in missing) for name in ("flops", "tokens"))
    least = makespan([cost.seconds for cost in left], jobs)
    console.say(
        f"predicted time with --jobs {jobs}: "
        + (f"{console.duration(least)} to " if tuned else "")
        + f"{console.duration(makespan([cost.seconds for cost in missing], jobs))}"
        f" for {len(missing)} runs{at_most} ({flops:.2g} FLOPs, {tokens:,.0f} corpus tokens)" + (f"; {done} are finished" if done else "")
    )


def _row(arm: str, costs: Sequence[Cost]) -> list[str]:
    one = costs[-1]
    return [
        arm,
        f"{len(costs)}",
        f"{one.parameters:,.0f}",
        f"{one.steps:,.0f}",
        f"{one.tokens:,.0f}",
        f"{one.flops:.2g}",
        f"{one.head:.0%}",
        console.duration(one.seconds),
        console.duration(sum(cost.seconds for cost in costs)),
    ]


def makespan(seconds: Sequence[float], jobs: int) -> float:
    """When the last of them ends, each begun as soon as one of so many places is free."""
    free = [0.0] * jobs
    for one in seconds:
        heapq.heapreplace(free, free[0] + one)
    return max(free)
