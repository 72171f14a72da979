"""Errors of the kernels, and a check that an optional package is installed. Imports none of these packages."""

from __future__ import annotations

from importlib.util import find_spec

from simnmt.base.packages import MissingPackage, install_command


class KernelError(ValueError):
    """An array that a kernel cannot work on; the message names the array and the reason."""


def need(package: str, remedy: str) -> None:
    """Raise `MissingPackage` if a package is not installed."""
    try:
        installed = find_spec(package) is not None
    except ValueError:  # a package that was switched off: sys.modules maps its name to None
        installed = False
    if not installed:
        raise MissingPackage(f"this needs the package {package}", remedy=remedy)


def need_torch() -> None:
    """Raise `MissingPackage` if torch is not installed, in which references and baselines are written."""
    need("torch", install_command("models"))
