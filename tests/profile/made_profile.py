"""A profile with every block, made of a known device; for the tests of files, summaries and pages."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simnmt.calibrate.parts.step import fit_grid
from simnmt.profile.blocks import EncoderBlock, StepBlock
from simnmt.profile.cost import CostTable
from simnmt.profile.execution_fit import cell_samples, fit_execution

LENGTHS = (2, 5, 10, 20, 40, 80)
BATCHES = (1, 2, 4, 8, 16, 32)
JUDGED = (6, 12)
POSITIONS = (0, 16, 64)
DISTURBED = {"disturbed_cells": 1, "disturbed": ["step 20+64 x8"]}


def line_table(
    batches: ArrayLike,
    lengths: ArrayLike,
    s_fixed: float,
    s_per_row: float = 0.0,
    s_per_token: float = 0.0,
    s_per_row_token: float = 0.0,
) -> CostTable:
    """Cells on s_fixed + s_per_row batch + (s_per_token + s_per_row_token batch) length, which a table gives back exactly."""
    rows, tokens = np.asarray(batches, np.float64)[:, None], np.asarray(lengths, np.float64)
    return CostTable.of(batches, lengths, s_fixed + s_per_row * rows + (s_per_token + s_per_row_token * rows) * tokens)


def whole_profile(speed: float = 1.0, name: str = "everything") -> dict[str, Any]:
    """Content of a measured profile; a device `speed` times as fast as the one with the plane below."""
    return copy.deepcopy(_content(speed)) | {"name": name}


@cache
def _content(speed: float) -> dict[str, Any]:
    random = np.random.default_rng(5)
    src, tgt, _ = (axis.ravel() for axis in np.meshgrid(LENGTHS, LENGTHS, range(7)))
    time_s = (0.0004 * src + 0.003 * tgt + 0.005) / speed * (1.0 + random.exponential(0.02, src.size))
    execution = fit_execution(src, tgt, time_s, mode="full_grid")
    execution = execution.model_copy(update={"samples": cell_samples(src, tgt, time_s)})
    batch, position, _ = (axis.ravel() for axis in np.meshgrid((*BATCHES, *JUDGED), POSITIONS, range(3)))
    step_s = (0.003 + 1e-4 * batch + 1e-6 * batch * position) / speed * random.lognormal(0.0, 0.01, batch.size)
    encode_s = (0.002 + 1e-4 * batch + 1e-5 * batch * position) / speed * random.lognormal(0.0, 0.01, batch.size)
    return {
        "schema_version": 2,
        "device": {"name": "a box", "details": "one core"},
        "model": {"name": "a model", "vocab": 65_001},
        "length_unit": {"src": "word", "tgt": "word"},
        "valid_range": {"src_len": [2, 80], "tgt_len": [2, 80]},
        "execution": execution.model_dump(mode="json"),
        "provenance": {"source": "made up", "date": "2026-01-01", "tool": "a test"},
        "engine": {
            "backend": "torch",
            "compute_type": "float32",
            "device": "cpu",
            "device_name": "a processor",
            "threads": 1,
            "beam": 1,
            "weights": "checkpoint",
            "architecture": {"layers": 6, "hidden": 512},
            "versions": {"torch": "2.1.0"},
        },
        "step": fit_grid(StepBlock, batch, position, step_s, judged_batches=JUDGED).model_dump(mode="json"),
        "encoder": fit_grid(EncoderBlock, batch, position, encode_s, judged_batches=JUDGED).model_dump(mode="json"),
        "overheads": {
            "decision_s": {"value": 2e-7, "kind": "measured"},
            "leave_s": {"value": None, "kind": "measured", "note": "the engine never refills a batch"},
        },
        "energy": {"kind": "measured", "source": "rapl", "idle_w": 12.5, "active_w": 40.0},
        "model_memory": {"kind": "measured", "resident_bytes": 300_000_000, "load_s": 0.5},
        "conditions": {"load_average": [0.1, 0.2, 0.3], "governor": "performance", "drift": 0.004, **DISTURBED},
    }
