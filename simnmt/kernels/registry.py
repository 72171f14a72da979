"""The registry of kernels, and its listing: the `KERNELS` of all modules of this room.

A new kernel is two files: a module with its call, its reference, its cases and its `KERNELS`, and the C in `native/`.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import simnmt.kernels
from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean
from simnmt.kernels.cases import Kernel
from simnmt.kernels.native_library import level_name, processor


def _registered() -> Iterator[Kernel]:
    for module in pkgutil.walk_packages(simnmt.kernels.__path__, f"{simnmt.kernels.__name__}."):
        if module.name.rpartition(".")[2] not in ("registry", "triton_output"):  # the latter needs Triton
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


def listing() -> dict[str, Any]:
    """Return the registry, and what runs it on this box: processor, level, why compiled kernels are not used, and Triton."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        level = level_name()
    kernels = [{key: value for key, value in asdict(kernel).items() if key != "cases"} for kernel in KERNELS]
    notes, triton = [str(warning.message) for warning in caught], find_spec("triton") is not None
    return {"processor": processor(), "level": level, "notes": notes, "triton": triton, "kernels": kernels}


def format_listing(listing: Mapping[str, Any]) -> str:
    """Return the listing for a terminal."""
    installed = "" if listing["triton"] else "not "
    lines = [f"level: {listing['processor']}", *listing["notes"], f"CUDA: Triton is {installed}installed"]
    for kernel in listing["kernels"]:
        lines += ["", f"{kernel['name']}: {kernel['meaning']} ({kernel['source']})"]
        lines += [f"  against {'; '.join(kernel['baselines'])}", f"  error: {kernel['bound']}"]
    return "\n".join(lines)
