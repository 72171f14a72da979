"""What the output layer takes with all columns and with the active ones alone, and when the latter pays (FVP-09)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from simnmt.configuration import Configuration
from simnmt.costs.profile_blocks import Kind
from simnmt.costs.projection_fit import StageCost

Way = Literal["row_wise", "gather"]
"""How the active columns are multiplied: straight from the weight's rows, or gathered in blocks first."""
WAYS: tuple[Way, ...] = ("row_wise", "gather")
AnyWay = Literal["row_wise", "gather", "kept"]
"""Also from a copy of the active columns that was kept from an earlier step."""
OVERLAP = 2
"""Indices in the sets of several rows for each column of their union, where it is not said: sets of one text overlap."""


@dataclass(frozen=True, slots=True)
class ProjectionStages:
    """Seconds of each stage of one step with active columns."""

    assign_s: float
    """The nearest centroid of each row (FVP-05)."""
    union_s: float
    """From the rows' sets to ascending indices (FVP-06)."""
    product_s: float
    scatter_s: float
    """To their places among V, all others -inf (FVP-07); 0 where the search takes the columns as they are (XP-02)."""
    search_s: float
    """Bias, softmax and search: over V after a scatter, else over the active columns."""

    @property
    def overhead_s(self) -> float:
        """Beside product and search."""
        return self.assign_s + self.union_s + self.scatter_s

    @property
    def total_s(self) -> float:
        """All of them."""
        return self.overhead_s + self.product_s + self.search_s


class ProjectionCost(Configuration):
    """Fitted costs of the output layer's stages on one box, for as many threads as were used (FVP-09)."""

    kind: Kind
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1
    vocab: tuple[int, ...]
    """Sizes V of what was measured, ascending."""
    width: tuple[int, ...]
    """Widths d of what was measured, ascending."""
    provenance: dict[str, str] = Field(default_factory=dict)
    """Of the box, the versions and the date, and what was measured how."""
    assign: StageCost
    """Numbers: clusters x width; columns: clusters."""
    union: StageCost
    """Numbers: V; columns: indices in the rows' sets."""
    row_wise: StageCost
    """Numbers: active columns x width; columns: active columns. The same of the next three."""
    gather: StageCost
    kept: StageCost
    copy_out: StageCost
    """Makes the copy that is kept; whatever the rows."""
    scatter: StageCost
    """Numbers: V; columns: active columns. Each for one of the rows."""
    search: StageCost
    """Bias, softmax and search in one pass. Numbers: columns searched."""
    dense: StageCost
    """The product with all columns. Numbers: V x width; columns: V."""

    def product_s(self, columns: int, rows: int, width: int, way: AnyWay | None = None) -> float:
        """Seconds of one product with the active columns; by the faster way where none is named."""
        way = way or self.way(columns, rows, width)
        stage: StageCost = getattr(self, way)
        return stage.seconds(rows, columns * width, columns)

    def stages_s(
        self,
        *,
        vocab: int,
        width: int,
        clusters: int,
        columns: int,
        rows: int,
        way: AnyWay | None = None,
        indices: int | None = None,
        scatter: bool = False,
    ) -> ProjectionStages:
        """Seconds of each stage of one step; `rows`: sentences x beam.

        `clusters`: 0 for candidate lists, which ask no centroid. `way`: the faster one if none is named. `indices`: in all the
        rows' sets together; None: one for each active column at one row, `OVERLAP` at more. `scatter`: write the logits to
        their places among V and search there, as published; else the active columns are searched as they are (XP-02).
        """
        indices = (columns if rows == 1 else OVERLAP * columns) if indices is None else indices
        searched = vocab if scatter else columns
        return ProjectionStages(
            assign_s=self.assign.seconds(rows, clusters * width, clusters) if clusters else 0.0,
            union_s=self.union.seconds(rows, vocab, indices),
            product_s=self.product_s(columns, rows, width, way),
            scatter_s=self.scatter.seconds(rows, vocab, columns) if scatter else 0.0,
            search_s=self.search.seconds(rows, searched, searched),
        )

    def dense_s(self, *, vocab: int, width: int, rows: int) -> float:
        """Seconds of one step with all columns: product, bias, softmax and search."""
        return self.dense.seconds(rows, vocab * width, vocab) + self.search.seconds(rows, vocab, vocab)

    def break_even_share(
        self, vocab: int, width: int, clusters: int, rows: int, *, scatter: bool = False, own: bool = False
    ) -> float | None:
        """Share of V above which dense wins: 0 where it always does, None where it does not even at all of V.

        `own`: dense is the product here of all columns where that is faster than the library's, as with few rows it may be.
        """
        dense_s = self.dense_s(vocab=vocab, width=width, rows=rows)
        if own:
            search_s = self.search.seconds(rows, vocab, vocab)
            dense_s = min(dense_s, self.product_s(vocab, rows, width) + search_s)
        shares = []
        for way in WAYS:
            # Every stage is a line of the active columns, so two points of it say where it meets the dense one.
            none_s, all_s = (
                self.stages_s(
                    vocab=vocab, width=width, clusters=clusters, columns=columns, rows=rows, way=way, scatter=scatter
                ).total_s
                for columns in (0, vocab)
            )
            if all_s <= dense_s:
                return None
            shares.append(max(0.0, (dense_s - none_s) / (all_s - none_s)) if all_s > none_s else 0.0)
        return max(shares)

    def way(self, columns: int, rows: int, width: int) -> Way:
        """The faster way to multiply columns of which no copy is kept; `row_wise` of two that are alike."""
        numbers = columns * width
        row_wise_s, gather_s = (stage.seconds(rows, numbers, columns) for stage in (self.row_wise, self.gather))
        return "row_wise" if row_wise_s <= gather_s else "gather"
