"""Lines of a UTF-8 text file, plain or gzip, read one after another with their place known."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from simnmt.workload.errors import CorpusError

_GZIP_MAGIC = b"\x1f\x8b"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_RECODE = "save the file as UTF-8, e.g. with iconv -t UTF-8"

MAX_LINE_BYTES = 1 << 20
"""No sentence is longer: a longer line comes from a file of another kind, and could fill the memory."""


class TextLines:
    """Iterates once over a file's lines, without their line ends; `read` tells how many have come so far.

    Lines end at LF (a CR before it goes too), so that a form feed or U+2028 inside a sentence splits nothing.
    A byte order mark at the start is dropped. Gzip is known by its first bytes, whatever the file's name.

    Raises `CorpusError` for a file that cannot be read, a device (it may never end), a line of more than
    `MAX_LINE_BYTES`, undecodable bytes (column = byte in the line) and NUL bytes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.read = 0
        """Lines handed out so far: the number of the current line, from 1."""
        self._lines = self._decoded()

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def drain(self) -> int:
        """Read to the end, and return the number of lines in the file."""
        for _ in self._lines:
            pass
        return self.read

    def fault(self, what: str, *, remedy: str, column: int | None = None) -> CorpusError:
        """An error at the current line."""
        return CorpusError(what, path=self.path, line=self.read or None, column=column, remedy=remedy)

    def _decoded(self) -> Iterator[str]:
        try:
            # Asked before it is opened, for opening some devices already does something.
            if _is_device(self.path.stat().st_mode):
                raise CorpusError("a device, not a file", path=self.path, remedy="give a text file, or a pipe")
            with self.path.open("rb") as file:
                # Peeked at, not read and rewound: a pipe is a file too.
                packed = file.peek(2).startswith(_GZIP_MAGIC)
                lines = io.BufferedReader(gzip.GzipFile(fileobj=file)) if packed else file
                while raw := lines.readline(MAX_LINE_BYTES + 1):
                    self.read += 1
                    yield self._text(raw)
        except FileNotFoundError:
            raise CorpusError("no such file", path=self.path, remedy="check the path") from None
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            reason = str(error).rstrip(".")
            raise self.fault(f"broken gzip data after this line: {reason}", remedy="fetch or compress it again") from None
        except OSError as error:
            raise CorpusError(
                f"cannot be read: {error.strerror or error}",
                path=self.path,
                remedy="give a text file that you may read",
            ) from None

    def _text(self, raw: bytes) -> str:
        if self.read == 1 and raw.startswith(_UTF16_MARKS):
            raise self.fault("UTF-16 text, not UTF-8", column=1, remedy=_RECODE)
        if len(raw) > MAX_LINE_BYTES:
            what = f"a line of more than {MAX_LINE_BYTES:,} bytes"
            raise self.fault(what, remedy="give a text file with one sentence a line")
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            what = f"byte 0x{raw[error.start]:02x} is not UTF-8"
            raise self.fault(what, column=error.start + 1, remedy=_RECODE) from None
        if "\0" in text:
            what = "NUL byte: binary or UTF-16 data, not UTF-8 text"
            raise self.fault(what, column=raw.index(b"\0") + 1, remedy=_RECODE)
        if self.read == 1:
            text = text.removeprefix("\ufeff")
        return text.removesuffix("\n").removesuffix("\r")


def _is_device(mode: int) -> bool:
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
