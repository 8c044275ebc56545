"""A report that is killed at any moment: each file is the old one or the new one, --verify accepts no mixture of them, and the same command
makes what an undisturbed one makes, byte for byte."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import pytest

from tests.report import synthetic
from tests.survival.killed import Ended, command

MOMENTS = 6
DOOR = "mlm_lab.report.__main__"


def study(place: Path, seeds: tuple[int, ...]) -> None:
    """A sweep file and its runs."""
    synthetic.write_study(place, seeds=seeds)


def report(place: Path, *words: str, **settings: int) -> Ended:
    return command(place, ["ratios", *words], door=DOOR, **settings)


def files(place: Path) -> dict[str, bytes]:
    folder = place / "experiments/ratios"
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def runs(content: bytes) -> list[dict[str, str]]:
    """The rows of results.csv without what the report fills in."""
    return [
        {name: cell for name, cell in row.items() if name not in ("arm", "tables")} for row in csv.DictReader(io.StringIO(content.decode()))
    ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The files of a report of two seeds, those of one of three, over it and without it (which orders the rows), and the moments of one."""
    found = []
    for name, starts in {"over": [(10, 11), (10, 11, 12)], "first": [(10, 11, 12)]}.items():
        place = tmp_path_factory.mktemp(name)
        for seeds in starts:
            study(place, seeds)
            ended = report(place)
            assert ended.code == 0, ended.said
            found.append(files(place))
        assert report(place, "--verify").code == 0
    old, over, first = found
    assert old.keys() == over.keys() and all(old[name] != over[name] for name in ("report.md", "report.html", "tables.tex", "results.csv"))
    return old, over, first, ended.moments


@pytest.mark.slow
@pytest.mark.parametrize("number", range(MOMENTS))
@pytest.mark.parametrize("over", [False, True], ids=["the first report", "over an older one"])
def test_killed_in_the_report(undisturbed, tmp_path, over, number):
    old, new, first, moments = undisturbed
    if not over:
        new = first
    else:
        study(tmp_path, (10, 11))
        assert report(tmp_path).code == 0 and files(tmp_path) == old
    study(tmp_path, (10, 11, 12))
    places = range(len(moments))
    parts = [places[len(places) * part // MOMENTS : len(places) * (part + 1) // MOMENTS] for part in range(MOMENTS)]
    killed = report(tmp_path, die_at=random.Random(number).choice(parts[number]))
    assert killed.code == -9, killed.said
    found = {name: content for name, content in files(tmp_path).items() if not name.startswith(".")}
    for name, content in found.items():
        whole = [new[name], *([old[name]] if over else [])]
        if name == "results.csv":  # the runs' rows are safe before it is known to which arms they belong
            content, whole = runs(content), [runs(each) for each in whole]
        assert content in whole, f"{name} is half written"
    if found != new:
        assert report(tmp_path, "--verify").code != 0, "a mixture was accepted"
    again = report(tmp_path)
    assert again.code == 0, again.said
    assert files(tmp_path) == new, "nothing is left of the one that was killed"
