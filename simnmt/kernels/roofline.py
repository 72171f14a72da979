"""What this box can do at best: copy memory and multiply; every kernel is held against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from simnmt.kernels.interleaved import interleaved
from simnmt.kernels.library_threads import library_threads

Number = Literal["float32", "int16"]

SIZES_BYTES = tuple(2**power for power in range(18, 25, 2))
"""Of the copies within the cache: 256 KiB to 16 MiB."""
UNKNOWN_CACHE_BYTES = 32 * 2**20
"""Taken for the last-level cache where the system does not tell."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Rates of one box, the best of a few runs."""

    threads: int
    """That copy."""
    cache_bytes: int
    """Of the last-level cache; what is called cold or beyond it is several times as large."""
    copies: tuple[tuple[int, float], ...]
    """(bytes read and written, bytes/s) of copies that fit into the cache, ascending; the last one just so."""
    copy_bytes_per_s: float
    """Of a copy beyond the cache, bytes read and bytes written both counted, as STREAM does."""
    float32_per_s: float
    """Multiply-adds per second of one thread with data in the cache, by the library's product or ours: the faster one."""
    int16_per_s: float | None
    """The same of our int16 product; None without compiled kernels."""

    def bytes_per_s(self, size_bytes: float, *, cold: bool) -> float:
        """Of a copy that moves as many bytes, from memory or from whatever cache holds it."""
        if not cold:
            for size, rate in self.copies:
                if size_bytes <= size:
                    return rate
            if size_bytes <= self.cache_bytes:
                return self.copies[-1][1]
        return self.copy_bytes_per_s

    def least_s(self, size_bytes: float, multiply_adds: float, *, cold: bool, number: Number = "float32") -> float:
        """The time below which the box cannot do it: the longer one of moving the bytes and of multiplying."""
        rate = self.float32_per_s if number == "float32" or self.int16_per_s is None else self.int16_per_s
        return max(size_bytes / self.bytes_per_s(size_bytes, cold=cold), multiply_adds / rate)

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)


def measure_roofline(
    threads: int = 1, ours: Callable[[int], tuple[float, float] | None] = lambda rounds: None, rounds: int = 7
) -> Roofline:
    """Take the rates; a second or two. `ours`: gives what our own products reach in float32 and in int16."""
    cache_bytes = last_cache_bytes()
    with library_threads(1):
        library, own = _products(rounds), ours(rounds)
    with library_threads(threads):
        return Roofline(
            threads=threads,
            cache_bytes=cache_bytes,
            copies=tuple((size, _copy(size, rounds)) for size in (*SIZES_BYTES, cache_bytes) if size <= cache_bytes),
            copy_bytes_per_s=_copy(8 * cache_bytes, rounds),
            float32_per_s=library if own is None else max(library, own[0]),
            int16_per_s=None if own is None else own[1],
        )


def last_cache_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Size of the largest cache of the first CPU."""
    sizes = []
    for file in folder.glob("index*/size"):
        text = file.read_text().strip()
        if text[:-1].isdigit():
            sizes.append(int(text[:-1]) * {"K": 2**10, "M": 2**20}.get(text[-1], 1))
    return max(sizes, default=UNKNOWN_CACHE_BYTES)


def _copy(size_bytes: int, rounds: int) -> float:
    """Bytes per second, read and written ones together, of the better of two libraries' copies."""
    source, target = np.ones(size_bytes // 8, np.float32), np.empty(size_bytes // 8, np.float32)
    source_tensor, target_tensor = torch.from_numpy(source), torch.from_numpy(target)
    repeats = max(1, 2**21 // size_bytes)

    def by_numpy() -> None:
        for _ in range(repeats):
            np.copyto(target, source)

    def by_torch() -> None:
        for _ in range(repeats):
            target_tensor.copy_(source_tensor)

    times = interleaved({"numpy": by_numpy, "torch": by_torch}, rounds, least_s=0.02)
    return repeats * size_bytes / min(times.least_s("numpy"), times.least_s("torch"))


def _products(rounds: int, size: int = 256) -> float:
    left, right, out = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)
    times = interleaved({"torch": lambda: torch.mm(left, right, out=out)}, rounds, least_s=0.05)
    return size**3 / times.least_s("torch")
