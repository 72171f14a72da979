"""What a plan cannot be made of."""

from __future__ import annotations

from simnmt.errors import InputError


class PlanError(InputError):
    """A deadline, a buffer or a model that no plan can be made of."""
