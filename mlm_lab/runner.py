"""Run a config: look at what it needs, claim its folder, go through its stages, record how it ended.

What determines a run names its folder, and each stage does only what is missing there. So the same command again resumes an interrupted
run, and shows a finished one.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

from mlm_lab.console import say
from mlm_lab.errors import FAULT, OUTSIDE, Interrupted, UserError
from mlm_lab.provenance import provenance
from mlm_lab.run_config import RunConfig, config_hash, evaluations_asked, to_dict, to_yaml
from mlm_lab.run_folder import RunFolder


def run(config: RunConfig) -> dict:
    """Go through config.stages and return the run's summary (see run_folder).

    Raises:
        UserError: input that is missing or wrong. What can be seen beforehand is refused before anything is written; a run that had not
            got as far as training leaves no folder. A run whose weights are whole keeps its status, with the error beside it.
        Interrupted, KeyboardInterrupt: stopped on request; the same config resumes.
    """
    stages = [importlib.import_module(f"mlm_lab.stages.{name}") for name in config.stages]
    check_inputs(config, stages)
    run_hash = config_hash(config)  # reads the inputs, so it comes after the check
    folder = RunFolder.of(config.output_dir, run_hash)
    if {"pretrain", "evaluate"} & set(config.stages) and not is_finished(folder.read_summary(), run_hash, config):
        config.trainer.check_devices()
    parent_is_new = not config.output_dir.exists()
    try:
        with folder.claim():
            is_new = not folder.summary_json.exists()
            try:
                with config.logger.recording(folder, to_dict(config)):
                    _go_through(stages, config, folder, run_hash)
            except UserError:
                if is_new and not (folder.checkpoints.exists() or folder.metrics_csv.exists()):
                    shutil.rmtree(folder.path, ignore_errors=True)  # while it is claimed: it is nobody else's
                raise
    except UserError:
        if parent_is_new:
            with suppress(OSError):  # other runs are in it
                config.output_dir.rmdir()
        raise
    return folder.read_summary()


def check_inputs(config: RunConfig, stages: list[ModuleType]) -> None:
    """Look whether what each stage needs is there, before anything is prepared or written. Raises UserError."""
    for stage in stages:
        if hasattr(stage, "check"):
            stage.check(config)


def _go_through(stages: list[ModuleType], config: RunConfig, folder: RunFolder, run_hash: str) -> None:
    summary = folder.read_summary()
    if summary.get("status") == "finished":
        say(f"this run is finished: {folder.path} (another seed makes another run); what is missing is added")
    folder.record_start(to_yaml(config), config.overrides)
    about = {"config_hash": run_hash, "study": config.study, "tags": config.tags, "seeds": to_dict(config.seeds)}
    about["studies"] = studies_of(summary, config.study)
    origin = {} if summary.get("weights_sha256") else provenance()  # what trained the weights, not what evaluates them later
    folder.update_summary(status="running", error=None, failure=None, **about, **origin)
    try:
        for stage in stages:
            stage.run(config, folder)
    except (KeyboardInterrupt, Interrupted):
        _record_end(folder, status="interrupted")
        raise
    except BaseException as error:
        status = _status_after_mistake(folder, summary.get("status")) if isinstance(error, UserError) else "failed"
        _record_end(folder, status=status, error=f"{type(error).__name__}: {error}", failure=_failure(error))
        raise
    asked = evaluations_asked(run_hash, config).values() if "evaluate" in config.stages else ()
    folder.update_summary(status="finished", evaluated=sorted({*summary.get("evaluated", ()), *asked}))
    say(f"\nrun folder: {folder.path}")


def _failure(error: BaseException) -> str:
    """Whether what the run computed ended it, or what is outside of that (errors.py)."""
    from mlm_lab.training.failures import explain

    if isinstance(error, UserError):
        return error.failure
    return OUTSIDE if isinstance(error, OSError) or explain(error, "", 0.0) else FAULT


def _record_end(folder: RunFolder, **fields: object) -> None:
    """Where the disk is full the summary stays as it is, and what ended the run is still told."""
    with suppress(OSError):
        folder.update_summary(**fields)


def studies_of(summary: Mapping[str, Any], study: str | None) -> list[str]:
    """Every study that the run is part of, in the order in which they came to it; `study` is not in its hash, so that two share a run."""
    earlier = summary.get("studies") or [summary.get("study")]
    return list(dict.fromkeys(name for name in (*earlier, study) if name is not None))


def is_finished(summary: Mapping[str, Any], run_hash: str, config: RunConfig) -> bool:
    """Whether the run folder whose summary this is holds all that the config asks for."""
    has_weights = "pretrain" not in config.stages or summary.get("weights_sha256") is not None
    asked = evaluations_asked(run_hash, config).values() if "evaluate" in config.stages else ()
    return summary.get("status") == "finished" and has_weights and set(asked) <= set(summary.get("evaluated", ()))


def _status_after_mistake(folder: RunFolder, before: str | None) -> str:
    """A mistake in what comes after pretraining (a task's file, say) takes nothing from weights that are whole: the status stays as it was,
    and is "interrupted" where the run had not got to its end yet."""
    from mlm_lab.training.weights import are_whole

    if not are_whole(folder):
        return "failed"
    return "interrupted" if before in (None, "running") else before
