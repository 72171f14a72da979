"""How the products of a step's active columns are made: whichever way the measured cost says is fastest (FVP-09)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from simnmt.costs.projection_cost import ProjectionCost

StepWay = Literal["row_wise", "gather", "dense"]
"""Also all columns, of which the active ones are then taken: beyond the break-even share that is the fastest."""
GATHERED_FROM_ROWS = 8
"""Without a measured cost: so many rows share a gathered block often enough to pay for the copy."""
_BUCKETS = 64
"""Numbers of active columns that are told apart: asking the model takes as long as a small product."""


class ProductChoice:
    """Asks the cost model once for each number of rows and each bucket of active columns."""

    def __init__(self, cost: ProjectionCost | None, vocab: int, width: int) -> None:
        self._cost, self._vocab, self._width = cost, vocab, width
        self._bucket = max(1, vocab // _BUCKETS)
        self._found: dict[tuple[int, int], StepWay] = {}
        self._pays: dict[tuple[int, int, int], bool] = {}

    def way(self, columns: int, rows: int) -> StepWay:
        """Of one product."""
        if self._cost is None:
            return "gather" if rows >= GATHERED_FROM_ROWS else "row_wise"
        place = rows, columns // self._bucket
        if place not in self._found:
            self._found[place] = self._way(self._cost, self._usual(columns), rows)
        return self._found[place]

    def pays(self, columns: int, rows: int, uses: int) -> bool:
        """Whether a copy of these columns pays that will be multiplied so many times."""
        if self._cost is None:
            return False
        place = rows, columns // self._bucket, uses
        if place not in self._pays:
            self._pays[place] = self._cost.keep(self._usual(columns), rows, self._width, uses)
        return self._pays[place]

    def _way(self, cost: ProjectionCost, columns: int, rows: int) -> StepWay:
        way = cost.way(columns, rows, self._width)
        dense_s = cost.dense.seconds(rows, self._vocab * self._width, self._vocab)
        return "dense" if dense_s < cost.product_s(columns, rows, self._width, way) else way

    def _usual(self, columns: int) -> int:
        """The middle of its bucket."""
        return min(self._vocab, columns // self._bucket * self._bucket + self._bucket // 2)
