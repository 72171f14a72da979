"""What a kernel refuses, and what is wrong with how kernels were asked for."""

from __future__ import annotations

from simnmt.errors import InputError


class KernelError(ValueError):
    """An array handed to a kernel that it cannot work on: says which, and why."""


class KernelLevelError(InputError):
    """A level of kernels asked for that there is not."""
