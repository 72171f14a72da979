"""What a command prints: escaped control characters, short complaints, notes, the progress bar, and records as tables."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from simnmt.base.errors import printable
from simnmt.base.files import is_standard
from simnmt.base.text_tables import format_pairs, format_table

if TYPE_CHECKING:
    from rich.progress import Progress

LOG_INTERVAL_S = 15.0
"""Seconds between two lines of a measurement's progress without a terminal."""
MOST_CHARACTERS = 300
"""Most characters of a line of a complaint, with `simnmt: `."""

_LONG_WORDS = (60, 30)
"""Characters to which long words are shortened: the second limit applies if the first does not suffice."""

# Controls of ASCII and Latin-1 but tab and newline, marks that reverse the direction of text, and separators of lines.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Tables mark a row so. What an input holds can at most be bold itself: nothing stays switched on behind it.
_BOLD = re.compile("\x1b\\[1m([^\x1b\n]*)\x1b\\[0m")


def without_controls(text: str) -> str:
    """Return the text with control characters written as escapes; tabs, newlines and bold words stay."""
    return "".join(
        _escaped(part) if number % 2 == 0 else f"\x1b[1m{_escaped(part)}\x1b[0m"
        for number, part in enumerate(_BOLD.split(text))
    )


def _escaped(text: str) -> str:
    return _CONTROLS.sub(lambda match: repr(match[0])[1:-1] if ord(match[0]) < 0x100 else f"\\u{ord(match[0]):04x}", text)


def complaint_line(text: str) -> str:
    """Return one printable line of a complaint with at most `MOST_CHARACTERS` characters.

    Long words, which are paths and names, lose their middle first, then the line, because its end is the remedy.
    """
    line = printable(text)
    for longest in _LONG_WORDS:
        if len(line) > MOST_CHARACTERS:
            line = " ".join(_shortened(word, longest) for word in line.split(" "))
    return _shortened(line, MOST_CHARACTERS)


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    ending = most // 2
    return f"{text[: most - ending - 1]}…{text[-ending:]}"


