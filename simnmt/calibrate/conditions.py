"""The state of the box around a measurement: block `conditions` of a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simnmt.calibrate import busy
from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.drift import BASE
from simnmt.calibrate.measuring import Measured
from simnmt.costs.doubts import busy_message

STEADY_GOVERNORS = ("performance", "userspace")


def state(box: BoxDescription) -> dict[str, Any]:
    """What may change from one moment to the next. Watches the box for half a second."""
    others = busy.others_cpus()
    return {
        "others_cpus": others,
        "busy": None if others is None else busy.is_busy(others, box),
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


def busy_warnings(states: Sequence[Mapping[str, Any]], activity: str) -> list[str]:
    """Return a warning if other programs used the box in one of these states, which lie around `activity`."""
    if not any(state["busy"] for state in states):
        return []
    return [busy_message(max(state["others_cpus"] or 0.0 for state in states), activity)]


def disturbed_works(measured: Measured) -> list[str]:
    """Cells no repeat of which was free of disturbance, as `execution 2+100` (source and target tokens) or `step 2+32 x16`."""
    return [
        f"{bench} {cell.work.src_len}+{cell.work.tgt_len}" + (f" x{cell.work.batch}" if cell.work.batch > 1 else "")
        for bench, cells in measured.cells.items()
        for cell in cells
        if cell.disturbed
    ]


def remarks(block: Mapping[str, Any], measured: Measured | None, *, on_cpu: bool) -> list[str]:
    """Return what a reader of a new profile should know beside its doubts: an unsteady governor, and cells left out."""
    governor, messages = block["governor"], []
    if on_cpu and governor is not None and not set(governor.split("+")) <= set(STEADY_GOVERNORS):
        messages.append(f"the clock governor is {governor}: under performance, times vary less")
    for bench, works in {} if measured is None else measured.too_large.items():
        if works:
            least = min(works, key=lambda work: (work.batch, work.beam, work.src_len, work.tgt_len))
            messages.append(f"{bench}: {len(works)} cells from batch {least.batch} on were left out: out of memory")
    return messages
