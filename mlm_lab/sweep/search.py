"""Random and Bayesian search, and early stopping, by Optuna: what to try next, and what need not go on.

    study (search.journal) -> ask -> point -> its process -> metrics.csv, as it grows -> stop it?
                           <- tell <- its summary

The journal holds every trial, so that a search goes on where it was; a trial that was running when the runner died is run to its end. Each
trial is drawn with a seed of its own (its number), so that an interrupted search asks for what it would have asked for without.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mlm_lab.errors import UserError
from mlm_lab.sweep.points import Point, make_point, spell
from mlm_lab.sweep.progress import history_of, metric_of, summary_of
from mlm_lab.sweep.records import COMMON, Records
from mlm_lab.sweep.runner import FAILED, FINISHED, STOPPED, Job
from mlm_lab.sweep.sweep_file import Distribution, SweepFile

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

JOURNAL = "search.journal"
RANDOM_FIRST = 10
"""Trials that are drawn at random before the others are looked at; Optuna's own number."""
VALIDATIONS = 10
"""Of a run whose validation.every_steps is null."""


class Search:
    """A source of jobs (runner.Source) that asks Optuna.

    points: of a grid, which Optuna then only stops early; empty for random and bayes.
    """

    def __init__(self, sweep: SweepFile, records: Records, points: Sequence[Point]):
        self._optuna = _import_optuna()
        self._sweep, self._records, self._loaded = sweep, records, {}
        self._distributions = {key: self._distribution(values) for key, values in sweep.parameters.items()}
        self.cap = len(points) if not sweep.is_searched else min(sweep.run_cap or math.inf, _combinations(sweep))
        self._study = self._open(points)
        self.jobs = [self._job(trial) for trial in self._study.get_trials() if trial.state.name != "WAITING"]

    def more(self) -> bool:
        if len(self.jobs) >= self.cap:
            return False
        self._study.sampler = self._sampler(len(self.jobs))
        asked = self._study.ask(self._distributions)
        self.jobs.append(self._job(self._study.get_trials()[asked.number]))
        return True

    def is_over(self, job: Job) -> bool:
        """Hand on what the run has logged since the last look."""
        if self._sweep.early_terminate is None:
            return False
        trial, reported = job.memory["trial"], job.memory.setdefault("reported", 0)
        history = history_of(job.point.folder, self._sweep.metric)
        over = False
        for number, value in enumerate(history[reported:], start=reported + 1):
            trial.report(value, step=number)
            over = over or trial.should_prune()
        job.memory["reported"] = len(history)
        return over

    def settled(self, job: Job) -> None:
        states, trial = self._optuna.trial.TrialState, job.memory["trial"]
        value = metric_of(summary_of(job.point.folder), self._sweep.metric) if job.state == FINISHED else None
        state = states.PRUNED if job.state == STOPPED else states.FAIL if value is None else states.COMPLETE
        self._study.tell(trial, value, state=state, skip_if_finished=True)

    def best(self) -> Job | None:
        """The finished job with the best value."""
        values = {job.name: metric_of(summary_of(job.point.folder), self._sweep.metric) for job in self.jobs if job.state == FINISHED}
        sign = 1 if self._sweep.goal == "minimize" else -1
        known = [job for job in self.jobs if values.get(job.name) is not None]
        return min(known, key=lambda job: sign * values[job.name], default=None)

    def _open(self, points: Sequence[Point]) -> optuna.Study:
        """The study of the journal; a grid's points stand in it from the beginning."""
        backend = self._optuna.storages.journal.JournalFileBackend
        self._records.path.mkdir(parents=True, exist_ok=True)
        study = self._optuna.create_study(
            storage=self._optuna.storages.JournalStorage(backend(str(self._records.path / JOURNAL))),
            study_name=self._name(),
            direction=self._sweep.goal,
            pruner=self._pruner(points),
            load_if_exists=True,
        )
        drawn = [point.values for point in points] if not self._sweep.is_searched else self._drawn()
        for values in drawn:
            study.enqueue_trial({key: spell(value) for key, value in values.items()}, skip_if_exists=True)
        return study

    def _drawn(self) -> list[dict[str, Any]]:
        """Of a random search of listed values: the points in an order drawn at random, each once."""
        if self._sweep.method != "random" or _combinations(self._sweep) == math.inf:
            return []
        lists = self._sweep.parameters
        numbers = random.Random(0).sample(range(math.prod(map(len, lists.values()))), self.cap)
        places = [np.unravel_index(number, [len(values) for values in lists.values()]) for number in numbers]
        return [{key: values[i] for (key, values), i in zip(lists.items(), place, strict=True)} for place in places]

    def _name(self) -> str:
        """Another budget, another range: another search, which starts from nothing."""
        asked = json.dumps([self._sweep.overrides, {key: str(values) for key, values in self._sweep.parameters.items()}])
        return f"{self._sweep.name}-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"

    def _job(self, trial: optuna.trial.FrozenTrial) -> Job:
        """The trial as a job; one that has ended stays as it is."""
        job = Job(self._point(trial.params), memory={"trial": self._optuna.trial.Trial(self._study, trial._trial_id)})
        ended = {"COMPLETE": FINISHED, "PRUNED": STOPPED, "FAIL": FAILED}.get(trial.state.name)
        if ended is not None:
            job.state, job.skipped = ended, True
        self._records.plan(job.point, COMMON)
        return job

    def _point(self, params: Mapping[str, Any]) -> Point:
        """Listed values come back as they stand in the file; of others four digits are enough for anything that is searched."""
        values = {}
        for key, listed in self._sweep.parameters.items():
            if isinstance(listed, Distribution):
                values[key] = params[key] if listed.is_whole else float(f"{params[key]:.4g}")
            else:
                values[key] = next(value for value in listed if spell(value) == params[key])
        return make_point(self._sweep, values, self._loaded)

    def _distribution(self, values: tuple[Any, ...] | Distribution) -> BaseDistribution:
        distributions = self._optuna.distributions
        if not isinstance(values, Distribution):
            return distributions.CategoricalDistribution([spell(value) for value in values])
        if values.is_whole:
            return distributions.IntDistribution(int(values.low), int(values.high))
        if values.is_log:
            return distributions.FloatDistribution(values.low, values.high, log=True)
        return distributions.FloatDistribution(values.low, values.high, step=values.step)

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        samplers = self._optuna.samplers
        if self._sweep.method == "bayes":
            return samplers.TPESampler(seed=number, n_startup_trials=RANDOM_FIRST, constant_liar=True)
        return samplers.RandomSampler(seed=number)

    def _pruner(self, points: Sequence[Point]) -> optuna.pruners.BasePruner:
        """W&B's hyperband by Optuna's; an iteration is a value of the metric, as there."""
        early = self._sweep.early_terminate
        if early is None:
            return self._optuna.pruners.NopPruner()
        eta, longest = early.get("eta", 3), early.get("max_iter", VALIDATIONS)
        least = early.get("min_iter") or max(1, longest // eta ** early.get("s", 1))
        return self._optuna.pruners.HyperbandPruner(min_resource=least, max_resource=max(longest, least), reduction_factor=eta)


def _combinations(sweep: SweepFile) -> float:
    """How many points there are to find."""
    every = sweep.parameters.values()
    return math.inf if any(isinstance(values, Distribution) for values in every) else math.prod(map(len, every))


def _import_optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise UserError("random, bayes and early stopping need Optuna", fix="pip install 'mlm_lab[sweep]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
