"""Lines of a text file, plain or gzip, with errors that name the line: as bytes, as UTF-8 text, as JSON objects."""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import json
import os
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, ClassVar, Generic, Literal, TypeVar, cast

from simnmt.base.errors import InputError
from simnmt.base.files import (
    MOST_STREAMED_BYTES,
    check_regular,
    is_standard,
    refuse_other_content,
    standard_input,
)
from simnmt.workload.errors import CorpusError

MOST_HELD_BYTES = 1 << 30
"""Limit of the bytes of a text whose lines are kept in memory."""
MOST_HELD_LINES = 10_000_000
"""Limit of the lines of such a text: a short line takes about 60 bytes, a pair of lines in training about 500."""
MAX_LINE_BYTES = 1 << 20
"""Limit of a line, so that a file without line ends cannot fill the memory."""
RECODE = "save the file as UTF-8, e.g. with iconv -f CP1252 -t UTF-8, where -f names what it is in now"
RECODE_UTF16 = "save the file as UTF-8, e.g. with iconv -f UTF-16 -t UTF-8"

_GZIP_MAGIC = b"\x1f\x8b"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

Error = TypeVar("Error", bound=InputError)
Line = TypeVar("Line", bytes, str)
Kept = Literal["nothing", "head", "all"]
"""Lines that the caller keeps in memory: none, some from the start of a file of any size, or all."""


