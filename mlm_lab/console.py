"""All that a person sees: rich tables and a bar on a terminal, plain lines without control characters in a pipe, a log or TERM=dumb.

Only the first process of a run prints. Text from a corpus or a file is shown as it is: `[MASK]` is never read as markup, and control
characters in it never reach the terminal. NO_COLOR keeps the layout and drops the colours. Plain tables are made here, since
rich folds the cells of a log at 80 columns, where they cannot be searched for.
"""

from __future__ import annotations

import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from mlm_lab.ranks import is_main_process

if TYPE_CHECKING:
    from rich.box import Box
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

PLAIN_SECONDS = 10.0
"""Least time between two lines of a progress that is not on a terminal."""
REFRESH_SECONDS = 0.1

_bars: list[Progress] = []
"""The bar that is on the terminal now, if any: lines are printed above it, and a second progress joins it."""


def say(text: str = "") -> None:
    """Print a line (or several) on stdout."""
    if is_main_process():
        _print(text, sys.stdout)


def warn(text: str) -> None:
    """Print a line (or several) on stderr: what a person should know although the run goes on."""
    if is_main_process():
        _print(text, sys.stderr)


def heading(text: str) -> None:
    """Print the title of what comes next."""
    if not is_main_process():
        return
    if not _is_terminal(sys.stdout):
        say(f"\n== {_clean(text)} ==")
        return
    from rich.rule import Rule
    from rich.text import Text

    console = _console()
    console.print()
    console.print(Rule(Text(_clean(text), style="bold"), align="left", style="dim"))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str | None = None) -> None:
    """Print a table. Cells may be text, numbers or None (shown as "-"); a column of numbers is aligned at the right.

    note: a line under the table that says how to read it.
    """
    if not is_main_process():
        return
    cells, right = _cells(columns, rows)
    if _is_terminal(sys.stdout):
        _rich_table(title, columns, cells, right, note)
    else:
        say("\n".join(_plain_table(title, columns, cells, right, note)))


class ProgressTask:
    """One piece of work that is counted. Made by `progress`."""

    def __init__(self, description: str, total: float | None, unit: str, completed: float = 0):
        self.description, self.total, self.unit, self.completed = description, total, unit, completed
        self.fields: dict[str, object] = {}
        self._first, self._started = completed, time.monotonic()

    def advance(self, n: float = 1, **fields: object) -> None:
        """n more are done. fields: what else to show, such as loss=4.21."""
        self.update(self.completed + n, **fields)

    def update(self, completed: float, **fields: object) -> None:
        """So many are done in all."""
        self.completed = completed
        self.fields.update(fields)
        self._show()

    def _show(self) -> None:
        """Other processes than the first show nothing."""

    def _close(self) -> None:
        """Called once, when the work is over or was broken off."""

    def _count(self) -> str:
        return _format(self.completed) + (f"/{_format(self.total)}" if self.total else "") + f" {self.unit}"

    def _time(self, closing: bool) -> str:
        elapsed, done = time.monotonic() - self._started, self.completed - self._first
        if closing:
            return f"in {duration(elapsed)}"
        return f"{duration(elapsed * max(self.total - self.completed, 0) / done)} left" if self.total and done > 0 else ""

    def _fields_text(self) -> str:
        return "  ".join(f"{name.replace('_', ' ')} {_clean(_format(value))}" for name, value in self.fields.items())


class _PlainTask(ProgressTask):
    """A line at most every ten seconds, and one at the end."""

    def __init__(self, description: str, total: float | None, unit: str, completed: float = 0):
        super().__init__(description, total, unit, completed)
        self._last = self._started

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._last >= PLAIN_SECONDS and self.completed != self.total:  # of the last one `_close` tells
            self._last = now
            say(self._line(closing=False))

    def _close(self) -> None:
        say(self._line(closing=True))

    def _line(self, closing: bool) -> str:
        parts = [f"{self.description}: {self._count()}", self._fields_text(), self._time(closing)]
        return "  ".join(part for part in parts if part)


class _BarTask(ProgressTask):
    """A bar on the terminal. It is redrawn when the work advances and by no thread of its own, so that forked workers are safe."""

    def __init__(self, description: str, total: float | None, unit: str, completed: float, bars: Progress):
        super().__init__(description, total, unit, completed)
        self._bars = bars
        self._id = bars.add_task(_clean(description), total=total, completed=completed, text="")
        self._last = 0.0
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._last >= REFRESH_SECONDS:
            self._last = now
            self._draw(closing=False)

    def _draw(self, closing: bool) -> None:
        text = "  ".join(part for part in (self._count(), self._fields_text(), self._time(closing)) if part)
        self._bars.update(self._id, completed=self.completed, text=text)
        self._bars.refresh()

    def _close(self) -> None:
        self._draw(closing=True)

    def _remove(self) -> None:
        self._bars.remove_task(self._id)


@contextmanager
def progress(description: str, total: float | None, unit: str, completed: float = 0) -> Iterator[ProgressTask]:
    """Show how far a piece of work is: `with progress("pretrain", 1000, "steps") as task: task.advance(loss=4.2)`.

    total: None where it is not known. completed: what was done before, by a run that is resumed (it does not count as speed).
    On a terminal a bar with the fields and the time left; otherwise lines. One inside another goes away when it is over.
    """
    if not is_main_process():
        yield ProgressTask(description, total, unit, completed)
    elif not _is_terminal(sys.stdout):
        with _closing(_PlainTask(description, total, unit, completed)) as task:
            yield task
    elif _bars:
        with _closing(_BarTask(description, total, unit, completed, _bars[-1])) as inner:
            yield inner
        inner._remove()
    else:
        with _make_bars() as bars:
            _bars.append(bars)
            try:
                with _closing(_BarTask(description, total, unit, completed, bars)) as task:
                    yield task
            finally:
                _bars.pop()


