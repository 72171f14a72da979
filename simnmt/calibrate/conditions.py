"""The state of the box around a measurement, and what a reader of its profile must be warned of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simnmt.calibrate import busy
from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.drift import BASE, Drift
from simnmt.calibrate.measuring import Measured
from simnmt.costs import disk_warnings, execution_warnings

STEADY_GOVERNORS = ("performance", "userspace")
LARGE_ERROR = 0.10
"""Held-out error of a cost above which decisions built on it stand on sand."""


def state(box: BoxDescription) -> dict[str, Any]:
    """What may change from one moment to the next. Watches the box for half a second."""
    others = busy.others_cpus()
    return {
        "others_cpus": others,
        "busy": None if others is None else busy.is_busy(others, box.logical_cores or box.usable_cpus),
        "load_average": None if box.load_average is None else box.load_average[0],
        "governor": box.governor,
        "frequency_mhz": box.frequency_mhz,
    }


def conditions_block(
    sessions: Sequence[dict[str, Any]], after: dict[str, Any], measured: Measured | None, pinned_cpus: Sequence[int]
) -> dict[str, Any]:
    """`conditions` of a profile: the states before each session and after the last, and how steady the reference was."""
    states = [*sessions, after]
    loads = [state["load_average"] for state in sessions if state["load_average"] is not None]
    others = [state["others_cpus"] for state in states if state.get("others_cpus") is not None]
    clocks = [state["frequency_mhz"] for state in states if state["frequency_mhz"] is not None]
    block: dict[str, Any] = {
        "load_average": max(loads, default=None),
        "governor": after["governor"],
        "frequency_mhz": clocks or None,
        "sessions": len(sessions),
        "load_average_after": after["load_average"],
        "others_cpus": max(others, default=None),
        "busy": any(state.get("busy") for state in states),
        "pinned_cpus": list(pinned_cpus),
    }
    if measured is not None:
        spoilt = disturbed_works(measured)
        if measured.frequencies_mhz:
            block["frequency_mhz"] = [float(each) for each in np.quantile(measured.frequencies_mhz, (0.0, 0.5, 1.0))]
            block["frequency_how"] = "least, median and greatest of the CPUs measured on, read after each reference reading"
        block |= {
            "drift": abs(measured.drift.largest),
            "drift_from": BASE,
            "reference_s": measured.drift.usual_s,
            "stretches": measured.stretches,
            "stretches_repeated": measured.repeated,
            "disturbed_cells": len(spoilt),
            "disturbed": spoilt,
        }
    return block


def disturbed_works(measured: Measured) -> list[str]:
    """Cells no repeat of which was free of disturbance, as `execution 2+100` (source and target tokens) or `step 2+32 x16`."""
    return [
        f"{bench} {cell.work.src_len}+{cell.work.tgt_len}" + (f" x{cell.work.batch}" if cell.work.batch > 1 else "")
        for bench, cells in measured.cells.items()
        for cell in cells
        if cell.disturbed
    ]


def warnings(block: dict[str, Any], measured: Measured | None, *, on_cpu: bool) -> list[str]:
    """What may have spoilt the numbers, one sentence each."""
    said = []
    if block["busy"]:
        said.append(f"the box was busy: others used {block['others_cpus']:.1f} CPUs before or after measuring")
    governor = block["governor"]
    if on_cpu and governor is not None and not set(governor.split("+")) <= set(STEADY_GOVERNORS):
        said.append(f"the clock governor is {governor}: under performance, times vary less")
    if measured is not None:
        said += _of_measured(measured, measured.drift, block)
    return said


def fit_warnings(blocks: Mapping[str, Any]) -> list[str]:
    """Which of a profile's costs err so much that they should be measured again, one sentence each."""
    said = execution_warnings((blocks.get("execution") or {}).get("fit") or {})
    for name in ("step", "encoder"):
        error = (blocks.get(name) or {}).get("heldout_error")
        if error is not None and error > LARGE_ERROR:
            said.append(f"{name}: a held-out error of {100 * error:.0f} %, above {100 * LARGE_ERROR:.0f} % (measure again)")
    return said + disk_warnings((blocks.get("disk") or {}).get("heldout_error"))


def _of_measured(measured: Measured, drift: Drift, block: dict[str, Any]) -> list[str]:
    said = []
    if block["disturbed_cells"]:
        cells = sum(len(cells) for cells in measured.cells.values())
        said.append(
            f"{block['disturbed_cells']} of {cells} cells stayed disturbed: the reference cell moved by up to "
            f"{100 * abs(drift.largest):.0f} % (measure again on a quiet box)"
        )
    for bench, works in measured.too_large.items():
        if works:
            least = min(works, key=lambda work: (work.batch, work.beam, work.src_len, work.tgt_len))
            said.append(f"{bench}: {len(works)} cells from batch {least.batch} on were left out: out of memory")
    return said
