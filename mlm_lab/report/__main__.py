"""`python -m mlm_lab.report NAME`: the report of a study from its run folders; with --verify, whether the one that is there still holds."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mlm_lab.__main__ import answer
from mlm_lab.console import say, warn
from mlm_lab.errors import UserError
from mlm_lab.fold import fold, terminal_width
from mlm_lab.keys import suggest
from mlm_lab.report.study import DEFAULTS, Places

USAGE = """python -m mlm_lab.report NAME [--verify] [key=value]
A study's report from its run folders, into experiments/NAME: report.md, report.html, tables.tex, results.csv, figures.

  --verify                make the report again from results.csv and the run folders at hand; say what differs (exit code 1)
  output_dir=runs         parent of the run folders
  experiments=experiments parent of the study's folder
  sweep=sweeps/NAME.yaml  the sweep file: question, arms, primary contrast, margin

Without a sweep file: factor=KEY[,KEY] metric=NAME baseline=VALUE contrast=VALUE margin=NUMBER.
"""
WORDS = ("factor", "metric", "baseline", "contrast", "margin")


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says. Returns the exit code: 0, 1 where --verify found a difference, 2 for a mistake of the user's."""
    return answer(lambda: _dispatch(list(sys.argv[1:] if argv is None else argv)))


def _dispatch(words: list[str]) -> int:
    parser = _Parser(prog="python -m mlm_lab.report", add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("words", nargs="*")
    options = parser.parse_intermixed_args(words)
    if options.help:
        print(fold(USAGE, terminal_width()), end="")
        return 0
    names = [word for word in options.words if "=" not in word]
    if len(names) != 1:
        raise UserError("name one study", given=" ".join(names) or "none", fix="python -m mlm_lab.report NAME; --help shows the rest")
    settings = _settings([word for word in options.words if "=" in word])
    places = _places(names[0], settings)
    given = {word: settings[word] for word in WORDS if word in settings}
    if options.verify:
        return _verify(names[0], places, given)
    from mlm_lab.report.write import write_report

    study = write_report(names[0], places, given)
    finished = sum(map(len, study.common.by_arm.values()))
    for damage in study.damaged:
        warn(damage.told)
    say(f"{len(study.rows)} runs, {finished} of them in the table: {places.folder / 'report.html'}")
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise UserError(message, fix="python -m mlm_lab.report --help")


def _settings(words: Sequence[str]) -> dict[str, str]:
    known, found = [*DEFAULTS, *WORDS], {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in known:
            raise UserError(f"no such setting{suggest(key, known)}", given=word, allowed=", ".join(f"{key}=" for key in known))
        found[key] = value
    return found


def _places(name: str, settings: dict[str, str]) -> Places:
    if "/" in name or name in (".", ".."):
        raise UserError("a study's name is no path", given=name, fix=f"python -m mlm_lab.report {Path(name).stem}")
    paths = {key: Path(settings.get(key, default.format(name=name))).expanduser() for key, default in DEFAULTS.items()}
    if "sweep" in settings and not paths["sweep"].exists():
        raise UserError("there is no such sweep file", given=f"sweep={settings['sweep']}")
    return Places(output_dir=paths["output_dir"], folder=paths["experiments"] / name, sweep=paths["sweep"])


def _verify(name: str, places: Places, given: dict[str, str]) -> int:
    from mlm_lab.report.verify import verify

    differences = verify(name, places, given)
    for line in differences:
        say(line)
    found = f"{len(differences)} difference{'s' * (len(differences) != 1)}"
    say(found if differences else "every number is as results.csv and the run folders at hand give it")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
