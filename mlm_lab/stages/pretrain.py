"""Pretraining, from a prepared token store to a run folder with weights:

    store -> course (data, module, costs) -> Lightning's loop over optimiser steps -> weights.safetensors, summary.json

The same command continues a run that was stopped, from its last checkpoint, and says so when there is nothing left to do.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab import console
from mlm_lab.errors import Interrupted, UserError
from mlm_lab.ranks import is_main_process
from mlm_lab.stages.prepare import Prepared, prepare
from mlm_lab.training.weights import WEIGHTS, file_sha256, load_weights, save_weights

if TYPE_CHECKING:
    from mlm_lab.config import RunConfig
    from mlm_lab.run_folder import RunFolder
    from mlm_lab.training.callbacks import Checkpoints, Recorder
    from mlm_lab.training.module import Pretraining

SAMPLES = 6
"""Fill-mask samples that are shown at the end."""


def run(config: RunConfig, folder: RunFolder) -> None:
    """Train until the budget is spent. Only the first process of a run returns; the others are done when the steps are.

    Raises:
        Interrupted: Ctrl-C or SIGTERM arrived; a checkpoint of the last whole step is written.
        UserError: the loss is not finite, the disk is full, a batch has fewer sequences than there are ranks.
    """
    from mlm_lab.training.display import show_result

    if is_finished(folder):
        console.say("pretraining is finished")
        show_result(folder.read_summary(), samples=[])
        return
    from mlm_lab.tokenizers.loading import load
    from mlm_lab.training.samples import fill_mask_samples

    prepared = prepare(config)
    module, recorder, checkpoints = fit(config, folder, prepared)
    _record(folder, module, recorder, checkpoints)
    if not is_main_process():
        raise SystemExit(0)  # what is left is for the first process; at another exit code the launcher would kill it
    if module.step < module.total_steps:
        raise Interrupted(128 + (checkpoints.stop_request.signal_number or signal.SIGTERM))
    tokenizer = load(prepared.tokenizer_file)
    tokenizer.save(folder.path)
    folder.update_summary(weights_sha256=save_weights(module.module, folder.path))
    show_result(folder.read_summary(), fill_mask_samples(module.module, module.course.validation, tokenizer, SAMPLES))


def is_finished(folder: RunFolder) -> bool:
    """Whether the run's weights are there, whole."""
    expected, weights = folder.read_summary().get("weights_sha256"), folder.path / WEIGHTS
    return expected is not None and weights.exists() and file_sha256(weights) == expected


def fit(config: RunConfig, folder: RunFolder, prepared: Prepared) -> tuple[Pretraining, Recorder, Checkpoints]:
    """Run the steps that are left."""
    from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher

    from mlm_lab.config import to_dict
    from mlm_lab.training.callbacks import Announcement, Checkpoints, Recorder
    from mlm_lab.training.course import Course
    from mlm_lab.training.module import Pretraining
    from mlm_lab.training.validation import HeldOut, unigram_baseline

    course = Course.open(config, prepared.store_folder)
    if config.pretrained is not None:
        load_weights(course.module, Path(config.pretrained).expanduser())
    held_out = HeldOut(config.objective, course.validation, config.max_length, config.validation.sequences, config.batch_size)
    baseline = unigram_baseline(course.train, held_out.labels(held_out.probe)) if held_out.probe else {}
    folder.update_summary(metrics=baseline)
    module = Pretraining(course, frozen_steps=folder.read_summary().get("budget_steps"))
    recorder = Recorder(folder.metrics_csv, held_out, baseline)
    checkpoints = Checkpoints(folder.checkpoints, recorder)
    trainer = config.trainer.build(
        folder=folder.path,
        loggers=config.logger.build(folder, to_dict(config)) if is_main_process() else [],
        callbacks=[Announcement(folder), recorder, checkpoints],
    )
    if min(phase.batch_size for phase in course.phases) < trainer.world_size:
        raise UserError(
            "a step has fewer sequences than there are ranks",
            given=f"batch_size={config.batch_size}",
            fix=f"batch_size={trainer.world_size}, or fewer trainer.devices",
        )
    try:
        trainer.fit(module)
    except BaseException:
        if isinstance(launcher := trainer.strategy.launcher, _SubprocessScriptLauncher):
            launcher.kill(signal.SIGKILL)  # the other ranks would wait for this one
        raise
    return module, recorder, checkpoints


def _record(folder: RunFolder, module: Pretraining, recorder: Recorder, checkpoints: Checkpoints) -> None:
    course, totals, flops = module.course, recorder.totals, module.course.flops(module.total_steps, module.step)
    folder.update_summary(
        steps=module.step,
        tokens=round(totals["corpus_tokens"]),
        positions=round(totals["positions"]),
        supervised_positions=round(totals["supervised_positions"]),
        dropped_slots=round(totals["dropped_slots"]),
        flops={"total": flops.total, "head": flops.head},
        parameters={"total": course.parameters, "encoder": sum(p.numel() for p in module.module.encoder.parameters())},
        seconds=recorder.throughput.seconds,
        tokens_per_second=recorder.throughput.positions_per_second,
        peak_memory_bytes=checkpoints.peak_memory_bytes,
        metrics={**recorder.latest, "plateau_left_step": recorder.plateau_left_step},
        fingerprints={"store": course.train.fingerprint, "tokenizer": course.train.vocabulary.fingerprint},
    )
