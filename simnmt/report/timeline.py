"""Backlog and utilisation of every device over the time of a run, per policy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.report import thinning
from simnmt.report.rtt import time_unit
from simnmt.results import Cell
from simnmt.results.over_time import over_time

SPANS, FEWEST_SPANS = 400, 50


def timeline(cell: Cell, numbers: int) -> dict[str, Any]:
    """Means over spans of time, at most 400 of them and fewer where all together would be more than so many `numbers`.

    `spans` holds, per policy, runs of equal spans as [first edge, last edge, spans], in `unit`; a device that a policy never
    used has None in place of its numbers.
    """
    each = numbers // (2 * len(cell.logs) * len(cell.devices))
    found = [over_time(log, cell.devices, min(max(each, FEWEST_SPANS), SPANS)) for log in cell.logs.values()]
    unit, length_s = time_unit(max(float(run.edges_s[-1]) for run in found))
    return {
        "unit": unit,
        "spans": [_equal_spans(run.edges_s / length_s) for run in found],
        "waiting": [_by_device(run.waiting) for run in found],
        "busy": [_by_device(100.0 * run.busy_share) for run in found],
    }


def _equal_spans(edges: NDArray[np.float64]) -> list[list[float]]:
    """Edges as runs of equal spans: there are at most two (see `over_time.edges`)."""
    length = np.diff(edges)
    turn = int(np.argmax(~np.isclose(length, length[0], rtol=1e-6))) or length.size
    runs = [(0, turn), *([(turn, length.size)] if turn < length.size else [])]
    return [[float(f"{edges[begin]:.8g}"), float(f"{edges[end]:.8g}"), end - begin] for begin, end in runs]


def _by_device(values: NDArray[np.float64]) -> list[list[float | None] | None]:
    return [thinning.numbers(row, 3) if row.any() else None for row in values]
