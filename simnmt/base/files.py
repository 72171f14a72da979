"""Files and the standard streams: read up to a limit, written whole or not at all."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from simnmt.base.errors import STANDARD, InputError

_LOG = logging.getLogger("simnmt.base")

MOST_DOCUMENT_BYTES = 64 << 20
"""Limit of a JSON or YAML document; the largest that simnmt ships or writes has about 1 MB."""
MOST_SECRET_BYTES = 1 << 20
"""Limit of a token, a key or a chain of certificates."""
MOST_TEXT_BYTES = 256 << 20
"""Limit of a table or a JSON list that is parsed as a whole, which takes up to 24 times as much memory (empty objects)."""
MOST_STREAMED_BYTES = 64 << 30
"""Limit of an unpacked text of which no line is kept; the largest public corpora have about 35 GB a side."""
MOST_MODEL_BYTES = 256 << 20
"""Limit of a tokenizer's model or vocabulary; a million pieces take about 20 MB."""
MOST_TENSOR_BYTES = 64 << 30
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""System errors of a disk without room for a file."""

_OTHER_CONTENTS = (
    (b"version https://git-lfs.github.com/spec/", "a pointer of Git LFS, not the file itself", "fetch it with git lfs pull"),
    (b"\xfd7zXZ\0", "packed by xz", "unpack it with unxz"),
    (b"\x28\xb5\x2f\xfd", "packed by zstd", "unpack it with unzstd"),
    (b"BZh91AY&SY", "packed by bzip2", "unpack it with bunzip2"),
    (b"7z\xbc\xaf\x27\x1c", "packed by 7-Zip", "unpack it"),
    (b"PK\x03\x04", "packed by zip", "unpack it, or save a workbook as CSV"),
)
"""First bytes of files that stand for another file, with cause and remedy; gzip is read where texts are large."""
_MOST_POINTER_BYTES = 1024
"""Limit of a pointer of Git LFS, by its specification."""


def is_standard(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is `-`: standard input where a file is read, standard output where one is written."""
    return os.fspath(path) == STANDARD


_read_stream: Any = None
"""Standard input that was read already."""
_output: Any = None
"""Standard output while it is kept for the file `-`."""


def standard_input() -> BinaryIO:
    """Return standard input; raise `OSError` if it is closed, or if it was returned before."""
    global _read_stream
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed", STANDARD)
    if sys.stdin.buffer is _read_stream:
        raise OSError(errno.EINVAL, "standard input can be read only once", STANDARD)
    _read_stream = sys.stdin.buffer
    return sys.stdin.buffer


def keep_standard_output() -> None:
    """Keep standard output for the content of the file `-`: what is printed from now on goes to standard error.

    Raises `InputError` if it is kept already, for another file.
    """
    global _output
    if _output is not None:
        raise InputError("two outputs to standard output", remedy="name a file for one of them")
    _output, sys.stdout = sys.stdout, sys.stderr


def release_standard_output() -> None:
    """Print to standard output again."""
    global _output
    if _output is not None:
        _output, sys.stdout = None, _output


def refuse_other_content(head: bytes, path: str | os.PathLike[str], error: type[InputError] = InputError) -> None:
    """Raise `error` if the first bytes of a file show a pointer of Git LFS or packed data in place of the file."""
    for start, what, remedy in _OTHER_CONTENTS:
        if head.startswith(start):
            raise error(what, path=path, remedy=remedy)


def check_model_folder(folder: Path) -> None:
    """Raise `InputError` for a pointer of Git LFS in the place of a file of a model. Raises `OSError`."""
    for path in folder.iterdir():
        if path.is_file() and path.stat().st_size <= _MOST_POINTER_BYTES:
            refuse_other_content(path.read_bytes(), path)


def check_regular(path: str | os.PathLike[str], most_bytes: int, *, pipes: bool = False) -> None:
    """Raise `OSError` unless `path` is a regular file of at most `most_bytes` bytes; `pipes`: a FIFO is accepted too.

    `OSError.strerror` is a message for the user. Call it before the file is opened: opening a FIFO waits for a writer.
    """
    try:
        status = Path(path).stat()
    except ValueError:  # a NUL in the name
        raise OSError(errno.EINVAL, "no such name can exist", repr(os.fspath(path))) from None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(status.st_mode) and not (pipes and stat.S_ISFIFO(status.st_mode)):
        what = "a pipe" if stat.S_ISFIFO(status.st_mode) else "a device"
        raise OSError(errno.EINVAL, f"{what}, not a file", os.fspath(path))
    if status.st_size > most_bytes:
        raise OSError(errno.EOVERFLOW, f"more than {most_bytes:,} bytes", os.fspath(path))


