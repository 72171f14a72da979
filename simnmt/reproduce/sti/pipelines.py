"""What the pipeline's benchmark measured on a real disk and processor, as rows (STI-16, STI-21)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simnmt import shipped
from simnmt.errors import InputError
from simnmt.reproduce.sti.derived import load_then_run_s, motivating_pipeline

Rows = list[dict[str, Any]]


def shipped_pipeline() -> Mapping[str, Any] | None:
    """The measurement that comes with simnmt, if one does."""
    found = sorted((shipped.folder("calibration") / "sti").glob("pipeline-*.json"))
    return read_pipeline(found[0]) if found else None


def read_pipeline(path: Path) -> Mapping[str, Any]:
    """What `python -m benchmarks.sti_pipeline --out` wrote; raises `InputError` for anything else."""
    remedy = "make it with `python -m benchmarks.sti_pipeline --out FILE`"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path, remedy="name a readable file") from None
    except ValueError:
        raise InputError("no JSON", path=path, remedy=remedy) from None
    if not isinstance(found, dict):
        raise InputError("no measurement of a pipeline", path=path, remedy=remedy)
    return found


def pipeline_rows(measured: Mapping[str, Any] | None) -> Rows:
    """The paper's pipeline of section 2.2, and ours."""
    own, both_s = motivating_pipeline(), load_then_run_s()
    return [
        _row("six layers, load, then run", None, both_s, 0.0, None, "published"),
        _row("six layers, pipeline, 32 bits", None, own.latency_s, own.stall_s, both_s / own.latency_s, "published"),
    ]


def _row(
    what: str, pace: float | None, latency_s: float, stall_s: float | None, ratio: float | None, kind: str
) -> dict[str, Any]:
    return {
        "what": what,
        "kind": kind,
        "pace_mb_s": pace,
        "latency_ms": 1e3 * latency_s,
        "stall_ms": None if stall_s is None else 1e3 * stall_s,
        "ratio": ratio,
    }


def simulated_rows(measured: Mapping[str, Any] | None) -> Rows:
    """Each plan of the benchmark's grid: what was simulated, and what it took."""
    return []
