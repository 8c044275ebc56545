"""`python -m mlm_lab`: one run, or with -m several. What a user can mend is told in a few lines on stderr, with exit code 2."""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from mlm_lab.errors import DISK_FULL, Interrupted, UserError
from mlm_lab.ranks import is_main_process

_DISK = {*DISK_FULL, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EIO}
"""What the operating system says about a disk, or a place on it, that a user has to see to."""

RANK_SECONDS = 3.0
"""For the first process of a run to say what went wrong, and to end the others."""


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says. Returns the exit code: 0, 2 for a mistake of the user's, 130 for Ctrl-C, 143 for SIGTERM."""
    words = list(sys.argv[1:] if argv is None else argv)
    return answer(lambda: _dispatch(words))


def answer(do: Callable[[], int]) -> int:
    """What every door does with what goes wrong: print it in a few lines on stderr. Returns the exit code."""
    try:
        return do()
    except UserError as error:
        if not is_main_process():
            _tell_of_a_rank(str(error))
        return _tell(str(error), error.exit_code)
    except Interrupted as error:
        return _tell(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _tell("interrupted (Ctrl-C)", 130)
    except BrokenPipeError:  # `... | head`: the reader has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in _DISK:
            raise
        return _tell(f"{error.strerror}\n  where:   {error.filename or 'unknown'}", 2)


def _dispatch(words: list[str]) -> int:
    options = _parse_options(words)
    if options.help is not None:
        from mlm_lab import help
        from mlm_lab.config.options import conf_dir
        from mlm_lab.fold import fold, terminal_width

        folders = [conf_dir(), *([Path(options.config_dir)] if options.config_dir else [])]
        print(fold(help.option(folders, options.help) if options.help else help.overview(folders), terminal_width()))
        return 0
    if options.cfg:
        import yaml

        from mlm_lab.config import compose_values

        print(yaml.safe_dump(compose_values(options.overrides, options.config_dir), sort_keys=False, allow_unicode=True), end="")
        return 0
    _catch_signals()
    if options.multirun:
        return _multirun(options)
    _run(options.overrides, options.config_dir)
    return 0


def _parse_options(words: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="python -m mlm_lab", add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", nargs="?", const="", default=None)
    parser.add_argument("--cfg", "-c", choices=["job"])
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("overrides", nargs="*")
    return parser.parse_intermixed_args(words)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise UserError(message, fix="python -m mlm_lab --help")


def _run(overrides: Sequence[str], config_dir: str | None) -> None:
    from mlm_lab.config import compose

    config = compose(overrides, config_dir)
    from mlm_lab.runner import run

    run(config)


def _multirun(options: argparse.Namespace) -> int:
    """Hand the points to Hydra's launcher (basic, joblib, submitit). One point is checked first; Hydra's own files go under output_dir."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let what a run raises come through to main()
    from mlm_lab.config import compose_values, instantiate
    from mlm_lab.config.options import conf_dir
    from mlm_lab.config.overrides import first_values, words_for_hydra

    values = compose_values(first_values(options.overrides), options.config_dir)
    instantiate(values)
    places = ["hydra.run.dir=.", f"hydra.sweep.dir={values['output_dir']}/multirun/${{now:%Y-%m-%d_%H-%M-%S}}"]
    quiet = ["hydra.output_subdir=null", "hydra/job_logging=none", "hydra/hydra_logging=none", "hydra.job.name=mlm_lab"]
    words = words_for_hydra(options.overrides, options.config_dir)
    where = ["--config-dir", options.config_dir] if options.config_dir else []
    if any(word.startswith("hydra/launcher=") for word in words):
        if "hydra/launcher=submitit_slurm" in words and shutil.which("srun") is None:
            raise UserError(
                "there is no Slurm on this machine (no srun)",
                given="hydra/launcher=submitit_slurm",
                fix="start it where the cluster takes jobs; hydra/launcher=submitit_local runs them on this machine",
            )
        print(f"what each point prints is in the launcher's files: {values['output_dir']}/multirun/", flush=True)
    sys.argv = [sys.argv[0], "--multirun", *where, *places, *quiet, *words]
    import hydra

    hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(_job)()
    return 0


def _job(_: object) -> None:
    """One point of a multirun. Hydra has composed a config of its own; ours is composed from the same words, with our checks."""
    from hydra.core.hydra_config import HydraConfig

    settings = HydraConfig.get()
    extra = [source.path for source in settings.runtime.config_sources if source.provider == "command-line"]
    words = [word.lstrip("+").replace("arm@_global_=", "arm=") for word in settings.overrides.task]
    _run(words, extra[0] if extra else None)


def _catch_signals() -> None:
    """Ctrl-C and SIGTERM outside the training loop end the run in the same way, so that its status is recorded: Lightning turns a
    KeyboardInterrupt into exit code 1."""
    from mlm_lab.training.interrupt import TIME_IS_UP, is_slurm_job, requeue

    owner = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            if number == TIME_IS_UP and is_main_process():
                requeue()
            raise Interrupted(128 + (number if number == signal.SIGINT else signal.SIGTERM))
        signal.signal(number, signal.SIG_DFL)  # a forked worker that is told to go just goes
        os.kill(os.getpid(), number)

    for number in (signal.SIGINT, signal.SIGTERM, *([TIME_IS_UP] if is_slurm_job() else [])):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, and shells that start a command in the background
            signal.signal(number, stop)


def _tell(message: str, exit_code: int) -> int:
    """Print the error on stderr, at most ten lines of it, from the first process of the run only."""
    if is_main_process():
        lines = message.splitlines()
        cut = [*lines[:9], f"  ... and {len(lines) - 9} lines more"] if len(lines) > 10 else lines
        sys.stdout.flush()
        print(("error: " if exit_code < 128 else "") + "\n".join(cut), file=sys.stderr)
    return exit_code


def _tell_of_a_rank(message: str) -> None:
    """A mistake that all processes of a run meet is told by the first, which ends the others meanwhile; one that this one alone has met (a
    machine without the files) is told here."""
    time.sleep(RANK_SECONDS)
    print(f"error, on process {os.environ.get('RANK', os.environ.get('LOCAL_RANK'))} of the run: {message}", file=sys.stderr)


def _leave(exit_code: int) -> NoReturn:
    """End the process. Under W&B's agent a run that was told to stop dies by the signal, which a shell shows as the same 143: any exit code
    is a failure to the agent, which gives up after three, so that early stopping would end the sweep."""
    if exit_code == 128 + signal.SIGTERM and "WANDB_SWEEP_ID" in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    sys.exit(exit_code)


if __name__ == "__main__":
    _leave(main())
