"""What a person sees: plain lines in a log, a bar on a terminal, nothing from other ranks, no text taken for markup."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from mlm_lab import console

SHOW = """
from mlm_lab import console
console.heading("Pretrain [MASK]")
console.say("[bold]text[/bold] \\x1b[31mred\\x07")
console.warn("careful")
console.table("Results", ["token", "value"], [["[MASK]", 0.12345], ["b\\nc", None]], note="over seeds")
with console.progress("work", 3, "steps") as task:
    for _ in range(3):
        task.advance(loss=4.21, best="[MASK]")
"""


def controls(text: str) -> set[str]:
    return {c for c in text if unicodedata.category(c) == "Cc"} - {"\n"}


def run_on_terminal(code: str, **environment: str) -> str:
    """What a program writes when its stdout and stderr are a terminal of 100 columns."""
    parent, child = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", **environment}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=child, stderr=child, env=env, cwd=Path(__file__).parents[1])
    os.close(child)
    output = b""
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:  # the other end was closed
            break
        if not chunk:
            break
        output += chunk
    os.close(parent)
    assert process.wait() == 0, output.decode()
    return output.decode()


def test_a_log_gets_plain_lines_without_control_characters(capsys: pytest.CaptureFixture) -> None:
    exec(SHOW, {})
    out, err = capsys.readouterr()
    assert controls(out) == set() and err == "careful\n"
    assert "== Pretrain [MASK] ==" in out
    assert "[bold]text[/bold] \N{REPLACEMENT CHARACTER}[31mred\N{REPLACEMENT CHARACTER}" in out
    assert "token    value\n------  ------\n[MASK]  0.1235\nb c          -\nover seeds" in out
    assert "work: 3/3 steps  loss 4.21  best [MASK]  in 0.0 s" in out


def test_a_log_has_the_end_of_a_work_once(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "PLAIN_SECONDS", 0)
    with console.progress("work", 2, "steps") as task:
        task.advance()
        task.advance()
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["1/2", "2/2"]


def test_a_log_stays_plain_where_colours_are_forced(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    exec(SHOW, {})
    assert controls(capsys.readouterr().out) == set()


def test_a_terminal_gets_a_bar_and_colours() -> None:
    shown = run_on_terminal(SHOW)
    assert "\x1b[" in shown and "━" in shown
    assert shown.count("[MASK]") >= 3 and "best [MASK]" in shown and "[bold]text[/bold]" in shown
    assert "\x1b[31mred" not in shown and "\x07" not in shown


def test_no_color_keeps_the_bar_without_colours() -> None:
    shown = run_on_terminal(SHOW, NO_COLOR="1")
    assert "━" in shown
    assert "\x1b[38" not in shown and "\x1b[3" not in shown.replace("\x1b[31mred", "")


NARROW = """
from mlm_lab import console
console.table("Tasks", ["task", "metric", "random start"], [["acceptability", "accuracy", "0.510 +- 0.005"], ["entities", "f1", "-"]])
with console.progress("Pretraining", 200, "steps") as task:
    task.advance(200, loss=3.97, learning_rate=0.0001)
"""


def test_a_narrow_terminal_breaks_no_word_and_cuts_none() -> None:
    narrow, wide = (run_on_terminal(NARROW, COLUMNS=columns) for columns in ("30", "100"))
    assert all(f"{name}  " in narrow for name in ("task", "metric", "random start"))
    for word in ("acceptability", "accuracy", "0.510", "entities", "Pretraining", "200/200", "0.0001"):
        assert word in narrow and word in wide
    assert "random start" in wide.partition("acceptability")[0] and "random start" in narrow.partition("acceptability")[2]
    assert "…" not in narrow + wide


def test_a_dumb_terminal_gets_plain_lines() -> None:
    assert controls(run_on_terminal(SHOW, TERM="dumb")) <= {"\r"}  # the terminal's own line ends


def test_a_line_during_a_progress_stands_above_the_bar() -> None:
    shown = run_on_terminal(
        "from mlm_lab import console\nwith console.progress('work', 2, 'steps') as t:\n t.advance(); console.say('half [MASK]')"
    )
    assert "half [MASK]\r\n" in shown


def test_a_progress_in_a_progress_goes_away_when_it_is_over() -> None:
    code = """
from mlm_lab import console
with console.progress("outer", 2, "steps") as outer:
    with console.progress("inner", 1, "rows") as inner:
        inner.advance()
    outer.advance(2)
"""
    shown = run_on_terminal(code)
    last = shown.rpartition("outer")[2]
    assert "inner" in shown and "inner" not in last


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"])
def test_other_ranks_show_nothing(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv(name, "1")
    exec(SHOW, {})
    assert capsys.readouterr() == ("", "")


def test_plain_progress_speaks_at_most_every_ten_seconds(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.progress("work", 100, "steps") as task:
        for _ in range(50):
            now += 1
            task.advance(loss=3.5)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["work: 10/100 steps  loss 3.5  1:30 left", "work: 20/100 steps  loss 3.5  1:20 left"]
    assert len(lines) == 6 and lines[-1] == "work: 50/100 steps  loss 3.5  in 0:50"


def test_time_left_of_a_resumed_run_counts_only_what_it_did_itself(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.progress("work", 1000, "steps", completed=900) as task:
        now = 10.0
        task.advance(10)
    assert "work: 910/1,000 steps  1:30 left" in capsys.readouterr().out


def test_text_that_the_terminal_cannot_encode_is_shown_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    console.say("caf\N{LATIN SMALL LETTER E WITH ACUTE} \udcff")
    assert stream.buffer.getvalue() == b"caf\\xe9 \\ufffd\n"


def test_wide_characters_keep_the_columns_aligned(capsys: pytest.CaptureFixture) -> None:
    console.table("Samples", ["word", "n"], [["你好", 1], ["abcd", 22]])
    assert "你好   1\nabcd  22\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.42, "0.4 s"), (59.6, "1:00"), (90, "1:30"), (4000, "1:06:40"), (19_522_982, "226.0 days")]
)
def test_durations(seconds: float, text: str) -> None:
    assert console.duration(seconds) == text
