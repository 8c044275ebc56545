"""Pretraining, from a prepared token store to a run folder with weights:

    store -> course (data, module, costs) -> Lightning's loop over optimiser steps -> weights.safetensors, summary.json

The same command continues a run that was stopped, from its last checkpoint, and says so when there is nothing left to do.
"""

from __future__ import annotations

import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from mlm_lab import console
from mlm_lab.errors import OUTSIDE, Interrupted, UserError
from mlm_lab.interchange.folder import HuggingFaceFolder, is_hugging_face
from mlm_lab.ranks import is_main_process
from mlm_lab.run_config import to_dict
from mlm_lab.stages.prepare import Prepared, prepare
from mlm_lab.training.trainer import resolve_precision
from mlm_lab.training.weights import are_whole, load_weights, save_weights, weights_file

if TYPE_CHECKING:
    from mlm_lab.run_config import RunConfig
    from mlm_lab.run_folder import RunFolder
    from mlm_lab.training.callbacks import Checkpoints
    from mlm_lab.training.module import Pretraining
    from mlm_lab.training.recorder import Recorder
    from mlm_lab.types import ObjectiveModule

SAMPLES = 6
"""Fill-mask samples that are shown at the end."""


def check(config: RunConfig) -> None:
    """Raises UserError for what can be seen of the corpus without reading it, rows that the model cannot take, `pretrained` without
    weights."""
    if "prepare" not in config.stages:
        config.data.check()
    config.model.check_length(config.max_length)
    if config.pretrained is not None:
        check_start(Path(config.pretrained).expanduser())


def run(config: RunConfig, folder: RunFolder) -> None:
    """Train until the budget is spent. Only the first process of a run returns; the others are done when the steps are.

    Raises:
        Interrupted: Ctrl-C or SIGTERM arrived; a checkpoint of the last whole step is written.
        UserError: the loss is not finite, the disk is full, a batch has fewer sequences than there are ranks.
    """
    from mlm_lab.training.display import show_result

    if are_whole(folder):
        console.say("pretraining is finished")
        show_result(folder.read_summary(), samples=[])
        return
    from mlm_lab.tokenizers.loading import load
    from mlm_lab.training.curve import FIGURE, draw_loss_curve
    from mlm_lab.training.interrupt import TIME_IS_UP, requeue
    from mlm_lab.training.samples import fill_mask_samples

    prepared = prepare(config)
    module, recorder, checkpoints = fit(config, folder, prepared)
    _record(folder, prepared, module, recorder, checkpoints)
    whole = module.whole()
    if not is_main_process():
        raise SystemExit(0)  # what is left is for the first process; at another exit code the launcher would kill it
    if module.step < module.total_steps:
        number = checkpoints.stop_request.signal_number or signal.SIGTERM
        if number == TIME_IS_UP:
            requeue()
        raise Interrupted(128 + (number if number == signal.SIGINT else signal.SIGTERM))
    tokenizer = load(prepared.tokenizer_file)
    tokenizer.save(folder.path)
    digest = save_weights(whole, folder.path)
    draw_loss_curve(folder.metrics_csv, folder.read_summary(), folder.path / FIGURE)
    samples = fill_mask_samples(whole, module.course.validation, tokenizer, SAMPLES)
    # Last: from here on pretraining is over, and nobody makes what is missing.
    folder.update_summary(weights_sha256=digest, fill_mask=[asdict(sample) for sample in samples])
    show_result(folder.read_summary(), samples)
    console.say(f"loss curve beside what frequencies and neighbours give: {folder.path / FIGURE}")


