"""Rows of metrics.csv and of the loggers: what the steps gave, what they cost, and what held-out rows say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import lightning

from mlm_lab import console
from mlm_lab.run_config import SPENT
from mlm_lab.training.ceiling import matmul_flops_per_second
from mlm_lab.training.finite import IN_A_ROW, diverged, write_keys
from mlm_lab.training.metrics import LOSS_PREFIX, MetricsFile, averages
from mlm_lab.training.module import Pretraining
from mlm_lab.training.plateau import PlateauWatch
from mlm_lab.training.throughput import WARMUP_STEPS, Throughput
from mlm_lab.training.validation import HeldOut, evaluate

TOTALS = ("positions", "supervised_positions", "corpus_tokens", "dropped_slots")
"""What is counted over the whole run."""


class Recorder(lightning.Callback):
    """Rows of metrics.csv and of the loggers, validation, the progress bar, and the counts that end in summary.json.

    Attributes:
        totals: of all steps done.
        latest: the last value of each metric.
        plateau_left_step: the first look at which the run had left the unigram plateau.
    """

    def __init__(self, metrics_csv: Path, held_out: HeldOut, watch: PlateauWatch | None):
        """watch: None where there is no plateau to watch."""
        self.metrics_csv, self.held_out, self.watch = metrics_csv, held_out, watch
        self.totals = dict.fromkeys(TOTALS, 0.0)
        self.latest: dict[str, float] = {}
        self.plateau_left_step: int | None = None
        self.throughput = Throughput()
        self.rows = 0
        self.last_logged = 0
        self._bar: console.ProgressTask | None = None
        self._open = ExitStack()

    def on_train_start(self, trainer: lightning.Trainer, module: Pretraining) -> None:
        if trainer.is_global_zero:
            self._file = MetricsFile(self.metrics_csv)
            self._file.cut_back(self.rows)
        if module.step == 0 and module.course.config.pretrained is not None:
            self._measure_start(trainer, module)
        self._bar = self._open.enter_context(console.progress("Pretraining", module.total_steps, "steps"))
        self._bar.update(module.step)
        self._first_step = module.step
        matmul_flops_per_second(trainer.strategy.root_device, trainer.precision)  # kept; now, since its time and memory are not the steps'
        self.throughput.begin(self.positions(module))

    def _measure_start(self, trainer: lightning.Trainer, module: Pretraining) -> None:
        """A row for step 0: what given weights are worth on this text before they learn from it."""
        row = evaluate(module.module, self.held_out, **self._place(trainer, module))
        self._write(trainer, module, row)
        console.say(f"  start       held-out loss {row['val/loss']:.3f} before the first step")

    def teardown(self, trainer: lightning.Trainer, module: Pretraining, stage: str) -> None:
        self._open.close()

    def on_train_batch_end(self, trainer: lightning.Trainer, module: Pretraining, outputs: Any, batch: Any, batch_idx: int) -> None:
        step, last = module.step, module.step == module.total_steps
        row: dict[str, float] = {}
        if step % module.settings.log_every_steps == 0 or last:
            row |= self._training_row(trainer, module)
        elif step - self._first_step == WARMUP_STEPS:
            self.throughput.lap(self.positions(module))
        if step % module.course.config.validation.interval(module.total_steps) == 0 or last:
            row |= self._validation_row(trainer, module)
        if step % module.course.config.validation.watch_interval(module.total_steps) == 0 or last:
            self._look_at_plateau(trainer, module)
        if row:
            self._write(trainer, module, row)
            self._refuse_divergence(trainer, module)
        shown = {"loss": self.latest.get("train/loss"), "tokens/s": self.latest.get("train/tokens_per_second")}
        self._bar.advance(1, **{name: value for name, value in shown.items() if value is not None})

    def positions(self, module: Pretraining) -> float:
        """Non-padding inputs of all steps done, over all ranks. Waits for the device; every rank calls it."""
        return self.totals["positions"] + _counts(module.meter.fetch(module.reduce))["positions"]

    def _training_row(self, trainer: lightning.Trainer, module: Pretraining) -> dict[str, float]:
        fetched = module.meter.fetch(module.reduce)
        module.meter.clear()
        skipped = module.skipped.tell()
        steps, self.last_logged = module.step - self.last_logged, module.step
        self.totals = {name: self.totals[name] + new for name, new in _counts(fetched).items()}
        rate = self.throughput.lap(self.totals["positions"])
        shares = {name: pair for name, pair in fetched.items() if name not in TOTALS}
        means = averages(shares, module.module.loss_weights, module.module.token_loss) if len(skipped) < steps else {}
        row = {f"train/{name}": value for name, value in means.items()}
        if skipped:
            row["train/skipped_steps"] = len(skipped)
            numbers = ", ".join(f"{number + 1:,}" for number in skipped[:5]) + (", ..." if len(skipped) > 5 else "")
            console.warn(f"the gradient was not finite: no update in step {numbers}")
        counts = _counts(fetched)
        flops = (
            module.course.flops(module.total_steps, module.step).total - module.course.flops(module.total_steps, module.step - steps).total
        )
        flops_per_second = flops * rate / max(counts["positions"], 1)
        ceiling = matmul_flops_per_second(trainer.strategy.root_device, trainer.precision) * trainer.world_size
        return row | {
            "train/positions": counts["positions"] / steps,
            "train/supervised_positions": counts["supervised_positions"] / steps,
            "train/supervision_density": counts["supervised_positions"] / max(counts["positions"], 1),
            "train/flops_per_token": flops / max(counts["corpus_tokens"], 1),
            **_densities(fetched, counts["positions"]),
            "train/learning_rate": module.optimizers().param_groups[0]["lr"],
            "train/tokens_per_second": rate,
            "train/flops_per_second": flops_per_second,
            "train/ceiling_share": flops_per_second / ceiling,
        }

    def _validation_row(self, trainer: lightning.Trainer, module: Pretraining) -> dict[str, float]:
        with self._aside(module):
            return evaluate(module.module, self.held_out, **self._place(trainer, module))

    def _look_at_plateau(self, trainer: lightning.Trainer, module: Pretraining) -> None:
        if self.watch is None or self.plateau_left_step is not None:
            return
        with self._aside(module):
            if self.watch.has_left(module.module, **self._place(trainer, module)):
                self.plateau_left_step = module.step

    @contextmanager
    def _aside(self, module: Pretraining) -> Iterator[None]:
        """What is done here is not the training's time."""
        self.throughput.lap(self.positions(module))
        with self.throughput.paused():
            yield

    def _place(self, trainer: lightning.Trainer, module: Pretraining) -> dict[str, Any]:
        """Where held-out rows are measured: the run's device, ranks and precision."""
        return {
            "device": trainer.strategy.root_device,
            "rank": trainer.global_rank,
            "world_size": trainer.world_size,
            "reduce": module.reduce,
            "context": trainer.precision_plugin.forward_context,
        }

    @property
    def plateau(self) -> dict[str, int | bool | None]:
        """plateau_left_step and left_plateau, as in the run's summary; both None where nothing is watched."""
        left = None if self.watch is None else self.plateau_left_step is not None
        return {"plateau_left_step": self.plateau_left_step, "left_plateau": left}

    def _write(self, trainer: lightning.Trainer, module: Pretraining, row: dict[str, float]) -> None:
        self.latest |= row
        self.rows += 1
        row = row | self._spent(module)
        if trainer.is_global_zero:
            self._file.append(module.step, row)
        for logger in trainer.loggers:
            logger.log_metrics(row, step=module.step)

    def _spent(self, module: Pretraining) -> dict[str, float]:
        """Up to this step, right after a lap. The summary has the totals under names of its own. Every rank calls it."""
        tokens = self.totals["corpus_tokens"] + _counts(module.meter.fetch(module.reduce))["corpus_tokens"]
        flops = module.course.flops(module.total_steps, module.step).total
        return {f"{SPENT}tokens": tokens, f"{SPENT}flops": flops, f"{SPENT}seconds": self.throughput.seconds}

    def _refuse_divergence(self, trainer: lightning.Trainer, module: Pretraining) -> None:
        """Raises UserError on the first process where too many steps in a row were skipped, or the last one of the run. The others leave
        with 0: at any other code the launcher kills the first before it can tell."""
        steps = module.skipped.in_a_row
        if len(steps) < IN_A_ROW and not (steps and module.step == module.total_steps):
            return
        if not trainer.is_global_zero:
            raise SystemExit(0)
        keys = write_keys(self.metrics_csv.parent, module.course, module.total_steps, steps)
        raise diverged(module.step, steps, keys)

    def state(self, module: Pretraining) -> dict[str, Any]:
        """What a resumed run needs to write the same rows. Every rank calls it."""
        return {
            "meter": module.meter.fetch(module.reduce),
            "totals": self.totals,
            "latest": self.latest,
            "plateau_left_step": self.plateau_left_step,
            "throughput": self.throughput.state(),
            "rows": self.rows,
            "last_logged": self.last_logged,
            "skipped": module.skipped.state(),
        }

    def restore(self, state: dict[str, Any], trainer: lightning.Trainer, module: Pretraining) -> None:
        if trainer.is_global_zero:  # the sum over all ranks, so one rank holds it
            module.meter.restore(state["meter"], trainer.strategy.root_device)
        else:
            module.meter.restore(dict.fromkeys(state["meter"], (0.0, 0.0)), trainer.strategy.root_device)
        self.totals, self.latest, self.rows = state["totals"], state["latest"], state["rows"]
        self.plateau_left_step, self.last_logged = state["plateau_left_step"], state["last_logged"]
        self.throughput = Throughput(**state["throughput"])
        module.skipped.restore(state["skipped"])


def _counts(fetched: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    padding, inputs = fetched.get("padded_share", (0.0, 0.0))
    targets = sum(count for name, (_, count) in fetched.items() if name.startswith(LOSS_PREFIX))
    found = {"positions": inputs - padding, "supervised_positions": targets}
    return {name: fetched.get(name, (0.0, 0.0))[0] for name in TOTALS} | found


def _densities(fetched: Mapping[str, tuple[float, float]], positions: float) -> dict[str, float]:
    """Targets of each loss for each position, where there are several losses."""
    targets = {name.removeprefix(LOSS_PREFIX): count for name, (_, count) in fetched.items() if name.startswith(LOSS_PREFIX)}
    return {f"train/{name}_density": count / max(positions, 1) for name, count in targets.items()} if len(targets) > 1 else {}
