"""What a kernel refuses."""

from __future__ import annotations


class KernelError(ValueError):
    """An array handed to a kernel that it cannot work on: says which, and why."""
