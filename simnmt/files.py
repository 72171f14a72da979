"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
