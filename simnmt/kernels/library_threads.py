"""How many threads the libraries that we compare with may use: torch's, and those of numpy's OpenBLAS."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

_NAMES = [f"{vendor}openblas_{{}}_num_threads{suffix}" for vendor in ("scipy_", "") for suffix in ("64_", "")]


@contextmanager
def library_threads(count: int) -> Iterator[None]:
    """Hold both to `count` threads until the block ends; an OpenBLAS that cannot be found is left as it is."""
    before = torch.get_num_threads()
    blas = [(library, name, _call(library, name, "get")) for library, name in _open_blas()]
    torch.set_num_threads(count)
    for library, name, _ in blas:
        _call(library, name, "set", count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        for library, name, threads in blas:
            _call(library, name, "set", threads)


def _open_blas() -> Iterator[tuple[ctypes.CDLL, str]]:
    """Every OpenBLAS that this process has loaded, with how it names its functions."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text(errors="replace").splitlines() if maps.exists() else []
    for path in sorted({line.split(maxsplit=5)[5] for line in lines if "openblas" in line and line.count("/")}):
        library = ctypes.CDLL(path)
        name = next((name for name in _NAMES if hasattr(library, name.format("set"))), None)
        if name is not None:
            yield library, name


def _call(library: ctypes.CDLL, name: str, verb: str, *arguments: int) -> int:
    return int(getattr(library, name.format(verb))(*arguments))
