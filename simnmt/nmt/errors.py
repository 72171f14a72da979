"""What can go wrong with a model: the user's input, or the device's memory."""

from __future__ import annotations

from simnmt.errors import InputError, SimnmtError


class NmtError(InputError):
    """A model, a checkpoint or a request to an engine that cannot be used: says which, and the remedy."""


class OutOfMemory(SimnmtError):
    """The device has no memory left for this work; the engine that raised it stays usable for smaller work."""
