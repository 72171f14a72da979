"""Lines of a UTF-8 text, plain or gzip, with errors that name the line; each may be a JSON object."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, ClassVar, Literal, cast

from simnmt.base.errors import InputError, describe_error, shorten
from simnmt.base.files import MOST_STREAMED_BYTES, check_regular, is_standard, refuse_other_content, standard_input
from simnmt.workload import CorpusError

MOST_HELD_BYTES = 1 << 30
"""Limit of the bytes of a text whose lines are kept in memory."""
MOST_HELD_LINES = 10_000_000
"""Limit of the lines of such a text: a short line takes about 60 bytes, a pair of lines in training about 500."""
MAX_LINE_BYTES = 1 << 20
"""Limit of a line, so that a file without line ends cannot fill the memory."""

_GZIP_MAGIC = b"\x1f\x8b"


def _unrepeated(pairs: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {shorten(next(key for key in keys if keys.count(key) > 1))} twice")
    return row


class TextLines:
    """A single pass over the lines of a file, without their line ends; `line` is the number of the last one, from 1.

    Lines end at LF, with or without a CR before it; a form feed or U+2028 inside a sentence ends none. Gzip is detected by its
    first bytes, not by the file's name. A UTF-8 byte order mark at the start is dropped.

    Raises `error` for a file that cannot be read, a device (which may never end), a pointer of Git LFS, data packed otherwise
    than by gzip, a line of more than `MAX_LINE_BYTES`, UTF-16, NUL bytes, bytes that are not UTF-8 (column = byte in the line),
    and more than `MOST_STREAMED_BYTES` or, if lines are kept, more than `MOST_HELD_BYTES` or `MOST_HELD_LINES`, also of a pipe
    and of unpacked gzip data.
    """

    error: ClassVar[type[InputError]] = CorpusError
    content: ClassVar[str] = "one sentence"
    """Content of a line for messages."""
    decoding: ClassVar[Literal["strict", "replace"]] = "strict"
    """Whether bytes that are not UTF-8 are refused or replaced."""

    def __init__(self, path: str | os.PathLike[str], *, kept: bool = False, pipes: bool = True) -> None:
        """Prepare to read a file, `-` for standard input; nothing is opened yet.

        `kept`: whether the caller keeps the lines in memory, which limits their number; `pipes`: whether a FIFO is accepted.
        """
        self.path, self.line = Path(path), 0
        self._kept, self._pipes = kept, pipes
        self._lines = self._read()

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def _opened(self) -> AbstractContextManager[io.BufferedReader]:
        if is_standard(self.path):
            return nullcontext(cast(io.BufferedReader, standard_input()))
        # Checked before it is opened, since opening some devices has effects.
        check_regular(self.path, MOST_STREAMED_BYTES, pipes=self._pipes)
        return self.path.open("rb")

    def _read(self) -> Iterator[str]:
        most_bytes, most_lines = (MOST_HELD_BYTES, MOST_HELD_LINES) if self._kept else (MOST_STREAMED_BYTES, sys.maxsize)
        size = 0
        try:
            with self._opened() as file:
                # Peeked at, since a pipe cannot be rewound.
                head = file.peek(64)
                refuse_other_content(head, self.path, self.error)
                packed = head.startswith(_GZIP_MAGIC)
                unpacked = cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=file)) if packed else file)
                while raw := unpacked.readline(MAX_LINE_BYTES + 1):
                    self.line += 1
                    size += len(raw)
                    if size > most_bytes or self.line > most_lines:
                        what = f"more than {most_bytes:,} bytes" if size > most_bytes else f"more than {most_lines:,} lines"
                        remedy = "give a part of it, for memory holds its lines" if self._kept else "cut it into several files"
                        raise self.error(what, path=self.path, remedy=remedy)
                    if self.line == 1:
                        raw = raw.removeprefix(codecs.BOM_UTF8)
                    if len(raw) > MAX_LINE_BYTES or b"\0" in raw:
                        raise self._no_text(raw)
                    try:
                        text = raw.decode("utf-8", self.decoding)
                    except UnicodeDecodeError as error:
                        raise self._no_text(raw, error.start) from None
                    yield text.removesuffix("\n").removesuffix("\r")
        except FileNotFoundError:
            raise self.error("no such file", path=self.path, remedy="check the path") from None
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            what = f"broken gzip data{' after this line' if self.line else ''}: {str(error).rstrip('.')}"
            raise self.fault(what, remedy="fetch or compress it again") from None
        except (OSError, ValueError) as error:
            remedy = "give a text file that you may read" + (", or a pipe" if self._pipes else "")
            reason = getattr(error, "strerror", None) or error
            raise self.error(f"cannot be read: {reason}", path=self.path, remedy=remedy) from None

    def _no_text(self, raw: bytes, undecodable: int = 0) -> InputError:
        """Return the error about a line that is too long, has NUL bytes, or a byte that is not UTF-8 at `undecodable`."""
        if 0 in raw or raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            what, remedy = "UTF-16 text or binary data, not UTF-8", "save text as UTF-8, e.g. with iconv -f UTF-16 -t UTF-8"
            return self.fault(what, column=raw.find(0) + 1, remedy=remedy)
        if len(raw) > MAX_LINE_BYTES:
            remedy = f"give a text file with {self.content} a line"
            return self.fault(f"a line of more than {MAX_LINE_BYTES:,} bytes", remedy=remedy)
        remedy = "save the file as UTF-8, e.g. with iconv -f CP1252 -t UTF-8, where -f names what it is in now"
        return self.fault(f"byte 0x{raw[undecodable]:02x} is not UTF-8", column=undecodable + 1, remedy=remedy)

    def fault(self, what: str, *, remedy: str, column: int | None = None) -> InputError:
        """Return an error at the current line."""
        return self.error(what, path=self.path, line=self.line or None, column=column, remedy=remedy)

    def json_object(self, text: str, remedy: str = "write one JSON object a line") -> dict[str, object]:
        """Return the JSON object of the current line; `remedy` is that for a line that is none."""
        try:
            row = json.loads(text, object_pairs_hook=_unrepeated)
        except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
            if self.line == 1 and text.strip() in ("[", "{"):
                remedy = "it looks like one JSON text over many lines: write it with jq -c"
            what = f"no JSON: {getattr(error, 'msg', None) or describe_error(error)}"
            raise self.fault(what, column=getattr(error, "colno", None), remedy=remedy) from None
        if not isinstance(row, dict):
            if isinstance(row, list):
                remedy = "write each row on a line of its own, e.g. with jq -c '.[]'"
            raise self.fault("no JSON object", remedy=remedy)
        return row


def read_lines(path: Path) -> list[str]:
    """Return all lines of a file. Raises `CorpusError` for a file of which each line is blank."""
    lines = list(TextLines(path, kept=True))
    if not any(map(str.strip, lines)):
        raise CorpusError("no sentence", path=path, remedy="give text with one sentence a line")
    return lines
