"""What a folder is mounted from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from simnmt.calibrate.box.tree import Tree

IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
OWN_CACHE = frozenset({"zfs", "nfs", "nfs4", "9p", "virtiofs", "fuse", "fuseblk", "cifs", "smb3", "ceph"})
"""File systems that hold files in memory apart from the page cache, often another machine's."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/self/mountinfo."""

    kind: str
    """Type of the file system."""
    source: str
    point: str

    def __str__(self) -> str:
        return f"{self.kind} on {self.source}"


def mount_of(folder: str | os.PathLike[str], root: str | os.PathLike[str] = "/") -> Mount | None:
    """The mount that `folder` lies on; None where the system does not tell.

    Of several that fit, the longest name wins, and among equals the one mounted last, which covers the others.
    """
    real = Path(os.path.realpath(folder))
    best: Mount | None = None
    for line in (Tree.at(root).text("proc/self/mountinfo") or "").splitlines():
        before, dash, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if not dash or len(left) < 5 or len(right) < 2:
            continue
        point = left[4].encode().decode("unicode_escape") if "\\" in left[4] else left[4]  # blanks stand as \040
        if real.is_relative_to(point) and (best is None or len(point) >= len(best.point)):
            best = Mount(kind=right[0], source=right[1], point=point)
    return best
