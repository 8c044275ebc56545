"""`python -m mlm_lab.sweep FILE`: the points of a sweep file, what they will cost, and running them on this machine without an account."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mlm_lab.__main__ import answer
from mlm_lab.errors import UserError
from mlm_lab.fold import fold, terminal_width

USAGE = """python -m mlm_lab.sweep FILE [--plan | --run] [--jobs N] [key=value ...]
The points of a sweep file, run here, without an account.

  (neither)        check the file and show its points
  --plan           what it will cost, and what differences it can show, before anything runs
  --pilot RUNS     with --plan: finished runs (their folders, or an output_dir), from which the seeds that are needed are worked out
  --difference D   with --pilot: the difference that the seeds are worked out for; else the study's margin
  --run            run the points here, one process each: finished ones are skipped, interrupted ones go on, a failed one stops no other
  --jobs N         so many at a time; the cores (and GPUs) are shared out equally
  key=value        for every point: budget.tokens=2e6 model=mini output_dir=DIR. A parameter's own key replaces its values: seed=0,1

The same command goes on after Ctrl-C, a crash or a reboot. Several machines may run it on one output_dir: no point runs twice.
With an account: wandb sweep FILE, then wandb agent. On a cluster, one job a point:
  python -m mlm_lab -m hydra/launcher=submitit_slurm +experiment=ablation objective.mask_ratio=0.15,0.4 seed=0,1,2
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says. Returns the exit code: 0, 1 where points failed, 2 for a mistake of the user's, 130 or 143 if
    stopped."""
    return answer(lambda: _dispatch(list(sys.argv[1:] if argv is None else argv)))


def _dispatch(words: list[str]) -> int:
    options = _parse(words)
    if options.help:
        print(fold(USAGE, terminal_width()), end="")
        return 0
    from mlm_lab.sweep import check, reading

    sweep = reading.read(options.file).with_words(options.words)
    points = sweep.points()
    check.check(sweep, points or check.corners(sweep))
    if options.plan:
        from mlm_lab.sweep.plan import plan

        plan(sweep, points or check.corners(sweep), options.jobs, options.pilot, options.difference)
        return 0
    from mlm_lab.sweep import local

    if options.run:
        return local.run(sweep, points, options.jobs)
    local.show(sweep, points)
    return 0


def _parse(words: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="python -m mlm_lab.sweep", add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--jobs", "-j", type=int, default=1)
    parser.add_argument("--pilot", nargs="+", action="extend", default=[])
    parser.add_argument("--difference", type=float)
    parser.add_argument("words", nargs="*")
    options = parser.parse_intermixed_args(words)
    after_pilot = [word for word in options.pilot if "=" in word and not Path(word).exists()]
    options.pilot = [Path(word).expanduser() for word in options.pilot if word not in after_pilot] or None
    every = [*options.words, *after_pilot]
    files = [word for word in every if "=" not in word]
    options.file, options.words = Path(files[0]) if files else None, [word for word in every if "=" in word]
    if options.help:
        return options
    if len(files) != 1:
        raise UserError("name one sweep file", given=" ".join(files) or "none", fix="python -m mlm_lab.sweep sweeps/mask_ratio.yaml --plan")
    if options.plan and options.run:
        raise UserError("--plan and --run: one of them", fix="--plan first, then --run")
    if options.pilot and not options.plan:
        raise UserError("--pilot goes with --plan")
    if options.difference is not None and not options.pilot:
        problem = "--difference goes with --pilot RUNS: seeds follow from the spread of runs"
        raise UserError(problem, given=f"--difference {options.difference:g}")
    if options.jobs < 1:
        raise UserError(f"--jobs {options.jobs}: must be at least 1")
    return options


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise UserError(message, fix="python -m mlm_lab.sweep --help")


if __name__ == "__main__":
    sys.exit(main())
