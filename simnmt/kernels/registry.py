"""The registry of kernels, and its listing: the `KERNELS` of all modules of this room.

A new kernel is two files: a module with its call, its reference, its cases and its `KERNELS`, and the C in `native/`.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

import simnmt.kernels
from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean
from simnmt.kernels.cases import Kernel
from simnmt.kernels.native_library import level_name, processor

_WITHOUT_KERNELS = {"triton_output"}
"""Needs Triton, and has its entry in `output_layer`."""


def _registered() -> Iterator[Kernel]:
    for module in pkgutil.walk_packages(simnmt.kernels.__path__, f"{simnmt.kernels.__name__}."):
        if module.name.rpartition(".")[2] not in {"registry", *_WITHOUT_KERNELS}:
            yield from getattr(importlib.import_module(module.name), "KERNELS", [])


KERNELS = tuple(_registered())


class UnknownKernel(InputError):
    """No kernel has this name."""


def kernel(name: str) -> Kernel:
    """Return the kernel of this name; raises `UnknownKernel`."""
    known = {registered.name: registered for registered in KERNELS}
    if name not in known:
        raise UnknownKernel(f"{name}: no such kernel", remedy=did_you_mean(name, known))
    return known[name]


@dataclass(frozen=True, slots=True)
class Listing:
    """The registry, and what runs it on this box."""

    processor: str
    level: str
    """Vectors of the compiled kernels in use; `none` if numpy and torch compute."""
    notes: tuple[str, ...]
    """Why compiled kernels are not used."""
    triton: bool
    """True if Triton is installed, which the kernels for CUDA need."""
    kernels: tuple[Kernel, ...] = KERNELS

    def as_json(self) -> dict[str, Any]:
        """Return the listing for JSON, without the cases."""
        kernels = [asdict(kernel) for kernel in self.kernels]
        for kernel in kernels:
            del kernel["cases"]
        return asdict(self) | {"kernels": kernels}

    def text(self) -> str:
        """Return the listing for a terminal."""
        lines = [f"level: {self.processor}", *self.notes, f"CUDA: Triton is {'' if self.triton else 'not '}installed"]
        for kernel in self.kernels:
            device = " (CUDA)" if kernel.device == "cuda" else ""
            lines += ["", f"{kernel.name}{device}: {kernel.meaning} ({kernel.source})"]
            lines += [f"  against {kernel.baselines[0]}; {kernel.baselines[1]}"]
            lines += [f"  reference: {kernel.reference}", f"  error: {kernel.bound}", f"  cost: {kernel.cost}"]
        return "\n".join(lines)


def listing() -> Listing:
    """Return the listing of this box; opens the compiled kernels."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        level = level_name()
    notes = tuple(str(warning.message) for warning in caught)
    return Listing(processor(), level, notes, triton=find_spec("triton") is not None)
