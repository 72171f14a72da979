"""Linux's text files about itself, under any root: the reader, limits of this process, and mounts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tree:
    """`/proc`, `/sys` and `/etc` of this box, or a recorded copy of another box's."""

    root: Path

    @classmethod
    def at(cls, root: str | os.PathLike[str]) -> Tree:
        """Return the tree under `root`."""
        return cls(Path(root))

    @property
    def is_this_box(self) -> bool:
        """True if this process runs on the box of the tree."""
        return self.root == Path("/")

    def path(self, name: str) -> Path:
        """Return the path of the file `/name` of the box."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str | None:
        """Return the file's text without blanks and NULs around it; None if it is missing, unreadable or empty."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace").strip("\0 \t\r\n") or None
        except OSError:
            return None

    def number(self, name: str) -> int | None:
        """Return the file's whole number; None if it holds none."""
        try:
            return int(self.text(name) or "")
        except ValueError:
            return None

    def names(self, pattern: str) -> Iterator[str]:
        """Yield the names of files and folders like `pattern`, ordered by the numbers in them, for use in the other methods."""
        paths = self.root.glob(pattern.lstrip("/"))
        yield from sorted((path.relative_to(self.root).as_posix() for path in paths), key=_by_numbers)


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts cpu2 before cpu10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def parse_ranges(ranges: str) -> tuple[int, ...]:
    """Return the CPU numbers of the kernel's list format, `0-3,8`; empty for another format."""
    numbers: list[int] = []
    for part in ranges.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            numbers += range(int(first), int(last if dash else first) + 1)
        except ValueError:
            return ()
    return tuple(numbers)


_NO_LIMIT_BYTES = 1 << 60
"""Version 1 of control groups writes a number near 2^63 for no limit."""


def allowed_cpus(tree: Tree) -> tuple[int, ...]:
    """Return the numbers of the logical CPUs that this process may run on."""
    for line in (tree.text("proc/self/status") or "").splitlines():
        key, _, value = line.partition(":")
        if key == "Cpus_allowed_list":
            return parse_ranges(value)
    return ()


def cpu_quota(tree: Tree) -> float | None:
    """Return the least quota, in CPUs, of this process's control group and those above it; None without a quota."""
    quotas = []
    for folder in _groups(tree, ""):
        quota, _, period = (tree.text(f"{folder}/cpu.max") or "").partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period):
            quotas.append(int(quota) / int(period))
    for folder in _groups(tree, "cpu"):
        quota_us, period_us = tree.number(f"{folder}/cpu.cfs_quota_us"), tree.number(f"{folder}/cpu.cfs_period_us")
        if quota_us and period_us and quota_us > 0 and period_us > 0:
            quotas.append(quota_us / period_us)
    return min(quotas, default=None)


def memory_limit_bytes(tree: Tree) -> int | None:
    """Return the least limit of this process's control group and those above it; None without a limit."""
    limits = [tree.number(f"{folder}/memory.max") for folder in _groups(tree, "")]
    limits += [tree.number(f"{folder}/memory.limit_in_bytes") for folder in _groups(tree, "memory")]
    return min((limit for limit in limits if limit is not None and limit < _NO_LIMIT_BYTES), default=None)


def _groups(tree: Tree, controller: str) -> Iterator[str]:
    """Yield the folders of this process's control group and of those above it; `controller` is empty for version 2.

    In a container the path of the group may be one of the host, which does not exist there; its root does.
    """
    for line in (tree.text("proc/self/cgroup") or "0::/").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controller not in controllers.split(","):
            continue
        parts = [part for part in path.split("/") if part]
        for mount in (f"sys/fs/cgroup/{controllers}", f"sys/fs/cgroup/{controller}"):
            for depth in range(len(parts), -1, -1):
                yield "/".join([mount.rstrip("/"), *parts[:depth]])


IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
OWN_CACHE = frozenset({"zfs", "nfs", "nfs4", "9p", "virtiofs", "fuse", "fuseblk", "cifs", "smb3", "ceph"})
"""File systems that cache files outside the page cache, often on another machine."""


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
    """Return the mount of `folder`; None if unknown.

    Of several matching mounts, the longest path counts, and among equals the last one, which covers the others.
    """
    real = Path(os.path.realpath(folder))
    best: Mount | None = None
    for line in (Tree.at(root).text("proc/self/mountinfo") or "").splitlines():
        before, dash, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if not dash or len(left) < 5 or len(right) < 2:
            continue
        point = left[4].encode().decode("unicode_escape") if "\\" in left[4] else left[4]  # a blank is written as \040
        if real.is_relative_to(point) and (best is None or len(point) >= len(best.point)):
            best = Mount(kind=right[0], source=right[1], point=point)
    return best
