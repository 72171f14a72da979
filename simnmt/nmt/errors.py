"""What can go wrong with a model: the user's input, the device's memory, or a package that is not there."""

from __future__ import annotations

import importlib
from typing import Any

from simnmt.errors import InputError, SimnmtError


class NmtError(InputError):
    """A model, a checkpoint or a request to an engine that cannot be used: says which, and the remedy."""


class OutOfMemory(SimnmtError):
    """The device has no memory left for this work; the engine that raised it stays usable for smaller work."""


def need(package: str) -> Any:
    """Import an optional package; raises `NmtError` with the remedy where it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise NmtError(f"this needs the package {package}", remedy="pip install 'simnmt[models]'") from None
