"""Balancers that users bring: which box of a device a request enters, with each choice checked."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simnmt.base.errors import short_repr
from simnmt.base.extension import FAULTS, Extended, Extension, ExtensionError, copied, describe_fault

if TYPE_CHECKING:
    from simnmt.world.server import BalancedBox

METHOD = "choose(boxes, now_s, request, node), which returns the number of a box"
"""What a balancer must have."""


class CustomBalancer(Extended):
    """The configuration of a balancer that a user brings."""

    def __str__(self) -> str:
        """Return its name."""
        return self.kind

    def balancer(self) -> CheckedBalancer:
        """Return a new balancer for the boxes of a device. Raises `ExtensionError`."""
        made = self.extension.make()
        _check_method(made, self.kind)
        return CheckedBalancer(made, self.extension)


def custom_balancer(extension: Extension) -> CustomBalancer:
    """Return the configuration of a user's balancer. Raises `ExtensionError` for a class that chooses nothing."""
    if isinstance(extension.value, type) or not callable(extension.value):
        _check_method(extension.value, extension.label)
    return CustomBalancer(kind=extension.label, extension=extension)


def _check_method(balancer: object, label: str) -> None:
    if not callable(getattr(balancer, "choose", None)):
        raise ExtensionError(f"{label} has no method choose, so it is no balancer", remedy=f"write a class with {METHOD}")


class CheckedBalancer:
    """A user's balancer whose choices are checked."""

    __slots__ = ("_balancer", "_extension")

    def __init__(self, balancer: Any, extension: Extension) -> None:
        self._balancer, self._extension = balancer, extension

    def choose(self, boxes: Sequence[BalancedBox], now_s: float, request: int, node: int) -> int:
        """Return the number of the box. Raises `ExtensionError` for an error, and for a number that is none of a box."""
        try:
            box: Any = self._balancer.choose(boxes, now_s, request, node)
            number = operator.index(box)
        except FAULTS as error:
            raise self._fault(f"choose raised {describe_fault(error)}", request) from error
        if not 0 <= number < len(boxes):
            remedy = f"return the number of a box, 0 to {len(boxes) - 1}"
            raise self._fault(f"choose returned {short_repr(box)}", request, remedy)
        return number

    def copy(self) -> CheckedBalancer:
        """Return a balancer in the same state, to foresee choices."""
        return CheckedBalancer(copied(self._balancer, self._extension.label), self._extension)

    def _fault(self, what: str, request: int, remedy: str | None = None) -> ExtensionError:
        return self._extension.fault(f"{self._extension.label}, request {request}: {what}", remedy)
