"""The registry of kernels: the `KERNELS` of all modules of this room, their listing, and the cases that measure them.

A new kernel is two files: a module with its call, its reference, its cases and its `KERNELS`, and the C in `native/`.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import simnmt.kernels
from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean
from simnmt.kernels.native_library import level_name, processor

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Case:
    """One size of a kernel's input: the calls timed on allocated inputs and outputs, ours first, then the baselines."""

    text: str
    runs: Mapping[str, Run]
    before: Mapping[str, Run] = field(default_factory=dict)
    """By run: what is called untimed before each call, to restore what it overwrites."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of the registry."""

    name: str
    meaning: str
    source: str
    bound: str
    """Bound of its error against the reference, in words."""
    cases: Callable[..., Iterator[Case]]
    """Yields the cases for a number of threads, and of given sizes; builds each in its turn, because not all may fit memory."""


def one_after_another(runs: Sequence[Run]) -> Run:

    def run() -> None:
        for call in runs:
            call()

    return run if len(runs) > 1 else runs[0]


UNKNOWN_CACHE_BYTES = 32 * 2**20
"""Assumed size of the last-level cache if the system does not give it."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""Linux' description of the caches of the first CPU."""


def last_cache_bytes() -> int:
    """Return the size of the largest cache of the first CPU."""
    texts = [file.read_text().strip() for file in CACHES.glob("index*/size")]
    sizes = [int(text[:-1]) * {"K": 2**10, "M": 2**20}.get(text[-1], 1) for text in texts if text[:-1].isdigit()]
    return max(sizes, default=UNKNOWN_CACHE_BYTES)


class UnknownKernel(InputError):
    """No kernel has this name."""


@cache
def registered() -> dict[str, Kernel]:
    kernels: list[Kernel] = []
    for module in pkgutil.walk_packages(simnmt.kernels.__path__, f"{simnmt.kernels.__name__}."):
        if module.name.rpartition(".")[2] != "triton_output":  # which needs Triton
            kernels += getattr(importlib.import_module(module.name), "KERNELS", [])
    return {kernel.name: kernel for kernel in kernels}


def kernel(name: str) -> Kernel:
    """Return the kernel of this name; raises `UnknownKernel`."""
    if name not in registered():
        raise UnknownKernel(f"{name}: no such kernel", remedy=did_you_mean(name, registered()))
    return registered()[name]


def listing() -> dict[str, Any]:
    """Return the registry, and what runs it on this box: processor, level, why compiled kernels are not used, and Triton."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        level = level_name()
    named = ("name", "meaning", "source", "bound")
    kernels = [{key: getattr(kernel, key) for key in named} for kernel in registered().values()]
    notes, triton = [str(warning.message) for warning in caught], find_spec("triton") is not None
    return {"processor": processor(), "level": level, "notes": notes, "triton": triton, "kernels": kernels}


def format_listing(listing: Mapping[str, Any]) -> str:
    installed = "" if listing["triton"] else "not "
    lines = [f"level: {listing['processor']}", *listing["notes"], f"CUDA: Triton is {installed}installed"]
    for kernel in listing["kernels"]:
        lines += ["", f"{kernel['name']}: {kernel['meaning']} ({kernel['source']})", f"  error: {kernel['bound']}"]
    return "\n".join(lines)
