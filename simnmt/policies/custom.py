"""Policies that users write in Python: the settings that make one, and decisions that are checked one by one.

A policy has `prepare(src_len)`, which returns `decide(request, delay_s)`; or `prepare` with a method `decide(request, delay_s)`
or `decide_with_view(request, view)`. An error of the policy is reported with its request, in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from simnmt.base.configuration import message_of
from simnmt.base.errors import InputError, short_repr
from simnmt.base.extension import (
    FAULTS,
    Extended,
    Extension,
    ExtensionError,
    describe_fault,
    is_callable_kind,
    signature_parameters,
)
from simnmt.policies.decision import Decide, Estimation, Knowledge, Policy, PolicySettings


class PolicyError(InputError):
    """A policy of a user that fails, or that returns no target."""


class CustomPolicy(Extended, PolicySettings):
    """Settings of a policy that a user brings; each unit of the run gets an instance of its own."""

    estimating: Estimation

    @property
    def estimation(self) -> Estimation:
        return self.estimating

    def policy(self, knowledge: Knowledge) -> Policy:
        """Return the policy. Raises `ExtensionError`."""
        extension = self.extension
        try:
            made = extension.make(knowledge=knowledge)
            if isinstance(made, PolicySettings):
                made = made.policy(knowledge)
            check_methods(made, self.kind)
        except ExtensionError as error:
            raise extension.fault(error.what, error.remedy) from error
        return cast(Policy, made)


def custom_policy(extension: Extension) -> CustomPolicy:
    """Return the settings of a user's policy: keys of the scenario, else attributes of the class or object.

    Raises `ExtensionError` for a class without the methods of a policy.
    """
    value = extension.value
    if isinstance(value, PolicySettings) or (isinstance(value, type) and issubclass(value, PolicySettings)):
        return CustomPolicy(kind=extension.label, extension=extension, estimating=extension.make().estimation)
    if isinstance(value, type) or not callable(value) or hasattr(value, "prepare"):
        check_methods(value, extension.label)
    parameters = signature_parameters(value if is_callable_kind(value) else type(value)).keys()
    attributes = {name: getattr(value, name, None) for name in Estimation.model_fields}
    settings = {name: part for name, part in attributes.items() if isinstance(part, (bool, int, float, str, dict))}
    settings |= {name: part for name, part in extension.written.items() if name in attributes}
    try:
        estimating = Estimation.model_validate({name: part for name, part in settings.items() if name not in parameters})
    except ValidationError as error:  # of an attribute: the keys have been checked
        fault = error.errors()[0]
        raise ExtensionError(f"{extension.label} has a wrong attribute {fault['loc'][0]}: {message_of(fault)}") from None
    if estimating.plan_state == "known":
        raise ExtensionError("plan_state: known is for policies of kind cnmt and naive", remedy="leave it out")
    return CustomPolicy(kind=extension.label, extension=extension, estimating=estimating)


def check_methods(policy: object, label: str) -> None:
    """Raise `ExtensionError` if a class or an object has no method `prepare`."""
    if not callable(getattr(policy, "prepare", None)):
        raise ExtensionError(
            f"{label} has no method prepare, so it is no policy",
            remedy="write a class with prepare(src_len), which returns decide(request, delay_s)",
        )


def is_shown_view(policy: Policy) -> bool:
    """Return whether a policy decides by a `DecisionView` instead of the delays alone."""
    return callable(getattr(policy, "decide_with_view", None))


class CheckedPolicy:
    """A user's policy whose decisions are checked: it may only fail with a `PolicyError`, and only return a target."""

    __slots__ = ("_by_method", "_label", "_latest", "_method_name", "_policy", "_targets")

    def __init__(self, policy: Policy, label: str, targets: int) -> None:
        """`label`: its name and the run, in messages; `targets`: their number."""
        self._policy, self._label, self._targets = policy, label, targets
        self._method_name = "decide_with_view" if is_shown_view(policy) else "decide"
        self._by_method: Decide | None = getattr(policy, self._method_name, None)
        """The method that decides; None if `prepare` returns the decision."""
        self._latest = 0
        """Number of the block that was prepared last."""

    def prepare(self, src_len: NDArray[np.int64], number_of: Callable[[int], int]) -> Decide:
        """Return the checked decision on a block of requests.

        `number_of`: returns the number of a request from its row in the block, for messages. Raises `PolicyError`.
        """
        decide = self._prepared(src_len)
        self._latest += 1
        block = self._latest

        def checked(request: int, delay_s: Sequence[float]) -> int:
            if self._by_method and self._latest != block:
                # A method decides by what was prepared last, but a live gateway keeps one block for each source length.
                self._prepared(src_len)
                self._latest = block
            try:
                target: Any = decide(request, delay_s)
            except FAULTS as error:
                raise self._error(f"{self._method_name} raised {describe_fault(error)}", request=number_of(request)) from error
            is_whole = isinstance(target, (int, np.integer)) and not isinstance(target, bool)
            if not is_whole or not 0 <= target < self._targets:
                what = f"{self._method_name} returned {short_repr(target)}"
                raise self._error(what, f"return the number of a target, 0 to {self._targets - 1}", number_of(request))
            return int(target)

        return checked

    def predicted_tgt_len(self) -> Callable[[NDArray[np.int64]], NDArray[np.float64]] | None:
        """Return the policy's prediction of target lengths, checked; None if it predicts none."""
        predict = getattr(self._policy, "predicted_tgt_len", None)
        if predict is None:
            return None

        def checked(src_len: NDArray[np.int64]) -> NDArray[np.float64]:
            try:
                predicted = np.asarray(predict(src_len), dtype=np.float64)
            except FAULTS as error:
                raise self._error(f"predicted_tgt_len raised {describe_fault(error)}") from error
            if predicted.shape != src_len.shape or not np.isfinite(predicted).all():
                what = f"predicted_tgt_len returned {short_repr(predicted)} for {short_repr(src_len)}"
                raise self._error(what, "return a finite length for each request")
            return predicted

        return checked

    def _prepared(self, src_len: NDArray[np.int64]) -> Decide:
        try:
            prepared: Any = self._policy.prepare(src_len)
        except FAULTS as error:
            raise self._error(f"prepare raised {describe_fault(error)}") from error
        decide: Decide = self._by_method or prepared
        if not callable(decide):
            what = f"prepare returned {short_repr(decide)}, which decides nothing"
            raise self._error(what, "return a function decide(request, delay_s)")
        return decide

    def _error(self, what: str, remedy: str | None = None, request: int | None = None) -> PolicyError:
        where = self._label if request is None else f"{self._label}, request {request}"
        return PolicyError(f"{where}: {what}", remedy=remedy)
