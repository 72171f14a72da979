"""Energy and money as goals of a policy: which targets a request may be sent to under an objective or a budget.

A policy predicts what a request costs on each target as if it were executed there alone: the energy above what the boxes draw
at all times, the time that it occupies a box at the price of the box, and the bytes on the links. Since only predictions count,
the permitted targets of a request are known before the run. The rule of least latency decides among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simnmt.base.configuration import Configuration
from simnmt.profile.power import RequestCost

Column = NDArray[np.float64]
Resource = Literal["energy", "cost"]
"""What a request takes beside time: joules, or money."""
BUDGET_KEYS: dict[Resource, str] = {"energy": "energy_j", "cost": "cost"}
Limit = Annotated[float, Field(gt=0.0, le=1e12)]


class Budget(Configuration):
    """What a request may take as predicted; a request that exceeds it everywhere goes where it exceeds it least."""

    energy_j: Limit | None = None
    """Joules, without those that the boxes draw at all times."""
    cost: Limit | None = None
    """Money, in the currency of the prices."""

    @model_validator(mode="after")
    def _limits_something(self) -> Budget:
        if not self.limits:
            raise PydanticCustomError("no_limit", "limits nothing (write a limit, such as energy_j: 2.5, or remove budget)")
        return self

    @property
    def limits(self) -> dict[Resource, float]:
        """The limits by what they limit."""
        limits = {resource: getattr(self, key) for resource, key in BUDGET_KEYS.items()}
        return {resource: limit for resource, limit in limits.items() if limit is not None}


@dataclass(frozen=True, slots=True)
class Spending:
    """The targets that a policy may choose for each request, by what the request is predicted to take there.

    Example:
        >>> costs = {"energy": (RequestCost(per_s=10.0), RequestCost(per_s=200.0))}
        >>> seconds = [np.array([0.1, 4.0]), np.array([0.05, 0.1])]
        >>> lengths = np.array([5, 90])
        >>> Spending(costs, minimised="energy").permitted(lengths, lengths, seconds).tolist()
        [[True, False], [False, True]]
    """

    costs: dict[Resource, Sequence[RequestCost]]
    """What a request takes on each target."""
    minimised: Resource | None = None
    budget: Budget | None = None

    def permitted(self, src_len: NDArray[np.int64], tgt_len: Column, execution_s: Sequence[Column]) -> NDArray[np.bool_]:
        """Return whether each target may execute each request, shape (targets, requests); at least one of them may.

        Args:
            src_len, tgt_len: source tokens, and expected target tokens.
            execution_s: expected seconds on each target.
        """
        permitted = np.ones((len(execution_s), len(src_len)), np.bool_)
        if self.budget is not None:
            shares = [
                self._taken(resource, src_len, tgt_len, execution_s) / limit for resource, limit in self.budget.limits.items()
            ]
            of_budget: Column = np.max(shares, axis=0)
            permitted = (of_budget <= 1.0) | (of_budget == of_budget.min(0)) & (of_budget.min(0) > 1.0)
        if self.minimised is not None:
            taken = np.where(permitted, self._taken(self.minimised, src_len, tgt_len, execution_s), np.inf)
            permitted = taken == taken.min(0)
        return permitted

    def restrict(
        self, weighed_s: Sequence[Column], src_len: NDArray[np.int64], tgt_len: Column, execution_s: Sequence[Column]
    ) -> list[Column]:
        """Return the seconds by which targets are compared, infinite on targets that are not permitted."""
        permitted = self.permitted(src_len, tgt_len, execution_s)
        return [np.where(may, seconds, np.inf) for may, seconds in zip(permitted, weighed_s, strict=True)]

    def _taken(self, resource: Resource, src_len: NDArray[np.int64], tgt_len: Column, execution_s: Sequence[Column]) -> Column:
        """Return joules or money of each request on each target, shape (targets, requests)."""
        costs = zip(self.costs[resource], execution_s, strict=True)
        return np.stack([cost.of(src_len, tgt_len, seconds) for cost, seconds in costs])
