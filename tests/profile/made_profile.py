"""A profile with every block, made of a known device; for the tests of files, words and pages."""

from __future__ import annotations

from typing import Any

import numpy as np

from simnmt.calibrate.fits import cell_samples, fit_encoder_cost, fit_step_cost
from simnmt.profile.device_cost import fit_disk
from simnmt.profile.execution_fit import fit_execution

LENGTHS = (2, 5, 10, 20, 40, 80)
BATCHES = (1, 2, 4, 8, 16, 32)
JUDGED = (6, 12)
POSITIONS = (0, 16, 64)


def whole_profile(speed: float = 1.0, name: str = "everything") -> dict[str, Any]:
    """Content of a measured profile of version 2; a device `speed` times as fast as the one with the plane below."""
    random = np.random.default_rng(5)
    src, tgt, _ = (each.ravel() for each in np.meshgrid(LENGTHS, LENGTHS, range(7)))
    time_s = (0.0004 * src + 0.003 * tgt + 0.005) / speed * (1.0 + random.exponential(0.02, src.size))
    found = fit_execution(src, tgt, time_s, mode="full_grid")
    batch, position, _ = (each.ravel() for each in np.meshgrid((*BATCHES, *JUDGED), POSITIONS, range(3)))
    step_s = (0.003 + 1e-4 * batch + 1e-6 * batch * position) / speed * random.lognormal(0.0, 0.01, batch.size)
    encode_s = (0.002 + 1e-4 * batch + 1e-5 * batch * position) / speed * random.lognormal(0.0, 0.01, batch.size)
    size = np.repeat([2**18, 2**20, 2**22, 2**24], 5)
    read_s = 0.001 + size / 500e6
    disk = fit_disk(size, read_s)
    return {
        "schema_version": 2,
        "name": name,
        "device": {"name": "a box", "details": "one core"},
        "model": {"name": "a model", "vocab": 65_001},
        "length_unit": {"src": "word", "tgt": "word"},
        "valid_range": {"src_len": [2, 80], "tgt_len": [2, 80]},
        "execution": {
            "kind": "measured",
            "plane": {
                "s_per_src_token": found.plane.s_per_src_token,
                "s_per_tgt_token": found.plane.s_per_tgt_token,
                "s_fixed": found.plane.s_fixed,
            },
            "residual_relative_sd": found.residual_relative_sd,
            "fit": found.fit,
            "samples": cell_samples(src, tgt, time_s),
        },
        "provenance": {"source": "made up", "date": "2026-01-01", "tool": "a test"},
        "engine": {
            "backend": "torch",
            "compute_type": "float32",
            "device": "cpu",
            "device_name": "a processor",
            "threads": 1,
            "beam": 1,
            "weights": "random",
            "architecture": {"layers": 6, "hidden": 512},
            "versions": {"torch": "2.1.0"},
        },
        "step": fit_step_cost(batch, position, step_s, judged_batches=JUDGED).model_dump(mode="json"),
        "encoder": fit_encoder_cost(batch, position, encode_s, judged_batches=JUDGED).model_dump(mode="json"),
        "overheads": {
            "decision_s": {"value": 2e-7, "kind": "measured"},
            "tokenisation_s_per_token": {"value": None, "kind": "measured", "note": "no tokeniser came with the model"},
        },
        "disk": {
            "kind": "measured",
            "s_fixed": disk.cost.s_fixed,
            "bytes_per_s": disk.cost.bytes_per_s,
            "r2": disk.r2,
            "heldout_error": disk.heldout_error,
            "samples": [
                {"bytes": int(each), "repeats": 5, "min_s": 0.001 + each / 500e6, "median_s": 0.001 + each / 500e6}
                for each in np.unique(size).tolist()
            ],
            "cold": True,
        },
        "energy": {"kind": "measured", "source": "rapl", "idle_w": 12.5, "active_w": 40.0},
        "conditions": {"load_average": [0.1, 0.2, 0.3], "governor": "performance", "drift": 0.004, "disturbed_cells": 1},
    }