def fit(config: RunConfig, folder: RunFolder, prepared: Prepared) -> tuple[Pretraining, Recorder, Checkpoints]:
    """Run the steps that are left."""
    from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher

    from mlm_lab.training.allocator import keep_large_blocks
    from mlm_lab.training.callbacks import Announcement, Checkpoints
    from mlm_lab.training.course import Course
    from mlm_lab.training.failures import explained, watching
    from mlm_lab.training.module import Pretraining
    from mlm_lab.training.plateau import PlateauWatch
    from mlm_lab.training.recorder import Recorder
    from mlm_lab.training.validation import HeldOut

    keep_large_blocks()
    course = Course.open(config, prepared.store_folder)
    if config.pretrained is not None:
        start_from(Path(config.pretrained).expanduser(), course.module, prepared)
    held_out = HeldOut(config.objective, course.validation, config.max_length, config.validation.sequences, _rows_at_a_time(config))
    watch = PlateauWatch.over(held_out, course.train)
    folder.update_summary(metrics=watch.baseline if watch else {})
    module = Pretraining(course, frozen_steps=folder.read_summary().get("budget_steps"))
    recorder = Recorder(folder.metrics_csv, held_out, watch)
    checkpoints = Checkpoints(folder.checkpoints, recorder)
    trainer = config.trainer.build(
        folder=folder.path,
        loggers=config.logger.build(folder, to_dict(config)) if is_main_process() else [],
        callbacks=[recorder, checkpoints, Announcement(folder, recorder)],  # a resumed run is restored before it is announced
    )
    if min(phase.batch_size for phase in course.phases) < trainer.world_size:
        raise UserError(
            "a step has fewer sequences than there are ranks",
            given=f"batch_size={config.batch_size}",
            fix=f"batch_size={trainer.world_size}, or fewer trainer.devices",
        )
    launcher = trainer.strategy.launcher
    children = (lambda: launcher.procs) if isinstance(launcher, _SubprocessScriptLauncher) else list
    with watching(children, lambda why: folder.update_summary(status="failed", error=why, failure=OUTSIDE)) as wait_for_the_end:
        try:
            with explained(_sizes(config), config.trainer.timeout_seconds, trainer.world_size):
                trainer.fit(module)
        except BaseException:
            wait_for_the_end()  # that a rank is gone says more than what became of it here
            for child in children():
                child.kill()  # the other ranks would wait for this one
            raise
    return module, recorder, checkpoints


def _rows_at_a_time(config: RunConfig) -> int:
    """Rows of a held-out batch: no more than what memory has been said to hold."""
    return min(config.batch_size, config.trainer.micro_batch_size or config.batch_size)


def _sizes(config: RunConfig) -> str:
    """The keys that memory depends on."""
    micro = config.trainer.micro_batch_size
    return f"batch_size={config.batch_size} max_length={config.max_length} trainer.micro_batch_size={'null' if micro is None else micro}"


def check_start(folder: Path) -> None:
    """Raises UserError where `pretrained` has no weights to start from."""
    if is_hugging_face(folder):
        HuggingFaceFolder(folder).weight_files()
    else:
        weights_file(folder)


def start_from(folder: Path, module: ObjectiveModule, prepared: Prepared) -> None:
    """Copy the weights of a run or of a Hugging Face folder into a fresh module, and say what it did not have.

    Raises UserError: the weights are of another model, or of another vocabulary.
    """
    from mlm_lab.tokenizers.loading import load

    tokenizer = load(prepared.tokenizer_file)
    tokenizer.check_pieces_of(folder)
    if not is_hugging_face(folder):
        load_weights(module, folder)
        return
    taken = HuggingFaceFolder(folder).load_into(module, tokenizer)
    console.say(f"starts from {folder}: {', '.join(taken.loaded)}")
    if taken.fresh:
        console.say(f"not in that folder, made anew: {', '.join(taken.fresh)}")
    if taken.new_tokens:
        console.say(f"{taken.new_tokens:,} new tokens, each from the mean of its pieces")


def _record(folder: RunFolder, prepared: Prepared, module: Pretraining, recorder: Recorder, checkpoints: Checkpoints) -> None:
    course, totals, flops = module.course, recorder.totals, module.course.flops(module.total_steps, module.step)
    folder.update_summary(
        steps=module.step,
        tokens=round(totals["corpus_tokens"]),
        positions=round(totals["positions"]),
        supervised_positions=round(totals["supervised_positions"]),
        dropped_slots=round(totals["dropped_slots"]),
        skipped_steps=module.skipped.total,
        flops={"total": flops.total, "head": flops.head},
        parameters={"total": course.parameters, "encoder": sum(p.numel() for p in module.module.encoder.parameters())},
        seconds=recorder.throughput.seconds,
        tokens_per_second=recorder.throughput.positions_per_second,
        peak_memory_bytes=checkpoints.peak_memory_bytes,
        precision=resolve_precision(course.config.trainer),
        metrics={**recorder.latest, **recorder.plateau},
        fingerprints={
            "corpus": prepared.corpus_fingerprint,
            "tokenizer": prepared.vocabulary.fingerprint,
            "store": prepared.fingerprint,
        },
    )
