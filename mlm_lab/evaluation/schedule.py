"""Runs plans: the cells that they ask for and that are missing, one after the other or side by side in worker processes.

plans ──cells──> on disk already? ── yes ──> record ──> plan goes on
                                  └─ no ──> queue ──> bench (here, or in a worker) ──> record ──┘
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping

from mlm_lab import console
from mlm_lab.evaluation.bench import Bench
from mlm_lab.evaluation.cells import Cell
from mlm_lab.evaluation.plans import Measured, Plan, PlanName
from mlm_lab.processes import Workers


def run_plans(
    plans: Mapping[PlanName, Callable[[Measured | None], Plan]],
    before: Callable[[PlanName], PlanName | None],
    bench: Bench,
) -> dict[PlanName, Measured]:
    """Run every plan to its end. before: the plan that another one waits for, if any."""
    return _Schedule(plans, before, bench).run()


def side_by_side(bench: Bench) -> int:
    """How many processes to measure in: one, unless the CPU computes and this system can fork safely."""
    import torch

    can_fork = sys.platform == "linux" and bench.fabric.device.type == "cpu" and not torch.cuda.is_available()
    return (bench.config.evaluation.jobs or torch.get_num_threads()) if can_fork else 1


class _Schedule:
    def __init__(
        self,
        plans: Mapping[PlanName, Callable[[Measured | None], Plan]],
        before: Callable[[PlanName], PlanName | None],
        bench: Bench,
    ):
        self._starters, self._before, self._bench = plans, before, bench
        self._running: dict[PlanName, Plan] = {}
        self._needs: dict[PlanName, list[Cell]] = {}
        self._records: dict[Cell, dict] = {}
        self._queue: deque[Cell] = deque()
        self._asked: set[Cell] = set()
        self._results: dict[PlanName, Measured] = {}

    def run(self) -> dict[PlanName, Measured]:
        for name in self._starters:
            if self._before(name) not in self._starters:
                self._start(name)
        if len(self._queue) > 1 and (jobs := min(side_by_side(self._bench), len(self._queue))) > 1:
            self._bench.module(self._queue[0])  # before the fork: what all of the workers need they share
            with Workers(jobs, self._bench.run) as workers:
                self._run_in(workers)
        while self._queue:
            cell = self._queue.popleft()
            self._arrive(cell, self._bench.run(cell))
        return {name: self._results[name] for name in self._starters}

    def _run_in(self, workers: Workers[Cell, dict]) -> None:
        under_way = 0
        while self._queue or under_way:
            while self._queue and workers.has_room:
                workers.submit(self._queue.popleft())
                under_way += 1
            cell, record = workers.next()
            under_way -= 1
            console.say(f"{cell}: {_score(record)}  ({record['seconds']:.1f} s; {len(self._queue) + under_way} more)")
            self._arrive(cell, record)

    def _start(self, name: PlanName) -> None:
        before = self._before(name)
        self._running[name] = self._starters[name](self._results.get(before))
        self._advance(name, None)

    def _advance(self, name: PlanName, records: dict[Cell, dict] | None) -> None:
        """Let the plan go on until it needs a cell that is not there yet."""
        while True:
            try:
                needs = self._running[name].send(records)
            except StopIteration as end:
                self._finish(name, end.value)
                return
            for cell in needs:
                self._ask(cell)
            if any(cell not in self._records for cell in needs):
                self._needs[name] = needs
                return
            records = {cell: self._records[cell] for cell in needs}

    def _ask(self, cell: Cell) -> None:
        if cell in self._asked:
            return
        self._asked.add(cell)
        if (record := cell.read()) is not None:
            self._records[cell] = record
        else:
            self._queue.append(cell)

    def _arrive(self, cell: Cell, record: dict) -> None:
        if record["status"] == "failed":
            console.warn(f"{cell}: failed: {record['reason']}")
        self._records[cell] = record
        for name in [name for name, needs in self._needs.items() if cell in needs]:
            needs = self._needs[name]
            if all(needed in self._records for needed in needs):
                del self._needs[name]
                self._advance(name, {needed: self._records[needed] for needed in needs})

    def _finish(self, name: PlanName, measured: Measured) -> None:
        del self._running[name]
        self._results[name] = measured
        for other in self._starters:
            if self._before(other) == name:
                self._start(other)


def _score(record: Mapping) -> str:
    name, value = next(iter(record.get("metrics", {}).items()), ("failed", None))
    return name if value is None else f"{name} {value:.3f}"
