"""A run's folder: its layout, the one summary.json, and the claim that keeps two processes out of it. Imports nothing that trains.

    OUTPUT_DIR/RUN_ID/                the first twelve digits of the config's hash
        config.yaml                   the resolved config of the last start
        overrides.txt                 the command line of each start that differed from the one before
        metrics.csv                   one row for each logged step, with what was spent by then (spent/tokens, flops, seconds)
        summary.json                  what is known of the run (below)
        checkpoints/
        .claim-N                      the process that works on it now (claim.py)
        weights/                      step-N.safetensors that checkpoint.keep_weights_at asks for
        evaluation/TASK/seed_N-KEY/   per-example predictions of a cell; KEY starts the hash of what determines it
        evaluation/submission/seed_N/ predictions for a test server
    OUTPUT_DIR/floors/TASK/init_N-KEY/  the same on random weights, shared by all runs
    OUTPUT_DIR/step_times/KEY.json      the time of a step, shared by the runs whose steps cost the same (training/step_times.py)

summary.json, written whole by each update (a reader sees the old one or the new one, never a part); a number that is not finite is null:

    status                 running, finished, failed or interrupted; error: what stopped the last start, null if nothing did; failure:
                           diverged, outside or fault (errors.py), null likewise
    study, tags            as configured; studies: every study that started the run or found it finished
    tuned                  {study: "optim.peak_lr=0.002"}: in which studies the run has what was chosen for its arm
    evaluated              what of the evaluation is finished: the hash of each task's cells (run_config.evaluations_asked)
    config_hash            64 hexadecimal digits; weights_sha256 of the encoder and heads after the last step
    budget_steps           the budget in optimiser steps; frozen at the first start
    step_time              {key, seconds}: what a budget in hours was turned into steps by (training/step_times.py)
    steps, tokens          optimiser steps done; raw corpus tokens
    positions              non-padding inputs, encoder and decoder; supervised_positions: targets; dropped_slots: targets without a slot
    skipped_steps          steps without an update, since the gradient was not finite (training/finite.py)
    flops                  {total, head}: of the run, and the vocabulary projection's part
    parameters             {total, ...}
    precision              what the steps ran in (trainer.precision with auto resolved)
    seconds, tokens_per_second, peak_memory_bytes     timings: with step_time the only fields that two runs of the same bits may differ in
    metrics                {name: value}, val/loss among them; unigram_loss, unigram_accuracy and neighbour_loss: the same targets by
                           frequency and by their two neighbours alone; left_plateau, plateau_left_step: whether and by which step the run
                           knew more than frequencies, with plateau_mark, the loss that says so (training/plateau.py; null: not watched)
    evaluation             {task: {metric: {n, mean, std, median, values, seeds, collapsed, failed, protocol, baselines, above_floor,
                           floor: {n, mean, std, median, values, seeds, collapsed, failed}}}}, glue: {average: likewise} where it is whole
    evaluation_settings    {task: {protocol, label, setting, tried, cells: {seed: folder}, floor: {the same}}}: how they were found; digest:
                           of how the task was measured (run_config.measured_how); examples: digest of those that it was measured on
    evaluation_at          {step: {task: as in evaluation}}: of weights on the way
    overlap                {task: {part: {examples, shared, too_short, share}}}: examples that the training text contains
    random_weights         digests of the floors' encoders
    seeds, hardware, versions, git_commit, fingerprints {corpus, tokenizer, store}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mlm_lab import atomic, claim
from mlm_lab.errors import UserError
from mlm_lab.ranks import is_main_process

RUN_ID_DIGITS = 12


class RunFolder:
    """The paths of a run and what is recorded in them. Makes nothing on disk until it is claimed or written to."""

    def __init__(self, path: Path | str):
        self.path = Path(path)

    @classmethod
    def of(cls, output_dir: Path, config_hash: str) -> RunFolder:
        """The folder of the run with this hash."""
        return cls(output_dir / config_hash[:RUN_ID_DIGITS])

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def metrics_csv(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def summary_json(self) -> Path:
        return self.path / "summary.json"

    def evaluation_folder(self, task: str, seed: int, key: str) -> Path:
        """Where the cell (task, fine-tuning seed) keeps its predictions. key: the hash of what determines it."""
        return self.path / "evaluation" / task / f"seed_{seed}-{key[:RUN_ID_DIGITS]}"

    def read_summary(self) -> dict:
        """What summary.json holds; {} where there is none yet. Raises UserError where it is not readable as JSON."""
        try:
            return json.loads(self.summary_json.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            fix = "remove the file: the run starts again from its last checkpoint"
            raise UserError("the run's summary is damaged", where=str(self.summary_json), given=str(error), fix=fix) from None

    def update_summary(self, **fields: object) -> None:
        """Set fields of summary.json, whole and at once. A mapping is merged into the one that is there by its first level of keys
        (so evaluation={"cola": ...} keeps the other tasks); anything else is replaced. Only the first process writes.
        """
        if not is_main_process():
            return
        summary = self.read_summary()
        for name, value in fields.items():
            known = summary.get(name)
            summary[name] = {**known, **value} if isinstance(known, dict) and isinstance(value, Mapping) else value
        self.write_text("summary.json", json.dumps(_plain(summary), indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Write a small file of the folder atomically. Only the first process writes."""
        if not is_main_process():
            return
        atomic.write_text(self.path / name, text)

    def record_start(self, config_yaml: str, overrides: tuple[str, ...]) -> None:
        """Write config.yaml, and a line of overrides.txt unless the last line says the same."""
        self.write_text("config.yaml", config_yaml)
        earlier = self.path / "overrides.txt"
        lines = earlier.read_text(encoding="utf-8").splitlines() if earlier.exists() else []
        line = " ".join(overrides)
        if not lines or lines[-1] != line:
            self.write_text("overrides.txt", "\n".join([*lines, line]) + "\n")

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Hold the folder while the run is worked on. The claim ends with the process, however it ends.

        Other processes of the same run (ranks) pass through: the first one claims for all.
        Raises Claimed where another process, of whatever machine, holds it, naming its process id and host.
        """
        if not is_main_process():
            yield
            return
        with claim.hold(self.path):
            yield

    def claimed_by(self) -> str | None:
        """The process that works on the run now, on whatever machine; None where none does."""
        return claim.holder(self.path)


def _plain(value: object) -> object:
    """What JSON can carry: NumPy and torch scalars as numbers, paths as text, numbers that are not finite as null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    raise TypeError(f"summary.json cannot hold a {type(value).__name__}: {value!r}")
