"""Rows of a text file of any length, plain or gzip, handed out one after another with their place known."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from simnmt.names import nearest
from simnmt.workload.arrivals.errors import ArrivalsError

MAX_LINE_BYTES = 1 << 20
"""A longer line is none of a trace; so a file without line ends cannot fill the memory."""
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_SHOWN = 40


class TraceLines:
    """Iterates once over a file's lines as bytes, without their line ends; `line` tells which one came last.

    Gzip is known by its first bytes, whatever the file's name. A byte order mark at the start is dropped. Raises
    `ArrivalsError` for a file that cannot be read and for a line longer than `MAX_LINE_BYTES`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.line = 0
        """From 1; 0 before the first."""

    def __iter__(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                # Peeked at, not read and rewound: a pipe is a file too.
                packed = file.peek(2).startswith(_GZIP_MAGIC)
                readable = cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=file)) if packed else file)
                for raw in iter(lambda: readable.readline(MAX_LINE_BYTES), b""):
                    self.line += 1
                    if len(raw) == MAX_LINE_BYTES:
                        raise self.fault(f"a line of {MAX_LINE_BYTES:,} bytes or more", remedy="give a text file, a row a line")
                    yield (raw.removeprefix(b"\xef\xbb\xbf") if self.line == 1 else raw).rstrip(b"\r\n")
        except FileNotFoundError:
            raise ArrivalsError("no such file", path=self.path, remedy="check the path") from None
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            reason = str(error).rstrip(".")
            raise self.fault(f"broken gzip data after this line: {reason}", remedy="fetch or compress it again") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ArrivalsError(f"cannot be read: {reason}", path=self.path, remedy="give a file that you may read") from None

    def fault(self, what: str, *, remedy: str, column: int | None = None) -> ArrivalsError:
        """An error at the current line."""
        return ArrivalsError(what, path=self.path, line=self.line or None, column=column, remedy=remedy)


class TraceTable:
    """A CSV file whose first row names its columns; commas, semicolons or tabs separate the cells.

    It may open with `#` lines, of which `# kind: ...` and `# source: ...` are kept in `notes`. Raises `ArrivalsError` for a
    file without such a row, and for a row of another width.
    """

    def __init__(self, lines: TraceLines, rows: Iterator[bytes], first: bytes) -> None:
        """`first`: the line that `rows` has just handed out."""
        self.lines = lines
        self.notes: dict[str, str] = {}
        self._rows = rows
        header = self._header(first)
        self._separator = max((b",", b";", b"\t"), key=header.count)
        self.names = [cell.strip().strip(b'"').decode("utf-8", "replace") for cell in header.split(self._separator)]
        self._cells: list[bytes] = header.split(self._separator)

    def _header(self, text: bytes) -> bytes:
        while text.startswith(b"#") or not text.strip():
            key, colon, value = text.lstrip(b"# ").decode("utf-8", "replace").partition(":")
            if colon:
                self.notes.setdefault(key.strip().lower(), " ".join(value.split()))
            following = next(self._rows, None)
            if following is None:
                raise self.lines.fault("no rows", remedy="give column names, and one row below them for each time")
            text = following
        return text

    def index(self, *wanted: str) -> int | None:
        """Where the column of one of these names stands, whatever its case; None where there is none."""
        folded = [name.lower() for name in self.names]
        for name in wanted:
            if name.lower() in folded:
                return folded.index(name.lower())
        return None

    def require(self, *wanted: str) -> int:
        """The same, where there must be one; to be asked before the first row is read."""
        found = self.index(*wanted)
        if found is not None:
            return found
        if any(_is_number(name) for name in self.names):
            what = "the first row holds numbers, not column names"
            raise self.wrong(what, 0, f"name the columns above it, e.g. {wanted[0]}")
        near = nearest(wanted[0], self.names)
        hint = f"did you mean {near}?" if near else "columns: " + ", ".join(self.names[:8])
        raise self.wrong(f"no column {wanted[0]}", 0, hint)

    def __iter__(self) -> Iterator[list[bytes]]:
        """The cells of every row that is not blank."""
        separator, width = self._separator, len(self.names)
        for text in self._rows:
            cells = text.split(separator)
            if len(cells) != width:
                if not text.strip():
                    continue
                self._cells = cells
                what = f"{len(cells)} cell{'s' * (len(cells) != 1)}, but the first row names {width}"
                raise self.wrong(what, 0, "complete the row or remove it")
            if width == 1 and not text.strip():
                continue
            self._cells = cells
            yield cells

    def number(self, index: int) -> float:
        """A cell of the current row as a finite number of at least 0."""
        cell = self._cells[index]
        try:
            number = float(cell)
        except ValueError:
            number = -1.0
        # float() takes 1_000; no logging tool writes that.
        if 0.0 <= number < float("inf") and b"_" not in cell:
            return number
        raise self.wrong(f"{self.names[index]} is {shown(cell)}", index, "give a number, 0 or above, with a decimal point")

    def wrong(self, what: str, index: int, remedy: str) -> ArrivalsError:
        """The complaint about cell `index` of the current row."""
        column = 1 + sum(len(cell) + 1 for cell in self._cells[:index])
        return self.lines.fault(what, column=column, remedy=remedy)


def shown(cell: bytes) -> str:
    """A cell for a message, shortened."""
    text = ascii(cell.strip().decode("utf-8", "replace"))
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 4] + "...'"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
