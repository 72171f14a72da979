"""Whole executions of single sentences: the plane of the profile, its residual and its range (CNMT-05)."""

from __future__ import annotations

import time
from collections.abc import Hashable
from functools import partial

import pandas as pd

from simnmt.calibrate.harness import Case, counted
from simnmt.calibrate.parts import Bench, Blocks, Cases, Part, corner_cells, execution_cells
from simnmt.calibrate.parts.step import WITHIN_S
from simnmt.calibrate.parts.step import rounds as step_rounds
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.profile.blocks import Execution, Mode
from simnmt.profile.execution_fit import cell_samples, fit_execution
from simnmt.profile.origin import ValidRange

ROUNDS, QUICK_ROUNDS = 7, 4
"""Rounds of single executions without steps beside them."""
LEAST_CELLS = 4


def apart(settings: Settings) -> bool:
    """Return whether every execution counts: those after gaps."""
    return settings.gap_s is not None


def cases(bench: Bench) -> Cases:
    """Return the cells, each of which idles before an execution if the settings have a gap."""
    settings, numbered = bench.settings, dict[Hashable, Case]()
    # Waiting in a loop would keep the core awake, which a service does not.
    idle = None if settings.gap_s is None else partial(time.sleep, settings.gap_s)
    for number, work in enumerate(execution_cells(settings)):
        numbered[f"{number}: {work.src_len}+{work.tgt_len}"] = bench.case(work, "execution", before=idle)
    return numbered


def rounds(bench: Bench) -> int:
    """Return the number of rounds: those of the steps, if they are measured beside the executions."""
    if "step" in bench.settings.parts and not apart(bench.settings):
        return step_rounds(bench)
    return QUICK_ROUNDS if bench.quick else ROUNDS


def fit(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `execution` and `valid_range`: lengths from 1 to the longest measured one.

    Raises `CalibrationError` if too few cells fitted into memory.
    """
    settings, rows = bench.settings, counted(frame, every=apart(bench.settings))
    cells = len(rows[["src_len", "tgt_len"]].drop_duplicates())
    if cells < LEAST_CELLS:
        what = f"only {cells} cells could be measured, too few for a plane"
        raise CalibrationError(what, remedy="free memory, or give smaller --max-src-len and --max-tgt-len")
    valid_range = ValidRange(src_len=(1, int(rows["src_len"].max())), tgt_len=(1, int(rows["tgt_len"].max())))
    return {"execution": execution_block(rows, settings), "valid_range": valid_range}


def execution_block(rows: pd.DataFrame, settings: Settings) -> Execution:
    """Fit `execution` of a profile: plane, residual, errors and samples. Raises `ValueError` for too few cells."""
    columns = [rows[name].to_numpy() for name in ("src_len", "tgt_len", "seconds")]
    mode: Mode = "every_repeat" if apart(settings) else "six_cells" if settings.mode == "quick" else "full_grid"
    fitted = None
    if mode == "six_cells":
        six = pd.MultiIndex.from_tuples([(work.src_len, work.tgt_len) for work in corner_cells(settings)])
        cells = pd.MultiIndex.from_arrays(columns[:2])
        # If some corners did not fit into memory, the others cannot make a plane to be judged.
        fitted = cells.isin(six) if six.isin(cells).all() else None
    block = fit_execution(*columns, mode=mode, fitted=fitted, stretch=rows.groupby(["attempt", "stretch"]).ngroup().to_numpy())
    return block.model_copy(update={"samples": cell_samples(*columns)})


PARTS = (
    Part("execution", ("execution",), cases, fit, 1, rounds=rounds, within_s=WITHIN_S, apart=apart, beside_reference=True),
)
