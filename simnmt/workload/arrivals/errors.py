"""What can be wrong with arrivals."""

from __future__ import annotations

from simnmt.errors import InputError


class ArrivalsError(InputError):
    """A recorded trace or a rate series that cannot be used: says which file, line and column, and the remedy."""