def read_bounded(path: str | os.PathLike[str], most_bytes: int = MOST_DOCUMENT_BYTES, *, pipes: bool = False) -> bytes:
    """Return the content of a regular file of at most `most_bytes` bytes, or of standard input for `-`.

    Raises `OSError` as `check_regular` and `standard_input` do, and `InputError` as `refuse_other_content` does.
    """
    if is_standard(path):
        content = standard_input().read(most_bytes + 1)
    else:
        check_regular(path, most_bytes, pipes=pipes)
        with Path(path).open("rb") as file:
            # A read with a limit allocates it at once, so only for a pipe, whose length is unknown.
            content = file.read(most_bytes + 1 if pipes else -1)
    if len(content) > most_bytes:
        raise OSError(errno.EOVERFLOW, f"more than {most_bytes:,} bytes", os.fspath(path))
    refuse_other_content(content, path)
    _LOG.debug("read %s: %d bytes", path, len(content))
    return content


def free_name(folder: Path) -> Path:
    """Return an unused temporary name in `folder`; the name is short, since the final one may have the greatest length."""
    return folder / f".simnmt-partial-{secrets.token_hex(4)}"


@contextmanager
def partial_folder(beside: Path) -> Iterator[Path]:
    """Yield a new folder under a temporary name in `beside`, for content that is renamed when it is complete.

    What is left of it is removed at the end. Raises `OSError` if the folder cannot be made; `beside` itself must exist.
    """
    folder = free_name(beside)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def made_folder(folder: Path) -> Iterator[list[Path]]:
    """Make a folder with those above it; at the end, remove the new ones that are empty, which are yielded, innermost first.

    Raises `OSError`.
    """
    path = folder.absolute()
    made = [part for part in (path, *path.parents) if not os.path.lexists(part)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield made
    finally:
        with suppress(OSError):
            for part in made:
                if os.path.lexists(part):
                    part.rmdir()


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path to write to, which becomes `path` at the end; after a failure it is removed and `path` is unchanged.

    A link is replaced, not the file that it leads to. For `-`, the content is written to standard output at the end. Raises
    `OSError`, also if a folder or device is at `path`.
    """
    if is_standard(path):
        with tempfile.TemporaryDirectory(prefix="simnmt-") as temporary:
            partial = Path(temporary) / "content"
            yield partial
            stream = sys.stdout if _output is None else _output
            try:
                stream.flush()
                stream.buffer.write(partial.read_bytes())
                stream.flush()
            except BrokenPipeError:  # the reader has what it wanted
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return
    target = Path(path)
    with suppress(FileNotFoundError):
        check_regular(target, sys.maxsize)  # renamed over, a device would become a file of that name
    if target.absolute().parent == Path("/dev"):  # /dev/stdout leads to a regular file if it is redirected
        raise OSError(errno.EINVAL, "a device, not a file", str(target))
    try:
        # Beside the target, so that the rename stays within one file system. In a folder, so that the temporary files of the
        # library that writes are removed with it.
        with partial_folder(target.parent) as folder:
            partial = folder / "content"
            yield partial
            partial.replace(target)
    except OSError as error:
        if error.errno in NO_ROOM:
            error.filename = os.fspath(path)  # the system names no file, or the one that is removed
        raise
    _LOG.debug("wrote %s", path)


def write_text(path: str | os.PathLike[str], text: str, fault: type[InputError] = InputError) -> None:
    """Write a text in UTF-8, whole or not at all; raises `fault` if the file cannot be written."""
    try:
        with written_whole(path) as partial:
            partial.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise fault(what, path=path, remedy="choose a folder that exists and that you may write to") from None


def refuse_replacing(out: str | os.PathLike[str] | None, *inputs: str | os.PathLike[str] | None) -> None:
    """Raise `InputError` if `out` is one of `inputs`, under any of its names; None names no file."""
    if out is None or is_standard(out):
        return
    if any(os.path.realpath(read) == os.path.realpath(out) for read in inputs if read is not None):
        raise InputError(f"{os.fspath(out)} would replace what is read", remedy="write to another file")
