"""Files and folders that outlive a crash of the whole box."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path


def synced(path: Path) -> None:
    """Return once a file's content, or a folder's names, are on the disk. Raises `OSError`.

    Not every system can be asked this of a folder; then its names are as safe as they are there.
    """
    folder = path.is_dir()
    if folder and sys.platform == "win32":
        return
    file = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        with suppress(*((OSError,) if folder else ())):
            os.fsync(file)
    finally:
        os.close(file)
