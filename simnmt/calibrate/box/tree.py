"""The small text files in which Linux tells of itself, under any root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tree:
    """`/proc`, `/sys` and `/etc` of the box at hand, or a recorded copy of another's."""

    root: Path

    @classmethod
    def at(cls, root: str | os.PathLike[str]) -> Tree:
        """The tree under `root`."""
        return cls(Path(root))

    @property
    def is_this_box(self) -> bool:
        """Whether what the running process knows of itself belongs to this tree."""
        return self.root == Path("/")

    def path(self, name: str) -> Path:
        """Where the file lies that the box calls `/name`."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str | None:
        """The file's text without the blanks and NULs around it; None where it is missing, closed to us or empty."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace").strip("\0 \t\r\n") or None
        except OSError:
            return None

    def number(self, name: str) -> int | None:
        """The file's whole number; None where it holds none."""
        try:
            return int(self.text(name) or "")
        except ValueError:
            return None

    def names(self, pattern: str) -> Iterator[str]:
        """Names of the files and folders like `pattern`, in order of the numbers in them, fit for the other methods."""
        found = self.root.glob(pattern.lstrip("/"))
        yield from sorted((path.relative_to(self.root).as_posix() for path in found), key=_by_numbers)


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """cpu2 before cpu10."""
    parts: list[tuple[int, str]] = []
    digits = ""
    for char in f"{name}\0":
        if char.isdecimal() and char.isascii():
            digits += char
            continue
        if digits:
            parts.append((int(digits), ""))
            digits = ""
        parts.append((-1, char))
    return parts


def parse_ranges(ranges: str) -> tuple[int, ...]:
    """CPU numbers of the kernel's list format, `0-3,8`; empty where it is not one."""
    numbers: list[int] = []
    for part in ranges.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            numbers += range(int(first), int(last if dash else first) + 1)
        except ValueError:
            return ()
    return tuple(numbers)
