"""How the products of a step's active columns are made: by the rows alone, or as a measured cost says is fastest (FVP-09)."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Literal

from simnmt.kernels.gathered import Way, usual_way

if TYPE_CHECKING:
    from simnmt.costs.projection_cost import ProjectionCost

_BUCKETS = 64
"""Numbers of active columns that are told apart: asking the model takes as long as a small product."""


class ProductChoice:
    """Asks the cost model once for each number of rows and each bucket of active columns."""

    def __init__(self, cost: ProjectionCost | None, vocab: int, width: int) -> None:
        self._cost, self._vocab, self._width = cost, vocab, width
        self._bucket = max(1, vocab // _BUCKETS)
        self._ways: dict[tuple[int, int], Way | Literal["dense"]] = {}
        self._uses: dict[tuple[int, int], float] = {}
        """That a copy must have more of, to pay."""

    def way(self, columns: int, rows: int) -> Way | Literal["dense"]:
        """Of one product; `dense`: of all columns, of which the active ones are then taken, beyond a measured break-even."""
        if self._cost is None:
            return usual_way(rows)
        place = rows, columns // self._bucket
        if place not in self._ways:
            self._ways[place] = self._fastest(self._cost, self._usual(columns), rows)[0]
        return self._ways[place]

    def pays(self, columns: int, rows: int, uses: int) -> bool:
        """Whether a copy of these columns pays that will be multiplied so many times; without a measured cost none does."""
        if self._cost is None:
            return False
        place = rows, columns // self._bucket
        if place not in self._uses:
            self._uses[place] = self._break_even(self._cost, self._usual(columns), rows)
        return uses > self._uses[place]

    def _fastest(self, cost: ProjectionCost, columns: int, rows: int) -> tuple[Way | Literal["dense"], float]:
        way = cost.way(columns, rows, self._width)
        way_s = cost.product_s(columns, rows, self._width, way)
        dense_s = cost.dense.seconds(rows, self._vocab * self._width, self._vocab)
        return ("dense", dense_s) if dense_s < way_s else (way, way_s)

    def _break_even(self, cost: ProjectionCost, columns: int, rows: int) -> float:
        """Uses at which what a copy saves, against whatever is fastest without one, is what making it takes."""
        saved_s = self._fastest(cost, columns, rows)[1] - cost.product_s(columns, rows, self._width, "kept")
        return cost.copy_out.seconds(rows, columns * self._width, columns) / saved_s if saved_s > 0.0 else inf

    def _usual(self, columns: int) -> int:
        """The middle of its bucket."""
        return min(self._vocab, columns // self._bucket * self._bucket + self._bucket // 2)
