"""Files that are written whole or not at all, and over nothing that is read."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from simnmt.errors import InputError


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to, renamed to `path` at the end; if anything goes wrong, it is gone and `path` as it was.

    An existing file is replaced, one behind a link where it really lies. Raises `OSError`, also where `path` is no file.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if os.path.lexists(path) and Path(path).exists() and not target.is_file():
        # Renamed over, a device would become a file of that name.
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    # Beside the target, so that the rename stays within one file system; not of its name, which may be as long as one can be.
    partial = target.parent / f".simnmt-partial-{secrets.token_hex(4)}"
    try:
        yield partial
        partial.replace(target)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def refuse_replacing(out: str | os.PathLike[str] | None, *inputs: str | os.PathLike[str] | None) -> None:
    """Raise `InputError` where `out` is one of the files that are read, under whatever name; None names no file."""
    if out is None:
        return
    for read in inputs:
        if read is not None and (_same(out, read) or os.path.realpath(out) == os.path.realpath(read)):
            raise InputError(f"{os.fspath(out)} would replace what is read", remedy="write to another file")


def _same(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return False
