"""Cold reads from the disk at hand by size, as fast as it gives or paced to a slower flash (STI-07)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from simnmt.errors import InputError

MB = 1_000_000
SIZES_BYTES = tuple(int(mb * MB) for mb in (0.25, 0.5, 1, 2, 4, 8, 16, 32))
"""From below a 2-bit shard to above a 32-bit one."""


class DiskError(InputError):
    """A folder whose disk cannot be measured."""


@dataclass(frozen=True, slots=True)
class DiskSample:
    """Repeated cold reads of one size."""

    bytes: int
    repeats: int
    min_s: float
    p25_s: float
    median_s: float
    p75_s: float
    p95_s: float
    mean_s: float


@dataclass(frozen=True, slots=True)
class DiskSamples:
    """What `measure_disk` saw."""

    samples: tuple[DiskSample, ...]
    """By size, ascending."""
    cold: bool
    """Whether no byte of any read that counts was in memory beforehand."""
    cold_check: str
    """How that was found out, or why it is doubted."""
    paced_bytes_per_s: float | None
    """The bucket's rate; None where the disk gave what it could."""
    file_system: str | None
    """Its type and what it is mounted from, such as `ext4 on /dev/nvme0n1p2`."""

    def as_json(self) -> dict[str, Any]:
        """As the `disk` block of a profile holds it, less the fit."""
        return asdict(self)


def measure_disk(
    folder: str | os.PathLike[str],
    sizes_bytes: Sequence[int] = SIZES_BYTES,
    repeats: int = 9,
    pace: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    seed: int = 0,
) -> DiskSamples:
    """Write a file into `folder`, read parts of it cold in a random interleaved order, and remove it, whatever happens.

    `pace`: bytes per second of a slower flash, None for as fast as it goes. `progress(done, total)` in reads. Raises
    `DiskError` where the folder is missing, not writable, in memory, or too full.
    """
    raise NotImplementedError
