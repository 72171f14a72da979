"""Lines of a file of any length, plain or gzip, handed out one after another as bytes with their place known."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar, cast

from simnmt.errors import InputError

MAX_LINE_BYTES = 1 << 20
"""A longer line is no sentence and no row; so a file without line ends cannot fill the memory."""
RECODE = "save the file as UTF-8, e.g. with iconv -f CP1252 -t UTF-8, where -f names what it is in now"
RECODE_UTF16 = "save the file as UTF-8, e.g. with iconv -f UTF-16 -t UTF-8"

_GZIP_MAGIC = b"\x1f\x8b"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

Error = TypeVar("Error", bound=InputError)


class ByteLines(Generic[Error]):
    """Iterates once over a file's lines as bytes, without their line ends; `line` tells which one came last.

    Lines end at LF, a CR before it goes too. Gzip is known by its first bytes, whatever the file's name. A UTF-8 byte order
    mark at the start is dropped. Raises the room's `error` for a file that cannot be read, a device (it may never end), a line
    of more than `MAX_LINE_BYTES`, and UTF-16.
    """

    def __init__(self, path: str | os.PathLike[str], error: type[Error], one: str) -> None:
        """`one`: what a line holds, such as `one sentence`."""
        self.path = Path(path)
        self.line = 0
        """From 1; 0 before the first."""
        self._error = error
        self._one = one

    def __iter__(self) -> Iterator[bytes]:
        try:
            # Asked before it is opened, for opening some devices already does something.
            if _is_device(self.path.stat().st_mode):
                raise self._error("a device, not a file", path=self.path, remedy="give a text file, or a pipe")
            with self.path.open("rb") as file:
                # Peeked at, not read and rewound: a pipe is a file too.
                packed = file.peek(2).startswith(_GZIP_MAGIC)
                readable = cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=file)) if packed else file)
                while raw := readable.readline(MAX_LINE_BYTES + 1):
                    self.line += 1
                    if self.line == 1:
                        raw = self._begun(raw)
                    if len(raw) > MAX_LINE_BYTES:
                        what = f"a line of more than {MAX_LINE_BYTES:,} bytes"
                        raise self.fault(what, remedy=f"give a text file with {self._one} a line")
                    yield raw.removesuffix(b"\n").removesuffix(b"\r")
        except FileNotFoundError:
            raise self._error("no such file", path=self.path, remedy="check the path") from None
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            after = " after this line" if self.line else ""
            reason = str(error).rstrip(".")
            raise self.fault(f"broken gzip data{after}: {reason}", remedy="fetch or compress it again") from None
        except (OSError, ValueError) as error:
            what = f"cannot be read: {getattr(error, 'strerror', None) or error}"
            raise self._error(what, path=self.path, remedy="give a text file that you may read") from None

    def _begun(self, raw: bytes) -> bytes:
        if raw.startswith(_UTF16_MARKS):
            raise self.fault("UTF-16 text, not UTF-8", column=1, remedy=RECODE_UTF16)
        return raw.removeprefix(codecs.BOM_UTF8)

    def fault(self, what: str, *, remedy: str, column: int | None = None) -> Error:
        """An error at the current line."""
        return self._error(what, path=self.path, line=self.line or None, column=column, remedy=remedy)


def _is_device(mode: int) -> bool:
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
