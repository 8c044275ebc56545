"""What is measured for a task: which cells, in which order, and what is chosen between them.

    settings of the task ──> one: its cells, one for each seed
                         └─> several: a cell each, the best setting, then its cells with every seed
    once from the run's weights (last, and earlier ones), once from three random initialisations

A plan is a generator: it yields the cells that it needs next and is sent their records, so that whoever runs it may measure cells of many
plans side by side (schedule.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mlm_lab.evaluation.cells import Cell, digest_parts, fingerprint_of
from mlm_lab.evaluation.protocol import HELDOUT, PROTOCOLS, Setting, best_setting, median_score, with_setting
from mlm_lab.evaluation.task import FLOOR, PRETRAINED
from mlm_lab.run_config import evaluation_key
from mlm_lab.run_folder import RUN_ID_DIGITS

if TYPE_CHECKING:
    from mlm_lab.evaluation.task import Task, TaskData
    from mlm_lab.run_config import RunConfig

FLOOR_INITS = 3
"""Random initialisations of the floor: seeds.init 0, 1, 2, whatever the run's own."""
FLOORS = "floors"


class PlanName(NamedTuple):
    """Which plan."""

    task: str
    start: str
    step: int | None = None


@dataclass(frozen=True)
class Measured:
    """What a plan came to."""

    setting: Setting = ()
    cells: dict[int, Cell] = field(default_factory=dict)
    """seed -> the cell with the chosen setting."""
    records: dict[int, dict] = field(default_factory=dict)
    tried: dict[Setting, list[dict]] = field(default_factory=dict)
    """The records on which the choice rests; {} where there was none."""


Plan = Generator[list[Cell], Mapping[Cell, dict], Measured]


class Plans:
    """The plans of one run."""

    def __init__(
        self, config: RunConfig, folder: Path, run_hash: str, width: int, data: Mapping[str, TaskData], origin: Callable[[int, bool], str]
    ):
        """folder: where the run's cells go. width: of its encoder. origin(init, reads_heads): a digest of the random module."""
        self.config, self.folder, self.run_hash, self.width, self.data = config, folder, run_hash, width, data
        self.fingerprints = {name: fingerprint_of(of_task) for name, of_task in data.items()}
        self._unlabelled = {name: digest_parts((), of_task.unlabelled) for name, of_task in data.items() if of_task.unlabelled}
        self._origin = origin

    def all(self, steps: Sequence[int]) -> dict[PlanName, Callable[[Measured | None], Plan]]:
        """Every plan, by name; each is started with what the plan that it waits for came to (`before`)."""
        plans = {}
        for task in self.config.tasks.values():
            starts = [start for start in task.starts if start == PRETRAINED or self.config.evaluation.floor]
            for start in starts:
                for step in (None, *steps) if start == PRETRAINED else (None,):
                    plans[PlanName(task.name, start, step)] = self._starter(task, start, step)
        return plans

    def before(self, name: PlanName) -> PlanName | None:
        """The plan whose encoders this one starts from."""
        other = self.config.evaluation.start_from.get(name.task)
        return None if other is None else name._replace(task=other)

    def _starter(self, task: Task, start: str, step: int | None) -> Callable[[Measured | None], Plan]:
        return lambda before: self._plan(task, start, step, before)

    def _plan(self, task: Task, start: str, step: int | None, before: Measured | None) -> Plan:
        evaluation, first = self.config.evaluation, self.config.seeds.finetune
        seeds = range(FLOOR_INITS) if start == FLOOR else task.seeds(evaluation, first)
        settings = task.settings(evaluation, self.width, start)
        setting, tried = settings[0], {}
        if len(settings) > 1:
            carved = start == FLOOR or evaluation.protocol == HELDOUT
            few = seeds[:1] if start == FLOOR else seeds[: evaluation.grid.seeds]
            cells = {s: [self._cell(task, start, step, seed, s, before, carved=carved) for seed in few] for s in settings}
            records = yield [cell for of_setting in cells.values() for cell in of_setting]
            tried = {s: [records[cell] for cell in of_setting] for s, of_setting in cells.items()}
            setting = best_setting(tried)
        chosen = {seed: self._cell(task, start, step, seed, setting, before) for seed in seeds}
        records = yield list(chosen.values())
        return Measured(setting, chosen, {seed: records[cell] for seed, cell in chosen.items()}, tried)

    def _cell(
        self, task: Task, start: str, step: int | None, seed: int, setting: Setting, before: Measured | None, carved: bool = False
    ) -> Cell:
        config = replace(self.config, evaluation=with_setting(self.config.evaluation, setting))
        more: dict[str, object] = {name: value for name, value in setting if name == "floor_learning_rate"}
        more |= {"carved": self.config.evaluation.grid.heldout_share} if carved else {}
        first = None
        if before is not None:
            first = before.cells[seed if seed in before.cells else next(iter(before.cells))].folder
            more["before"] = first.name if start == FLOOR else first.parent.name
        origin = self._origin(seed, task.reads_heads) if start == FLOOR else f"{self.run_hash}{'' if step is None else f'@{step}'}"
        key = evaluation_key(origin, config, task.name, seed, **more)[:RUN_ID_DIGITS]
        if start == FLOOR:
            place = self.config.output_dir / FLOORS / task.name / f"init_{seed}-{key}"
        else:
            place = self.folder / "evaluation" / task.name / f"seed_{seed}-{key}" / start
        return Cell(
            task.name,
            start,
            seed,
            setting,
            place,
            self.fingerprints[task.name] + (f"-{self.config.evaluation.grid.heldout_share}" if carved else ""),
            carved=carved,
            step=step,
            before=first,
            keeps_encoder=not carved and task.name in self.config.evaluation.start_from.values(),
            unlabelled="" if carved or step is not None or start == FLOOR else self._unlabelled.get(task.name, ""),
        )


def describe_choice(measured: Measured, protocol: str, root: Path) -> dict:
    """How the setting was found, for summary.json: protocol, what it was selected on, the setting, what was tried, and the cells' folders
    relative to `root`."""
    tried = [{**dict(setting), "median": median_score(records)} for setting, records in measured.tried.items()]
    return {
        "protocol": protocol,
        "label": PROTOCOLS[protocol],
        "setting": dict(measured.setting),
        "tried": tried,
        "cells": {str(seed): _relative(cell.folder, root) for seed, cell in measured.cells.items()},
    }


def _relative(folder: Path, root: Path) -> str:
    return str(folder.relative_to(root)) if folder.is_relative_to(root) else str(folder)
