"""Text for the terminal: control characters of inputs are escaped, and complaints have at most 300 characters."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

from simnmt.base.errors import printable
from simnmt.base.files import is_standard

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

    Long words, which are paths and names, lose their middle first; then the line loses its middle, because its end is the
    remedy.
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
    """A text stream that writes control characters as escapes and passes all else to `stream`."""

    def __init__(self, stream: TextIO) -> None:
        self.raw = stream

    def write(self, text: str) -> int:
        """Write the cleaned text; return the characters taken."""
        self.raw.write(without_controls(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write the cleaned lines."""
        for line in lines:
            self.write(line)

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
    """Choose what standard error shows beside warnings and errors: nothing if `quiet`; else notes and progress.

    `verbose`: 1 adds what the library logs as information, 2 or more also what it logs for debugging.
    """
    global _quiet
    _quiet = quiet
    log = logging.getLogger("simnmt")
    log.removeHandler(_LOG_LINES)
    if verbose:
        log.addHandler(_LOG_LINES)
    log.setLevel((logging.NOTSET, logging.INFO, logging.DEBUG)[min(verbose, 2)])


def is_quiet() -> bool:
    """Return whether notes and progress are left out."""
    return _quiet


def warn(text: str) -> None:
    """Print a warning on standard error, one line that begins with `simnmt: warning: `."""
    print(f"simnmt: warning: {text}", file=sys.stderr)


def note(text: str) -> None:
    """Print a note on standard error, one line that begins with `simnmt: note: `; nothing if the command is quiet."""
    say(f"simnmt: note: {text}")


def say(text: str) -> None:
    """Print a line on the work, such as its progress, on standard error; nothing if the command is quiet."""
    if not _quiet:
        print(text, file=sys.stderr, flush=True)


def progress_console() -> Any:
    """Return the console for progress bars on standard error, which passes the control sequences of rich."""
    from rich.console import Console

    return Console(file=getattr(sys.stderr, "raw", sys.stderr))
