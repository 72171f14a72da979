"""What the figures of one cell show, as plain numbers; the scripts beside `page.js` draw them.

Milliseconds here, because a person reads them. Everything is thinned first (`thinning.py`), so that a page does not grow with
the number of requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.report import thinning
from simnmt.report.batches import batches
from simnmt.report.causes import gaps, parts
from simnmt.report.plane import misrouted, plane
from simnmt.report.rtt import rtt
from simnmt.report.timeline import timeline
from simnmt.results import Cell
from simnmt.results.summary import Row

LENGTH_BINS = 30
TIMELINE_NUMBERS = 60_000
"""Of all timelines of a page, so that neither many cells nor many devices make it heavy."""

Log = Mapping[str, NDArray[Any]]


def figures(cell: Cell, rows: Sequence[Row], gap_rows: Sequence[Row], cells: int = 1) -> dict[str, Any]:
    """The content of all figures of one cell, ready for JSON. `rows`, `gap_rows`: the cell's own; `cells`: on the page."""
    several = len(cell.devices) > 2
    formed = batches(cell, cells)
    return {
        "policies": list(cell.logs),
        "devices": [device.name for device in cell.devices],
        "unstable": [next((row.get("unstable") for row in rows if row["policy"] == policy), None) for policy in cell.logs],
        "latency": latency(cell.logs),
        "parts": parts(rows, list(cell.logs)),
        "share": shares(cell.logs, len(cell.devices)) if several else shares(cell.logs),
        "rtt": rtt(cell),
        "timeline": timeline(cell, TIMELINE_NUMBERS // max(cells, 1)) if _queues(rows) else None,
        "plane": plane(cell),
        "misroutes": misrouted(cell),
        "gaps": gaps(gap_rows),
        **({"batches": formed} if formed else {}),
    }


def embedded(content: dict[str, Any]) -> str:
    """JSON that may stand inside a script element: no character of it can end the element or begin another."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def latency(logs: Mapping[str, Log]) -> dict[str, Any]:
    """Quantiles of each policy's latency over one common grid of shares; requests that never ended are left out."""
    done = {policy: log["latency_s"][log["outcome"] == 0] for policy, log in logs.items()}
    grid = thinning.shares(max((values.size for values in done.values()), default=1))
    return {
        "share": [round(share, 7) for share in grid.tolist()],
        "ms": [thinning.numbers(thinning.quantiles(values, grid) * 1e3) for values in done.values()],
    }


def shares(logs: Mapping[str, Log], devices: int = 0) -> dict[str, Any]:
    """Share of requests that each policy sent away, over source length, in bins of about equally many requests.

    `by_device`: by device and policy the share sent there, of so many devices; None if none are asked for.
    """
    src_len = next(iter(logs.values()))["src_len"]
    edges = np.unique(np.quantile(src_len, np.linspace(0, 1, LENGTH_BINS + 1)[1:-1], method="lower"))
    bins = np.searchsorted(edges, src_len, side="left")
    count = np.bincount(bins, minlength=edges.size + 1)
    filled = count > 0
    targets = max(devices, 2)
    per_policy = [
        # One count for all devices: a bin's number and a target's make one number.
        np.bincount(bins * targets + np.minimum(log["target"], targets - 1), minlength=count.size * targets)
        .reshape(-1, targets)[filled]
        .T
        * (100.0 / count[filled])
        for log in logs.values()
    ]
    return {
        "src_len": thinning.numbers(np.bincount(bins, src_len, edges.size + 1)[filled] / count[filled]),
        "percent": [thinning.numbers(percent[1:].sum(0)) for percent in per_policy],
        "by_device": [[thinning.numbers(percent[number], 4) for percent in per_policy] for number in range(devices)] or None,
    }


def _queues(rows: Sequence[Row]) -> bool:
    """Whether requests had to queue; back to back nothing ever waits, and time has no other meaning than their number."""
    return any(row.get("offered_rps") is not None for row in rows)
