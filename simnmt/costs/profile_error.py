"""What is wrong with a device profile."""

from __future__ import annotations

from simnmt.errors import InputError


class ProfileError(InputError):
    """A device profile that cannot be read, or that does not fit what is asked of it."""
