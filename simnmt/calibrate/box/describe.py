"""A box described, from the files of its system and the libraries that are installed."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from simnmt.calibrate.box.description import BoxDescription


def describe(root: str | os.PathLike[str] = "/", *, libraries: bool = True) -> BoxDescription:
    """Describe the box whose `/proc` and `/sys` lie under `root`.

    Another root than `/` is a recorded tree: the running process (its affinity, its libraries, its GPUs) then tells nothing
    and is not asked. `libraries`: whether torch and NVML are loaded and asked for GPUs (seconds); versions are named anyway.
    """
    Path(root)
    return BoxDescription(machine=platform.machine(), system=f"{platform.system()} {platform.release()}")
