"""Costs of the box itself: cold reads from its disk (STI-07), and its power and energy."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import pandas as pd

from simnmt.calibrate.cells import corner_cells
from simnmt.calibrate.disk import MB, REPEATS, SIZES_BYTES, DiskError, measure_disk
from simnmt.calibrate.energy import EnergyMeter, find_energy_meter
from simnmt.calibrate.fits import fit_disk
from simnmt.calibrate.harness import Case, nothing
from simnmt.calibrate.parts import Bench, Blocks, Cases, Part
from simnmt.nmt.engine import Work
from simnmt.profile.blocks import EnergyBlock
from simnmt.profile.execution_fit import MEDIAN, fit_relative_plane

QUICK_READS: tuple[tuple[int, ...], int] = ((MB // 4, MB, 4 * MB, 16 * MB), 5)
"""Sizes in bytes, and repeats."""


def disk_cases(bench: Bench) -> Cases:
    """Return the reads of all sizes as one case, which opens and closes their file."""

    def reads() -> dict[str, Any]:
        sizes, repeats = QUICK_READS if bench.quick else (SIZES_BYTES, REPEATS)
        pace, seed = bench.settings.disk_bytes_per_s, bench.settings.seed
        try:
            done = measure_disk(bench.folder, sizes, repeats, pace, seed=seed, listener=bench.listener)
        except DiskError as error:
            return {"error": str(error)}
        return {"read_s": list(done.read_s.items()), "doubt": done.doubt or ""}

    return {"reads": Case(reads, prepare=nothing)}


def fit_disk_block(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `disk`."""
    [row] = frame.to_dict("records")
    try:
        if "error" in row:
            raise ValueError(row["error"])
        block = fit_disk(dict(row["read_s"]), cold=not row["doubt"], paced_bytes_per_s=bench.settings.disk_bytes_per_s)
    except ValueError as error:
        bench.remarks.append(f"no disk: {error}")
        return {"disk": None}
    if row["doubt"]:
        bench.remarks.append(f"disk: the reads may not have been cold: {row['doubt']}")
    return {"disk": block}


RESOLUTIONS = 100
"""Least ratio of a span to the counter's resolution."""
QUICK_SPAN_S = 2.5
"""Longest span of a quick calibration, however coarse the counter."""


def energy_cases(bench: Bench) -> Cases:
    """Return a rest of the device, and each corner cell repeated for so long that the counter's resolution does not matter."""
    bench.meter, obstacles = find_energy_meter(bench.engine.account.device)
    if bench.meter is None:
        bench.remarks.append(f"no energy: {obstacles}")
        bench.add({"energy": None})
        return {}
    span_s = max(1.0 if bench.quick else 3.0, RESOLUTIONS * bench.meter.resolution_s)
    if bench.quick:
        span_s = min(span_s, QUICK_SPAN_S)

    def repeated(work: Work) -> int:
        times, begin_s = 0, time.perf_counter()
        while times == 0 or time.perf_counter() - begin_s < span_s:
            bench.engine.run(work)
            times += 1
        return times

    def rest() -> int:
        time.sleep(2 * span_s)
        return 1

    measure = partial(_span, bench.meter)
    cases: dict[Hashable, Case] = {"idle": Case(partial(measure, rest), prepare=nothing)}
    for work in corner_cells(bench.settings):
        case = bench.case(work, "energy")
        run = partial(measure, partial(repeated, work))
        cases[f"{work.src_len}+{work.tgt_len}"] = Case(run, prepare=case.prepare, size=case.size, about=case.about)
    return cases


def _span(meter: EnergyMeter, do: Callable[[], int]) -> dict[str, Any]:
    """Return the seconds and the joules of one of the runs of `do`, which returns their number; None if the counter fails."""
    before_j, begin_s = meter.read_j(), time.perf_counter()
    times = do()
    span_s, after_j = time.perf_counter() - begin_s, meter.read_j()
    joules = None if before_j is None or after_j is None else (after_j - before_j) / times
    return {"seconds": span_s / times, "joules": joules}


def fit_energy_block(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `energy`: a plane in joules over both lengths. The joules include the power of the box at rest."""
    assert bench.meter is not None
    bench.meter.close()
    source, rows = bench.meter.source, frame.drop_duplicates("case", keep="last")
    if not (rows["joules"].fillna(0.0) > 0.0).all():
        bench.remarks.append(f"no energy: out of memory at a corner cell, or the counter of {source} failed while it was read")
        return {"energy": None}
    [idle], active = rows[rows["cell"].isna()].to_dict("records"), rows[rows["cell"].notna()]
    columns = [active[name].to_numpy() for name in ("src_len", "tgt_len", "joules")]
    plane, heldout_error = fit_relative_plane(*columns, quantile=MEDIAN)
    block = EnergyBlock(
        kind="measured",
        source=source,
        idle_w=float(idle["joules"] / idle["seconds"]),
        active_w=float(active["joules"].sum() / active["seconds"].sum()),
        j_per_src_token=plane.s_per_src_token,
        j_per_tgt_token=plane.s_per_tgt_token,
        j_fixed=plane.s_fixed,
        heldout_error=heldout_error,
    )
    return {"energy": block}


PARTS = (
    Part("energy", ("energy",), energy_cases, fit_energy_block, order=8),
    Part("disk", ("disk",), disk_cases, fit_disk_block, order=9, apart=lambda settings: True),
)
