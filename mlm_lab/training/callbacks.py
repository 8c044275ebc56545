"""What happens after a step: a row of metrics, a validation, a checkpoint, the progress bar; in this order, inside the loop, so that a
checkpoint knows every row before it. A resumed run has the same rows as one that was never stopped.

    step done -> [log row] -> [validation] -> [look at the plateau] (recorder.py) -> [checkpoint] -> stop if asked
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lightning
import torch

from mlm_lab.atomic import sync
from mlm_lab.run_folder import RunFolder
from mlm_lab.training import memory, resumption
from mlm_lab.training.display import show_course
from mlm_lab.training.interrupt import StopRequest
from mlm_lab.training.module import Pretraining
from mlm_lab.training.recorder import Recorder
from mlm_lab.training.weights import save_weights

PREDICTION_SECONDS, PREDICTION_STEPS = 1.0, 50
"""Time spent on measuring a step for the predicted time."""


class Announcement(lightning.Callback):
    """Says what is about to run, and freezes the budget's steps in the run folder.

    Stands behind Checkpoints: how many threads compute, and how many steps are left, is known when a resumed run is restored.
    """

    def __init__(self, folder: RunFolder, recorder: Recorder):
        self.folder, self.recorder = folder, recorder

    def on_fit_start(self, trainer: lightning.Trainer, module: Pretraining) -> None:
        self.folder.update_summary(budget_steps=module.total_steps, **({"step_time": module.step_time} if module.step_time else {}))
        # Every rank measures, since they share the machine; on a copy, for which there may be no room beside a restored optimiser.
        seconds = (
            self.recorder.throughput.seconds / module.step if module.step else module.seconds_per_step(PREDICTION_SECONDS, PREDICTION_STEPS)
        )
        precision, device = trainer.precision, trainer.strategy.root_device.type
        show_course(module.course, module.total_steps, precision, f"{trainer.world_size} x {device}", seconds, done=module.step)


class Checkpoints(lightning.Callback):
    """Writes checkpoints inside the loop, starts from the last good one, and stops after the step in which Ctrl-C or SIGTERM arrived.

    Attributes:
        stop_request: which signal arrived, if any.
        peak_memory_bytes: of this run's processes so far, earlier starts included; read where training goes on.
    """

    def __init__(self, folder: Path, recorder: Recorder):
        self.folder, self.recorder = folder, recorder
        self.stop_request = StopRequest()
        self._device = torch.device("cpu")
        self._earlier_peak = 0
        self._open = ExitStack()

    def on_fit_start(self, trainer: lightning.Trainer, module: Pretraining) -> None:
        state = resumption.restore(self.folder, trainer, module)
        if state is None:
            return
        self._earlier_peak = state["peak_memory_bytes"]
        self.recorder.restore(state["recorder"], trainer, module)

    def on_train_start(self, trainer: lightning.Trainer, module: Pretraining) -> None:
        self._open.enter_context(self.stop_request)  # now, since Lightning has put its own handlers in place just before
        self._device = trainer.strategy.root_device
        memory.begin(self._device)

    def on_train_batch_end(self, trainer: lightning.Trainer, module: Pretraining, outputs: Any, batch: Any, batch_idx: int) -> None:
        module.stop_requested = self.stop_request.signal_number is not None
        stop, settings = module.should_stop, module.course.config.checkpoint
        if stop or module.step == module.total_steps or module.step % settings.interval(module.total_steps) == 0:
            self._save(trainer, module, settings.keep)
        if settings.keeps_weights_at(module.step, module.total_steps):
            self.recorder.throughput.lap(self.recorder.positions(module))
            with self.recorder.throughput.paused():
                whole = module.whole()
                if trainer.is_global_zero:
                    save_weights(whole, self.folder.parent, module.step)
        if stop and module.step < module.total_steps:
            trainer.should_stop = True

    def on_train_end(self, trainer: lightning.Trainer, module: Pretraining) -> None:
        self._open.close()  # before Lightning puts back the handlers that it found

    def on_exception(self, trainer: lightning.Trainer, module: Pretraining, exception: BaseException) -> None:
        self._open.close()

    @property
    def peak_memory_bytes(self) -> int:
        return max(self._earlier_peak, memory.peak_bytes(self._device))

    def _save(self, trainer: lightning.Trainer, module: Pretraining, keep: int) -> None:
        throughput = self.recorder.throughput
        throughput.lap(self.recorder.positions(module))
        with throughput.paused():
            if trainer.is_global_zero:
                sync(self.recorder.metrics_csv)  # the checkpoint knows how many rows there are
            about = {"recorder": self.recorder.state(module), "peak_memory_bytes": self.peak_memory_bytes}
            resumption.save(self.folder, trainer, module, about, keep)
