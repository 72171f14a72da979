"""What a decision is: a request and the delays of its targets in, the target's number out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

GATEWAY, CLOUD = 0, 1
"""The targets of the paper's deployment. With more, targets are numbered as `devices` names them; 0 is where it is decided."""

Decide = Callable[[int, Sequence[float]], int]
"""`decide(request, delay_s)`: `delay_s[k]` is what target k is now believed to cost beside execution, in seconds."""


class Policy(Protocol):
    """Chooses a target for each request, in two phases."""

    def prepare(self, src_len: NDArray[np.int64]) -> Decide:
        """Do once, for all requests, what does not depend on the moment of a decision; `src_len` in tokens."""
        ...

    def predicted_tgt_len(self, src_len: NDArray[np.int64]) -> NDArray[np.float64]:
        """Target tokens the policy reckons with, shape of `src_len`; NaN where it does not predict."""
        ...


def least_total(execution_s: Sequence[NDArray[np.float64]]) -> Decide:
    """The argmin over targets of execution plus delay; a tie goes to the target named first (CNMT-09).

    `execution_s[k]`: seconds on target k, shape (requests,).
    """
    columns = [column.tolist() for column in execution_s]
    short_forms: dict[int, Callable[..., Decide]] = {2: _of_two, 3: _of_three, 4: _of_four}
    return short_forms.get(len(columns), _of_any)(*columns)


# On plain floats, ns a decision: 85, 120 and 145 for two, three and four targets, unrolled; 280 for four in the general form,
# 780 with a list of totals and its `index(min(...))`.


def _of_two(first_s: list[float], second_s: list[float]) -> Decide:
    def decide(request: int, delay_s: Sequence[float]) -> int:
        return 0 if first_s[request] + delay_s[0] <= second_s[request] + delay_s[1] else 1

    return decide


def _of_three(first_s: list[float], second_s: list[float], third_s: list[float]) -> Decide:
    def decide(request: int, delay_s: Sequence[float]) -> int:
        first, second, third = delay_s
        first += first_s[request]
        second += second_s[request]
        third += third_s[request]
        if second < first:
            return 2 if third < second else 1
        return 2 if third < first else 0

    return decide


def _of_four(first_s: list[float], second_s: list[float], third_s: list[float], fourth_s: list[float]) -> Decide:
    def decide(request: int, delay_s: Sequence[float]) -> int:
        least, second, third, fourth = delay_s
        least += first_s[request]
        second += second_s[request]
        third += third_s[request]
        fourth += fourth_s[request]
        best = 0
        if second < least:
            least, best = second, 1
        if third < least:
            least, best = third, 2
        return 3 if fourth < least else best

    return decide


def _of_any(*execution_s: list[float]) -> Decide:
    first_s, others_s = execution_s[0], execution_s[1:]

    def decide(request: int, delay_s: Sequence[float]) -> int:
        least = first_s[request] + delay_s[0]
        best = 0
        for target, column in enumerate(others_s, start=1):
            total = column[request] + delay_s[target]
            if total < least:
                least, best = total, target
        return best

    return decide
