"""Errors of the kernels, and checks that an optional package is installed. Imports none of these packages."""

from __future__ import annotations

from importlib.util import find_spec

from simnmt.base.errors import InputError


class KernelError(ValueError):
    """An array handed to a kernel that it cannot work on: says which, and why."""


class KernelLevelError(InputError):
    """A level of kernels asked for that there is not."""


class MissingPackage(InputError):
    """A package is not installed that this cannot do without."""


def need(package: str, remedy: str) -> None:
    """Raise `MissingPackage` where a package is not installed."""
    try:
        there = find_spec(package) is not None
    except ValueError:  # switched off: None stands in its place
        there = False
    if not there:
        raise MissingPackage(f"this needs the package {package}", remedy=remedy)


def need_torch() -> None:
    """Raise `MissingPackage` where torch is not installed: references and baselines are written in it."""
    need("torch", "pip install 'simnmt[models]'")


def need_triton() -> None:
    """Raise `MissingPackage` where Triton is not installed."""
    need("triton", "pip install triton; torch for CUDA brings it on Linux")