class Lines(ABC, Generic[Error, Line]):
    """A single pass over the lines of a file, without their line ends; `line` is the number of the last one.

    Lines end at LF, with or without a CR before it. Gzip is detected by its first bytes, not by the file's name. A UTF-8 byte
    order mark at the start is dropped. A subclass states how a line is decoded.

    Raises the room's `error` for a file that cannot be read, a device (which may never end), a pointer of Git LFS, data packed
    otherwise than by gzip, a line of more than `MAX_LINE_BYTES`, UTF-16, NUL bytes, and more than `MOST_STREAMED_BYTES` or, if
    lines are kept, more than `MOST_HELD_BYTES` or `MOST_HELD_LINES`, also of a pipe and of unpacked gzip data.
    """

    error: type[Error]
    content: ClassVar[str]
    """Content of a line for messages, such as `one sentence`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        kept: Kept = "nothing",
        pipes: bool = True,
        stream: io.BufferedReader | None = None,
    ) -> None:
        """Prepare to read a file; nothing is opened yet.

        Args:
            path: the file, or the name of a `stream` for messages.
            kept: the lines that the caller keeps in memory, which limits their number.
            pipes: whether a FIFO is accepted; not for a file that is read twice.
            stream: an open stream in place of a file, such as standard input, which may be a terminal.
        """
        self.path = Path(path)
        self.line = 0
        """Number of the current line from 1; 0 before the first."""
        self._kept, self._pipes, self._stream = kept, pipes, stream
        self._lines: Iterator[Line] = map(self._decode, self._read())

    @abstractmethod
    def _decode(self, raw: bytes) -> Line: ...

    def __iter__(self) -> Iterator[Line]:
        return self._lines

    def drain(self) -> int:
        """Read to the end, and return the number of lines of the file."""
        for _ in self._lines:
            pass
        return self.line

    def _opened(self) -> AbstractContextManager[io.BufferedReader]:
        if self._stream is not None:
            return nullcontext(self._stream)
        if is_standard(self.path):
            return nullcontext(cast(io.BufferedReader, standard_input()))
        # Checked before it is opened, since opening some devices has effects.
        most_bytes = MOST_HELD_BYTES if self._kept == "all" else MOST_STREAMED_BYTES
        check_regular(self.path, most_bytes, pipes=self._pipes)
        return self.path.open("rb")

    def _read(self) -> Iterator[bytes]:
        in_memory = self._kept != "nothing"
        most_bytes, most_lines = (MOST_HELD_BYTES, MOST_HELD_LINES) if in_memory else (MOST_STREAMED_BYTES, sys.maxsize)
        size = 0
        try:
            with self._opened() as file:
                # Peeked at, since a pipe cannot be rewound.
                head = file.peek(64)
                refuse_other_content(head, self.path, self.error)
                packed = head.startswith(_GZIP_MAGIC)
                readable = cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=file)) if packed else file)
                while raw := readable.readline(MAX_LINE_BYTES + 1):
                    self.line += 1
                    size += len(raw)
                    if size > most_bytes:
                        raise self._too_much(f"more than {most_bytes:,} bytes")
                    if self.line > most_lines:
                        raise self._too_much(f"more than {most_lines:,} lines")
                    if self.line == 1:
                        if raw.startswith(_UTF16_MARKS):
                            raise self.fault("UTF-16 text, not UTF-8", column=1, remedy=RECODE_UTF16)
                        raw = raw.removeprefix(codecs.BOM_UTF8)
                    if len(raw) > MAX_LINE_BYTES:
                        what = f"a line of more than {MAX_LINE_BYTES:,} bytes"
                        raise self.fault(what, remedy=f"give a text file with {self.content} a line")
                    if b"\0" in raw:
                        raise self._nul(raw)
                    yield raw.removesuffix(b"\n").removesuffix(b"\r")
        except FileNotFoundError:
            raise self.error("no such file", path=self.path, remedy="check the path") from None
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            after = " after this line" if self.line else ""
            reason = str(error).rstrip(".")
            raise self.fault(f"broken gzip data{after}: {reason}", remedy="fetch or compress it again") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            match getattr(error, "errno", None):
                case errno.EFBIG:
                    raise self._too_much(reason) from None
                case errno.EINVAL:  # no file with lines
                    remedy = "give a text file, or a pipe" if self._pipes else "give a text file"
                    raise self.error(reason, path=self.path, remedy=remedy) from None
            remedy = "give a text file that you may read"
            raise self.error(f"cannot be read: {reason}", path=self.path, remedy=remedy) from None

    def _nul(self, raw: bytes) -> Error:
        """Return the error about a line with NUL bytes, which in UTF-16 are every second byte of most texts."""
        is_utf16 = max(raw[::2].count(0), raw[1::2].count(0)) > max(len(raw) // 4, 1)
        what = "UTF-16 text, not UTF-8" if is_utf16 else "NUL byte: binary data, not text"
        remedy = RECODE_UTF16 if is_utf16 else f"give a text file with {self.content} a line"
        return self.fault(what, column=raw.index(b"\0") + 1, remedy=remedy)

    def fault(self, what: str, *, remedy: str, column: int | None = None) -> Error:
        """Return an error at the current line."""
        return self.error(what, path=self.path, line=self.line or None, column=column, remedy=remedy)

    def _too_much(self, what: str) -> Error:
        remedy = "cut it into several files" if self._kept == "nothing" else "give a part of it, for memory holds its lines"
        return self.error(what, path=self.path, remedy=remedy)


class TextLines(Lines[CorpusError, str]):
    """A single pass over the lines of a UTF-8 text; a form feed or U+2028 inside a sentence ends no line.

    Raises `CorpusError` also for bytes that are not UTF-8 (column = byte in the line).
    """

    error = CorpusError
    content = "one sentence"

    def _decode(self, raw: bytes) -> str:
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            what = f"byte 0x{raw[error.start]:02x} is not UTF-8"
            raise self.fault(what, column=error.start + 1, remedy=RECODE) from None
        return text


ONE_A_LINE = "write one JSON object a line"


def json_object(
    text: str | bytes, fault: Callable[..., InputError], *, first: bool, wanted: str = "an object", remedy: str = ONE_A_LINE
) -> dict[str, object]:
    """Return the JSON object of a line.

    Args:
        text: the line.
        fault: a function that makes the room's error at the line.
        first: whether the line is the first of the file.
        wanted: a description of the object for messages.
        remedy: the remedy for a line that is no object.
    """
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        if first and text.strip() in ("[", "{", b"[", b"{"):
            remedy = "it looks like one JSON text over many lines: write it with jq -c"
        raise fault(f"no JSON: {error.msg}", column=error.colno, remedy=remedy) from None
    except UnicodeDecodeError:
        raise fault("no JSON: bytes that are not UTF-8", remedy=remedy) from None
    except ValueError:  # a number of thousands of digits
        raise fault("no JSON that can be read: a number too long", remedy=remedy) from None
    except RecursionError:
        raise fault("nested too deeply to be a row", remedy=remedy) from None
    if not isinstance(row, dict):
        if isinstance(row, list):
            remedy = "write each row on a line of its own, e.g. with jq -c '.[]'"
        raise fault(f"{json_kind(row)}, not {wanted}", remedy=remedy)
    return row


def json_kind(value: object) -> str:
    """Return the kind of a JSON value as words."""
    kinds: dict[type, str] = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