class CleanStream:
    """A text stream that writes control characters as escapes and passes all else to `raw`."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write the cleaned text; return the characters taken."""
        self.raw.write(without_controls(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def cleaned_streams() -> Iterator[None]:
    """Escape control characters on standard error, and on standard output if it is a terminal; files get all bytes."""
    out, err = sys.stdout, sys.stderr
    sys.stderr = cast(TextIO, CleanStream(err))
    if out.isatty():
        sys.stdout = cast(TextIO, CleanStream(out))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def describe_output(path: Path) -> str:
    """Return how an output is reported, before it is written: `replaced a.csv` if the file exists, else `wrote a.csv`."""
    if is_standard(path):
        return "wrote to standard output"
    return f"{'replaced' if os.path.lexists(path) else 'wrote'} {path}"


class _LogLines(logging.Handler):
    """Prints what the library logs on standard error: a line, and those of a traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        room = record.name.removeprefix("simnmt.")
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        for line in (record.getMessage(), *trace.splitlines()):
            print(f"simnmt: {record.levelname.lower()}: {room}: {printable(line)}", file=sys.stderr)


_LOG_LINES = _LogLines()
_quiet = False


def set_verbosity(*, quiet: bool = False, verbose: int = 0) -> None:
    """Choose what standard error shows beside warnings and errors: notes and progress, and what the library logs."""
    global _quiet
    _quiet = quiet
    log = logging.getLogger("simnmt")
    log.removeHandler(_LOG_LINES)
    if verbose:
        log.addHandler(_LOG_LINES)
    log.setLevel((logging.NOTSET, logging.INFO, logging.DEBUG)[min(verbose, 2)])


def warn(*warnings: str) -> None:
    """Print warnings on standard error, a line each."""
    for warning in warnings:
        print(f"simnmt: warning: {warning}", file=sys.stderr)


def note(text: str) -> None:
    """Print a note on standard error; nothing if the command is quiet."""
    say(f"simnmt: note: {text}")


def say(text: str) -> None:
    """Print a line on standard error; nothing if the command is quiet."""
    if not _quiet:
        print(text, file=sys.stderr, flush=True)


class Bar:
    """A title, a bar and a status; its methods are the callbacks that the library's long functions take."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._title, self._last_s = progress, "", time.monotonic()
        self._task: Any = None if progress is None else progress.add_task("", total=None, status="")

    @property
    def is_drawn(self) -> bool:
        """Return whether standard error is a terminal."""
        return self._progress is not None

    def runs(self, done: float, total: int, title: str = "runs") -> None:
        """Show that `done` of `total` are done, a part of one included, and that `title` is at work."""
        self._show(title, done, total, f"{int(done)}/{total}")

    def stage(self, title: str, share: float | None = None) -> None:
        """Show a stage of the work and its finished share, None if that is not known."""
        if self._progress is not None and title != self._title:  # it has a pace of its own
            self._progress.reset(self._task, total=None)
        self._title = title
        self._show(title, share, None if share is None else 1.0)

    def say(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._progress is None:
            say(text)
        else:
            self._progress.console.print(without_controls(text), markup=False, highlight=False, soft_wrap=True)

    def measured(self, part: str, done_s: float, left_s: float) -> None:
        """Show the seconds measured as a share of those that the measurement takes; without a terminal, a line now and then."""
        if self._progress is None and time.monotonic() - self._last_s >= LOG_INTERVAL_S:
            self._last_s = time.monotonic()
            say(f"{part}: measured {done_s:.0f} s, about {left_s:.0f} s left")
        self._show(part, done_s, done_s + left_s, f"{left_s / 60:.0f} min left" if left_s > 90.0 else f"{left_s:.0f} s left")

    def _show(self, title: str, done: float | None, total: float | None, status: str = "") -> None:
        if self._progress is not None:
            shown = printable(title)
            self._progress.update(self._task, description=shown, completed=done, total=total, status=printable(status))


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """Draw a bar while the block runs; output meanwhile is cleaned as elsewhere, although rich takes over the streams."""
    if _quiet or not sys.stderr.isatty():
        yield Bar(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(file=getattr(sys.stderr, "raw", sys.stderr))  # passes the control sequences of rich
    columns = [TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[status]")]
    off = not console.is_interactive  # where it cannot draw, rich would print an empty line at the end
    drawn = Progress(columns[0], BarColumn(), columns[1], TimeRemainingColumn(), console=console, transient=True, disable=off)
    with drawn as progress, cleaned_streams():
        yield Bar(progress)


_UNITS = {"_bytes_per_s": ("MB/s", 1e-6), "_bytes": ("MB", 1e-6), "_s": ("ms", 1e3), "_share": ("%", 100.0)}
"""Ends of the names of quantities, and unit and factor by which a text shows them."""


def format_record(record: Mapping[str, Any]) -> str:
    """Return a document of `--json` as text: its values by name, then a table for each list of records in it.

    Seconds, bytes and shares are shown in ms, MB and %.
    """
    pairs, tables = list[tuple[str, str]](), list[str]()
    for name, value in record.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            rows = [dict(_cells(row)) for row in value]
            header = list(dict.fromkeys(column for row in rows for column in row))
            texts = sum(isinstance(cell, str) for cell in value[0].values())
            table = format_table(header, [[row.get(column, "-") for column in header] for row in rows], texts)
            tables.append(f"{name.replace('_', ' ')}:\n{table}")
        else:
            pairs += _cells({name: value})
    return "\n\n".join([format_pairs(pairs), *tables])


def _cells(record: Mapping[str, Any], within: str = "", unit: str = "", factor: float = 1) -> Iterator[tuple[str, str]]:
    """Yield name and text of each value, also of those in records within the record."""
    for key, value in record.items():
        end = next((end for end in _UNITS if key.endswith(end)), "")
        name = f"{within}{key.removesuffix(end).replace('_', ' ')} "
        scale = _UNITS.get(end, (unit, factor))
        if isinstance(value, Mapping):
            yield from _cells(value, name, *scale)
        else:
            yield f"{name}{scale[0]}".rstrip(), _cell(value, scale[1])


def _cell(value: Any, factor: float) -> str:
    if isinstance(value, list | tuple):
        return " ".join(_cell(part, factor) for part in value)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    number = value * factor
    return f"{number:,.0f}" if isinstance(number, int) or abs(number) >= 1e4 else f"{number:,.4g}"
