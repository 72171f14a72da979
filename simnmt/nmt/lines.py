"""Lines of a file or of standard input, one after another as they come."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from simnmt.nmt.errors import NmtError
from simnmt.workload.text_lines import TextLines


def lines_of(file: Path | None) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or gzip, or of standard input where None; without their line ends.

    Raises `CorpusError` for a file that cannot be read or is no UTF-8 text, and `NmtError` for such input.
    """
    return iter(TextLines(file)) if file is not None else _of_standard_input()


def _of_standard_input() -> Iterator[str]:
    # Not through TextLines: it refuses devices, and a terminal is one.
    return (_decoded(raw, number) for number, raw in enumerate(sys.stdin.buffer, 1))


def _decoded(raw: bytes, number: int) -> str:
    try:
        return raw.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        what = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        remedy = "make it UTF-8, e.g. with iconv -f CP1252 -t UTF-8, where -f names what it is in now"
        raise NmtError(what, path="standard input", line=number, column=error.start + 1, remedy=remedy) from None
