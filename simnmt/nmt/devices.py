"""Names of devices (cpu, cuda, cuda:1), torch's threads, versions of libraries, and the processor's features."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from typing import TYPE_CHECKING

from simnmt.base.compile import cpu_features
from simnmt.nmt.errors import NmtError

if TYPE_CHECKING:
    import torch


def full_device_name(name: str) -> str:
    """Return the full name of a device (cuda is cuda:0); raises `NmtError` for an unknown name."""
    if re.fullmatch(r"cpu|cuda(:\d+)?", name) is None:
        raise NmtError(f"no device {name}", remedy="cpu or cuda:0")
    return "cuda:0" if name == "cuda" else name


def torch_device(name: str) -> torch.device:
    """Return the torch device of that name; raises `NmtError` if it is missing."""
    import torch  # here, so that `full_device_name` needs no torch

    device = torch.device(full_device_name(name))
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        raise NmtError(f"no {device}; GPUs that torch sees here: {count}", remedy="use cpu, or install a torch with CUDA")
    return device


def has_bfloat16() -> bool:
    """Return whether the processor has instructions for bfloat16; otherwise libraries emulate it, slower than float32."""
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(cpu_features())  # Linux' names, the last on ARM


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Set the number of torch's threads until the block ends; None does not change it."""
    import torch

    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def library_threads(count: int) -> Iterator[None]:
    """Limit torch and the BLAS of numpy to `count` threads until the block ends; entering it takes some milliseconds."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with torch_threads(count), threadpool_limits(count, user_api="blas"):
        yield


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of the installed ones of these distributions; a bare checkout of simnmt is not installed."""
    versions: dict[str, str] = {}
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