@contextmanager
def _closing(task: ProgressTask) -> Iterator[ProgressTask]:
    try:
        yield task
    finally:
        task._close()


def duration(seconds: float) -> str:
    """90 -> "1:30", 4000 -> "1:06:40", 0.42 -> "0.4 s", and from two days on 200_000 -> "2.3 days"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:,.1f} days"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _make_bars() -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    console = _console()
    bar = BarColumn(bar_width=min(max(console.width - 76, 4), 24))  # the words are worth more than the bar
    words = TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=False))
    return Progress(TextColumn("{task.description}", markup=False), bar, words, console=console, auto_refresh=False)


@contextmanager
def live_table() -> Iterator[Callable[[str, Sequence[str], Sequence[Sequence[object]], str | None], None] | None]:
    """A table that is drawn again in its place: `with live_table() as draw: draw(title, columns, rows, note)`, as `table` takes them.

    None where stdout is no terminal. The last one stays. It is redrawn by no thread of its own.
    """
    if not is_main_process() or not _is_terminal(sys.stdout):
        yield None
        return
    from rich.live import Live

    with Live(console=_console(), auto_refresh=False, vertical_overflow="visible") as live:

        def draw(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str | None) -> None:
            live.update(_make_table(title, columns, *_cells(columns, rows), note), refresh=True)

        yield draw


def _cells(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[list[list[str]], list[bool]]:
    """The cells as text, and which columns are aligned at the right."""
    right = [all(_is_number(row[i]) for row in rows) and bool(rows) for i in range(len(columns))]
    return [[_clean(_format(value)).replace("\n", " ") for value in row] for row in rows], right


def _rich_table(title: str, columns: Sequence[str], cells: list[list[str]], right: list[bool], note: str | None) -> None:
    console = _console()
    console.print()
    console.print(_make_table(title, columns, cells, right, note))


def _make_table(title: str, columns: Sequence[str], cells: list[list[str]], right: list[bool], note: str | None) -> Table:
    """Rows and columns; one below the other where the terminal is so narrow that words would be broken."""
    from rich import box
    from rich.measure import Measurement
    from rich.text import Text

    console = _console()
    view = _empty_table(title, note, box.SIMPLE_HEAD)
    for name, is_right in zip(columns, right, strict=True):
        view.add_column(Text(_clean(name)), justify="right" if is_right else "left", overflow="fold")
    for row in cells:
        view.add_row(*map(Text, row))
    if Measurement.get(console, console.options.update(width=10_000), view).minimum <= console.width:
        return view
    records = _empty_table(title, note, box.SIMPLE)
    records.show_header = False
    for row in cells:
        for name, cell in zip(columns, row, strict=True):
            records.add_row(Text(_clean(name)), Text(cell))
        records.add_section()
    return records


def _empty_table(title: str, note: str | None, lines: Box) -> Table:
    from rich.table import Table
    from rich.text import Text

    view = Table(title=Text(_clean(title), style="bold"), title_justify="left", box=lines, pad_edge=False)
    view.caption, view.caption_justify = (Text(_clean(note), style="dim") if note else None), "left"
    return view


def _plain_table(title: str, columns: Sequence[str], cells: list[list[str]], right: list[bool], note: str | None) -> list[str]:
    from rich.cells import cell_len  # wide characters take two columns

    widths = [max([cell_len(name), *(cell_len(row[i]) for row in cells)]) for i, name in enumerate(columns)]

    def line(values: Sequence[str]) -> str:
        padded = [" " * (w - cell_len(v)) + v if r else v + " " * (w - cell_len(v)) for v, w, r in zip(values, widths, right, strict=True)]
        return "  ".join(padded).rstrip()

    body = [line(columns), "  ".join("-" * width for width in widths), *(line(row) for row in cells)]
    return ["", _clean(title), *body, *([_clean(note)] if note else [])]


def _is_terminal(stream: TextIO) -> bool:
    """Our own rule, not rich's: FORCE_COLOR and its like must not put control characters into a log file."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def _console() -> Console:
    """stdout is looked up at each call: tests and notebooks exchange it."""
    if _bars:
        return _bars[-1].console
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=False)


def _print(text: str, stream: TextIO) -> None:
    text = _clean(text)
    if _bars and stream is sys.stdout:
        _bars[-1].console.out(text, highlight=False)
        return
    try:
        print(text, file=stream, flush=True)
    except UnicodeEncodeError:  # a terminal of another encoding: show what it can show
        encoding = stream.encoding or "ascii"
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


def _clean(text: str) -> str:
    """Without control characters, except line breaks and tabs. Lone surrogates (undecodable file names) become visible too."""
    if text.isascii() and text.isprintable():
        return text
    kept = (c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") else "\N{REPLACEMENT CHARACTER}" for c in text)
    return "".join(kept)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _format(value: object) -> str:
    """Numbers as a person reads them: 12,345 and 4.213 and 1.2e-05; None as a dash."""
    if value is None:
        return "-"
    if isinstance(value, float) and value.is_integer() and abs(value) >= 1000:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
