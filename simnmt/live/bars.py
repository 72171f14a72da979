"""The bars of a validation: what its figures must reach, declared once, each with the figure and whether it is met."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor

import numpy as np

from simnmt.live.cell_comparison import CellResult, GroupVerdict

LOW_LOAD, HIGH_LOAD = (0.0, 0.6), (0.6, 0.8)
"""Loads above the first and to the second."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What bars are judged by."""

    cells: Sequence[CellResult]
    """All cells, the void ones included."""
    groups: Sequence[GroupVerdict]

    def kept(self, loads: tuple[float, float] = (0.0, 9.0), repeats: int = 1) -> list[CellResult]:
        """Return the cells of these loads that are not void and have as many repeats."""
        low, high = loads
        return [
            cell for cell in self.cells if not cell.void and low < cell.cell.load <= high and len(cell.live_repeats) >= repeats
        ]

    def absolute(self, name: str, loads: tuple[float, float], repeats: int = 1) -> list[float]:
        """Return the absolute values of a figure of those cells that have it."""
        values = (getattr(cell, name) for cell in self.kept(loads, repeats))
        return [abs(value) for value in values if value is not None]


Figures = Callable[[Judged], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: a statistic of some figures, and its bound."""

    name: str
    figures: Figures
    """The figures of cells or groups; empty if nothing is to be judged."""
    statistic: Callable[[Sequence[float]], float]
    most: float | None = None
    least: float | None = None
    gated: bool = False
    """True if the command line ends with status 3 where the bar is missed."""
    unit: str = "%"
    """`%` for shares, which are printed in percent; empty for numbers."""

    def judge(self, judged: Judged) -> BarResult:
        """Return the bar's figure and whether it is met; neither is known if there is nothing to judge."""
        figures = self.figures(judged)
        if not len(figures):
            return BarResult(self, None, 0)
        return BarResult(self, float(self.statistic(figures)), len(figures))


@dataclass(frozen=True, slots=True)
class BarResult:
    """A judged bar."""

    bar: Bar
    figure: float | None
    judged: int
    """Number of cells or groups behind the figure."""

    @property
    def met(self) -> bool | None:
        """Whether the figure itself, not a rounded one, lies within the bounds; None without a figure."""
        if self.figure is None:
            return None
        above = self.bar.least is None or self.figure >= self.bar.least
        return above and (self.bar.most is None or self.figure <= self.bar.most)

    @property
    def figure_text(self) -> str:
        """The figure with two digits after the point, rounded away from being met."""
        if self.figure is None:
            return "-"
        scaled = (100.0 if self.bar.unit == "%" else 1.0) * self.figure
        below = self.bar.most is None or (self.bar.least is not None and self.figure < self.bar.least)
        # Less than a millionth is the noise of binary fractions, such as 100 * 0.07.
        hundredths = floor(100.0 * scaled + 1e-6) if below else ceil(100.0 * scaled - 1e-6)
        return f"{hundredths / 100.0:.2f}"

    @property
    def bound_text(self) -> str:
        """The bounds, such as `at most 2 %`."""
        scale = 100.0 if self.bar.unit == "%" else 1.0
        parts = [
            f"{word} {scale * bound:g}"
            for word, bound in (("at least", self.bar.least), ("at most", self.bar.most))
            if bound is not None
        ]
        return f"{', '.join(parts)} {self.bar.unit}".rstrip()

    def document(self) -> dict[str, object]:
        """Return the bar as JSON."""
        bar = self.bar
        return {
            "name": bar.name,
            "figure": self.figure,
            "least": bar.least,
            "most": bar.most,
            "judged": self.judged,
            "met": self.met,
            "gated": bar.gated,
        }


def _errors(name: str, loads: tuple[float, float], repeats: int = 1) -> Figures:
    return lambda judged: judged.absolute(name, loads, repeats)


def _share_errors(judged: Judged) -> list[float]:
    """Return the errors of the offloaded share where there is a choice: a policy of a single device cannot err."""
    return [
        abs(cell.offloaded_share_error)
        for cell in judged.kept(LOW_LOAD)
        if any(0.0 < figures.offloaded_share < 1.0 for figures in (cell.live, cell.simulated))
    ]


def _raw_over_spread(judged: Judged) -> list[float]:
    return [abs(cell.raw_error_mean) / cell.spread_mean for cell in judged.kept() if cell.spread_mean]


def _best_same(judged: Judged) -> list[float]:
    return [
        float(group.best_same_or_indistinguishable)
        for group in judged.groups
        if group.best_same_or_indistinguishable is not None
    ]


def _inversions(judged: Judged) -> list[float]:
    repeated = any(len(cell.live_repeats) > 1 for cell in judged.kept())
    return [float(len(group.inverted)) for group in judged.groups] if repeated else []


def _realised(judged: Judged) -> list[float]:
    return [group.gain_realised for group in judged.groups if group.gain_realised is not None]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


BARS = (
    Bar(
        "structural error of the mean, load to 0.6, median",
        _errors("structural_error_mean", LOW_LOAD, 3),
        _median,
        most=0.02,
        gated=True,
    ),
    Bar(
        "structural error of p95, load to 0.6, median",
        _errors("structural_error_p95", LOW_LOAD, 3),
        _median,
        most=0.04,
        gated=True,
    ),
    Bar(
        "structural error of the mean, load to 0.6, worst",
        _errors("structural_error_mean", LOW_LOAD, 3),
        max,
        most=0.04,
        gated=True,
    ),
    Bar(
        "structural error of p95, load to 0.6, worst", _errors("structural_error_p95", LOW_LOAD, 3), max, most=0.08, gated=True
    ),
    Bar(
        "structural error of the mean, load 0.6 to 0.8, median",
        _errors("structural_error_mean", HIGH_LOAD, 3),
        _median,
        most=0.05,
    ),
    Bar("structural error of p95, load 0.6 to 0.8, median", _errors("structural_error_p95", HIGH_LOAD, 3), _median, most=0.10),
    Bar("drift-matched error of the mean, load to 0.6, median", _errors("error_mean", LOW_LOAD), _median, most=0.05),
    Bar("drift-matched error of p95, load to 0.6, median", _errors("error_p95", LOW_LOAD), _median, most=0.08),
    Bar("error of the offloaded share, load to 0.6, median", _share_errors, _median, most=0.03),
    Bar("raw error of the mean over the live spread, median", _raw_over_spread, _median, most=2.0, unit=""),
    Bar("rankings inverted where both intervals are apart", _inversions, sum, most=0.0, unit=""),
    Bar("groups whose best policy is the same or indistinguishable", _best_same, _mean, least=0.9),
    Bar("simulated gain over the better device realised live, least", _realised, min, least=0.8),
    Bar(
        "cells whose decisions are the same when replayed",
        lambda judged: [float(cell.decisions_identical) for cell in judged.cells],
        _mean,
        least=1.0,
        gated=True,
    ),
    Bar(
        "coverage of the 90 % prediction intervals",
        lambda judged: [float(cell.covered) for cell in judged.kept()],
        _mean,
        least=0.8,
        most=0.97,
    ),
    Bar("cells that are not void", lambda judged: [float(not cell.void) for cell in judged.cells], _mean, least=0.75),
)


def judge_bars(cells: Sequence[CellResult], groups: Sequence[GroupVerdict]) -> Iterator[BarResult]:
    """Yield every bar with its figure."""
    judged = Judged(cells, groups)
    for bar in BARS:
        yield bar.judge(judged)
