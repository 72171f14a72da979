"""What the pipeline's benchmark measured on a real disk and processor, as rows (STI-06, STI-16, STI-21)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simnmt import shipped
from simnmt.errors import InputError
from simnmt.files import read_bounded
from simnmt.reproduce.sti import published
from simnmt.reproduce.sti.derived import load_then_run_s, motivating_pipeline
from simnmt.reproduce.sti.pipeline_bars import why_unjudged
from simnmt.sti.timeline import ROUNDING

Rows = list[dict[str, Any]]
Measured = Mapping[str, Any]
"""What `python -m benchmarks.sti_pipeline --out` writes."""
_WAYS = (("load_then_run", "32 bits loaded first"), ("bits_6", "pipeline, 6 bits"), ("bits_2", "pipeline, 2 bits"))


def shipped_pipeline() -> Measured | None:
    """The measurement that comes with simnmt, if one does."""
    found = sorted((shipped.folder("calibration") / "sti").glob("pipeline-*.json"))
    return read_pipeline(found[0]) if found else None


def read_pipeline(path: Path) -> Measured:
    """Raises `InputError` for a file of anything else."""
    remedy = "make it with `python -m benchmarks.sti_pipeline --out FILE`"
    try:
        found = json.loads(read_bounded(path))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path, remedy="name a readable file") from None
    except (ValueError, RecursionError):
        raise InputError("no JSON", path=path, remedy=remedy) from None
    try:
        if not isinstance(found, dict) or found["version"] != 2:
            raise InputError("no measurement of a pipeline that is known here", path=path, remedy=remedy)
        pipeline_rows(found)
        simulated_rows(found)
        unpack_ratios(found)
        machine_of(found)
        why_unjudged(found)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise InputError("no measurement of a pipeline", path=path, remedy=remedy) from None
    return found


def machine_of(measured: Measured) -> str:
    """What was run, and when."""
    return f"{measured['layers']} layers of width {measured['width']}, {measured['date']}"


def pipeline_rows(measured: Measured | None) -> Rows:
    """The paper's pipeline of section 2.2, and ours."""
    own, both_s = motivating_pipeline(), load_then_run_s()
    rows = [
        _row(
            "six layers, 32 bits loaded first",
            "published",
            None,
            both_s,
            both_s - published.DISTIL_LAYERS * published.LAYER_COMP_S,
            1.0,
        ),
        _row("six layers, pipeline, 32 bits", "published", None, own.latency_s, own.stall_s, both_s / own.latency_s),
    ]
    for each in measured["faster"] if measured is not None else ():
        whole_s = float(each["load_then_run_s"])
        for way, what in _WAYS:
            latency_s = float(each[f"{way}_s"])
            ratio = float(each["ratio"]) if way == "bits_6" else whole_s / latency_s
            stall_s = float(each[f"{way}_stall_s"])
            assert measured is not None
            rows.append(
                _row(f"{measured['layers']} layers, {what}", "measured", float(each["pace_mb"]), latency_s, stall_s, ratio)
            )
    return rows


def _row(what: str, kind: str, pace: float | None, latency_s: float, stall_s: float, ratio: float) -> dict[str, Any]:
    return {
        "what": what,
        "kind": kind,
        "pace_mb_s": pace,
        "latency_ms": 1e3 * latency_s,
        "stall_ms": 1e3 * stall_s,
        "ratio": ratio,
    }


def simulated_rows(measured: Measured | None) -> Rows:
    """Each plan of the benchmark's grid: what was simulated, and what it took."""
    if measured is None:
        return []
    skew_pace = float(measured["skew"]["pace_mb"])
    return [
        {
            "what": f"{row['layers']} x {row['slices']}, {float(row['mean_bits']):.1f} bits",
            "pace_mb_s": float(row["pace_mb"]),
            "at_skew": float(row["pace_mb"]) == skew_pace,
            "length": int(row["length"]),
            "deadline_ms": float(row["deadline_ms"]),
            "preload_mb": float(row["preload_mb"]),
            "simulated_ms": 1e3 * float(row["simulated_s"]),
            "measured_ms": 1e3 * float(row["measured_s"]),
            "off": float(row["error"]),
            "off_before": float(row["error_before"]),
            "no_stall_predicted": float(row["simulated_stall_s"]) <= ROUNDING * float(row["simulated_s"]),
            "stall_share": float(row["stall_share"]),
        }
        for row in measured["grid"]
    ]


def unpack_ratios(measured: Measured) -> tuple[float, float]:
    """Native unpacking over the best of torch and numba, the least over bits; and the speed at 6 bits over that at 2."""
    own = measured["unpack"]
    return float(own["least_ratio"]), float(own["six_over_two"])
