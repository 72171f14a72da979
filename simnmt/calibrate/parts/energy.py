"""Power of the box at rest and at work."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from simnmt.calibrate.energy import find_energy_meter
from simnmt.calibrate.harness import Case, nothing
from simnmt.calibrate.parts import Bench, Blocks, Cases, Part, corner_cells
from simnmt.profile.blocks import EnergyBlock

RESOLUTIONS = 100
"""Least ratio of a span to the counter's resolution."""
QUICK_SPAN_S = 2.5
"""Longest span of a quick calibration, however coarse the counter."""


def energy_cases(bench: Bench) -> Cases:
    """Return a rest of the device, and each corner cell repeated for so long that the counter's resolution does not matter."""
    meter, obstacles = find_energy_meter(bench.engine.account.device)
    if meter is None:
        bench.remarks.append(f"no energy: {obstacles}")
        bench.add({"energy": None})
        return {}
    bench.resources.callback(meter.close)
    span_s = max(1.0 if bench.quick else 3.0, RESOLUTIONS * meter.resolution_s)
    if bench.quick:
        span_s = min(span_s, QUICK_SPAN_S)

    def span(run: Callable[[], object]) -> dict[str, Any]:
        """Return the seconds and the joules of one of the runs that fill the span; None if the counter fails."""
        times, before_j, begin_s = 0, meter.read_j(), time.perf_counter()
        while times == 0 or time.perf_counter() - begin_s < span_s:
            run()
            times += 1
        seconds, after_j = time.perf_counter() - begin_s, meter.read_j()
        joules = None if before_j is None or after_j is None else (after_j - before_j) / times
        return {"seconds": seconds / times, "joules": joules, "source": meter.source}

    cases: dict[Hashable, Case] = {"idle": Case(partial(span, partial(time.sleep, 2 * span_s)), prepare=nothing)}
    for work in corner_cells(bench.settings):
        case = bench.case(work, "energy")
        cases[f"{work.src_len}+{work.tgt_len}"] = replace(case, run=partial(span, partial(bench.engine.run, work)))
    return cases


def fit_energy_block(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `energy`: the power at rest and while the corner cells execute."""
    rows = frame.drop_duplicates("case", keep="last")
    if not (rows["joules"].fillna(0.0) > 0.0).all():
        bench.remarks.append("no energy: out of memory at a corner cell, or the counter failed while it was read")
        return {"energy": None}
    [idle], active = rows[rows["cell"].isna()].to_dict("records"), rows[rows["cell"].notna()]
    block = EnergyBlock(
        kind="measured",
        source=idle["source"],
        idle_w=float(idle["joules"] / idle["seconds"]),
        active_w=float(active["joules"].sum() / active["seconds"].sum()),
    )
    return {"energy": block}


PARTS = (Part("energy", ("energy",), energy_cases, fit_energy_block, order=8),)
