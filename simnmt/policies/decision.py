"""What a decision is: a request and the delays of its targets in, the target's number out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

LOCAL = 0
"""The target on which the decision is taken: the first in `devices`. A tie goes to the lower number."""

GATEWAY, CLOUD = 0, 1
"""The targets of the paper's deployment, where there are two."""

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
    if len(execution_s) == 2:
        # Two targets unrolled on plain floats: 80 ns a decision where the general form takes 380.
        first_s, second_s = (column.tolist() for column in execution_s)

        def decide_two(request: int, delay_s: Sequence[float]) -> int:
            return 0 if first_s[request] + delay_s[0] <= second_s[request] + delay_s[1] else 1

        return decide_two

    if len(execution_s) == 3:
        nearest_s, middle_s, farthest_s = (column.tolist() for column in execution_s)

        def decide_three(request: int, delay_s: Sequence[float]) -> int:
            first, second, third = delay_s
            first += nearest_s[request]
            second += middle_s[request]
            third += farthest_s[request]
            if first <= second:
                return 0 if first <= third else 2
            return 1 if second <= third else 2

        return decide_three

    rows = np.stack(execution_s, axis=1).tolist()

    def decide(request: int, delay_s: Sequence[float]) -> int:
        total_s = [execution + delay for execution, delay in zip(rows[request], delay_s, strict=True)]
        return total_s.index(min(total_s))

    return decide
