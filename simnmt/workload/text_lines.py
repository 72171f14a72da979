"""Lines of a UTF-8 text file, plain or gzip, read one after another with their place known."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

from simnmt.workload.byte_lines import MAX_LINE_BYTES, RECODE, RECODE_UTF16, ByteLines, Kept
from simnmt.workload.errors import CorpusError

__all__ = ["MAX_LINE_BYTES", "TextLines"]


class TextLines:
    """Iterates once over a file's lines, without their line ends; `read` tells how many have come so far.

    As `ByteLines`, decoded: a form feed or U+2028 inside a sentence splits nothing. Raises `CorpusError`, also for
    undecodable bytes (column = byte in the line) and NUL bytes. `kept`, `pipes` and `stream` are those of `ByteLines`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        kept: Kept = "nothing",
        pipes: bool = True,
        stream: io.BufferedReader | None = None,
    ) -> None:
        self._bytes = ByteLines(path, CorpusError, "one sentence", kept=kept, pipes=pipes, stream=stream)
        self.path = self._bytes.path
        self.fault = self._bytes.fault
        """An error at the current line."""
        self._lines = map(self._text, self._bytes)

    @property
    def read(self) -> int:
        """Lines handed out so far: the number of the current line, from 1."""
        return self._bytes.line

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def drain(self) -> int:
        """Read to the end, and return the number of lines in the file."""
        for _ in self._lines:
            pass
        return self.read

    def _text(self, raw: bytes) -> str:
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            what = f"byte 0x{raw[error.start]:02x} is not UTF-8"
            raise self.fault(what, column=error.start + 1, remedy=RECODE) from None
        if "\0" in text:
            what = "NUL byte: binary or UTF-16 data, not UTF-8 text"
            raise self.fault(what, column=raw.index(b"\0") + 1, remedy=RECODE_UTF16)
        return text
