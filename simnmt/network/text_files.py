"""Text files of this room: read up to a size limit, write several of them atomically."""

from __future__ import annotations

import codecs
import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from simnmt.base.files import MOST_TEXT_BYTES, read_bounded, written_whole
from simnmt.network.errors import TraceError

_BYTE_ORDER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_text(path: Path, decode_other: Callable[[bytes], str | None] = lambda raw: None) -> str:
    """Return the text of a file or pipe, with newlines at the ends of its lines.

    `decode_other` may return the text of bytes that are not Unicode. Raises `TraceError` if the file cannot be read, is a
    device, is packed, has more than `MOST_TEXT_BYTES`, or is neither UTF-8 nor marked as UTF-16.
    """
    try:
        raw = read_bounded(path, MOST_TEXT_BYTES, pipes=True)
    except OSError as error:
        remedy = "cut it into several files" if error.errno == errno.EFBIG else "check the path"
        raise TraceError(f"cannot be read: {error.strerror}", path=path, remedy=remedy) from None
    if raw.startswith(b"\x1f\x8b"):
        raise TraceError("is packed by gzip", path=path, remedy="unpack it")
    try:
        # A Windows shell redirects output into a file as UTF-16.
        text = raw.decode("utf-16" if raw.startswith(_BYTE_ORDER_MARKS) else "utf-8-sig")
    except UnicodeDecodeError as error:
        if (other := decode_other(raw)) is not None:
            return other.replace("\r\n", "\n")
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        what = f"byte 0x{raw[error.start]:02x} is not UTF-8 text"
        raise TraceError(what, path=path, line=line, column=column, remedy="save the file as UTF-8 CSV") from None
    return text if "\n" in text else text.replace("\r", "\n")


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write several files, all of them or none. Raises `TraceError` naming the one that cannot be written."""
    with ExitStack() as stack:
        for path, text in texts.items():
            stack.enter_context(naming_write_errors(path))
            stack.enter_context(written_whole(path)).write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def naming_write_errors(path: Path, remedy: str = "choose another folder") -> Iterator[None]:
    """Turn an `OSError` into a `TraceError` that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        raise TraceError(f"cannot be written: {error.strerror}", path=path, remedy=remedy) from None
