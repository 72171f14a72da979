"""What `python -m benchmarks.sti_pipeline` measured: the file, the bars it must pass, the claims (STI-06, 16, 21)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.base.files import read_bounded
from simnmt.papers.kit.claim import UNKNOWN, Records, claim_record
from simnmt.papers.sti import published
from simnmt.papers.sti.evidence import ClaimText
from simnmt.papers.sti.paper_claims import load_then_run_s, motivating_pipeline
from simnmt.profile.streaming_cost import BERT_BASE
from simnmt.streaming.plan.timeline import ROUNDING

FASTER_BY, MOST_STALL, LARGEST_ERROR, LEAST_PLANS, UNPACKS_BY, EVEN = 4.0, 0.15, 0.10, 10, 2.0, 0.8


def why_unjudged(figures: Mapping[str, Any]) -> str | None:
    """Return why these figures cannot be judged; None if they can."""
    if any(figures[name] != getattr(BERT_BASE, name) for name in ("layers", "heads", "width", "ffn")):
        return "the model is not of BERT's base size"
    if not all(row["cold"] for row in [*figures["faster"], *figures["grid"]]):
        return "the store's file could not be dropped from memory, so that reads were not cold"
    return None


def stall_free(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Plans at the paper's skew that are predicted not to stall."""
    pace = figures["skew"]["pace_mb"]
    return [
        row for row in figures["grid"] if row["pace_mb"] == pace and row["simulated_stall_s"] <= ROUNDING * row["simulated_s"]
    ]


def bars(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each required bar with the measured value and whether it is reached; empty if the figures cannot be judged."""
    if why_unjudged(figures) is not None:
        return []
    unpacked, free = figures["unpack"], stall_free(figures)
    least, errors = min(row["ratio"] for row in figures["faster"]), [abs(row["error"]) for row in figures["grid"]]
    checks = [
        ("unpacking over the best of torch and numba, least over bits", unpacked["least_ratio"], ">=", UNPACKS_BY),
        ("unpacking 6 bits, of the speed of 2", unpacked["six_over_two"], ">=", EVEN),
        ("6 bits in a pipeline over 32 bits loaded first, least over paces", least, ">=", FASTER_BY),
        ("plans predicted not to stall at the paper's skew", len(free), ">=", LEAST_PLANS),
        ("their largest share of stall", max((row["stall_share"] for row in free), default=1.0), "<=", MOST_STALL),
        ("largest relative error of a simulated latency", max(errors), "<=", LARGEST_ERROR),
    ]
    return [
        {"bar": what, "found": value, "asked": f"{sign} {bar:g}", "reached": value >= bar if sign == ">=" else value <= bar}
        for what, value, sign, bar in checks
    ]


Rows = list[dict[str, Any]]
Measured = Mapping[str, Any]
"""What `python -m benchmarks.sti_pipeline --out` writes."""
_METHODS = (("load_then_run", "32 bits loaded first"), ("bits_6", "pipeline, 6 bits"), ("bits_2", "pipeline, 2 bits"))


def shipped_pipeline() -> Measured | None:
    """Return the shipped measurement; None if there is none."""
    paths = sorted((shipped_files.folder("calibration") / "sti").glob("pipeline-*.json"))
    return read_pipeline(paths[0]) if paths else None


def read_pipeline(path: Path) -> Measured:
    """Read a measurement of `benchmarks.sti_pipeline`; raise `InputError` for any other file."""
    remedy = "make it with `python -m benchmarks.sti_pipeline --out FILE`"
    try:
        measured = json.loads(read_bounded(path))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path, remedy="name a readable file") from None
    except (ValueError, RecursionError):
        raise InputError("no JSON", path=path, remedy=remedy) from None
    try:
        if not isinstance(measured, dict) or measured["version"] != 2:
            raise InputError("no measurement of a pipeline that is known here", path=path, remedy=remedy)
        pipeline_rows(measured)
        simulated_rows(measured)
        unpack_ratios(measured)
        machine_of(measured)
        why_unjudged(measured)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise InputError("no measurement of a pipeline", path=path, remedy=remedy) from None
    return measured


def machine_of(measured: Measured) -> str:
    """What was run, and when."""
    return f"{measured['layers']} layers of width {measured['width']}, {measured['date']}"


def pipeline_rows(measured: Measured | None) -> Rows:
    """Return the rows of the paper's pipeline of section 2.2 and of the measured ones."""
    pipeline, both_s = motivating_pipeline(), load_then_run_s()
    rows = [
        _row(
            "six layers, 32 bits loaded first",
            "published",
            None,
            both_s,
            both_s - published.DISTIL_LAYERS * published.LAYER_COMP_S,
            1.0,
        ),
        _row(
            "six layers, pipeline, 32 bits",
            "published",
            None,
            pipeline.latency_s,
            pipeline.stall_s,
            both_s / pipeline.latency_s,
        ),
    ]
    for timing in measured["faster"] if measured is not None else ():
        whole_s = float(timing["load_then_run_s"])
        for method, what in _METHODS:
            latency_s = float(timing[f"{method}_s"])
            ratio = float(timing["ratio"]) if method == "bits_6" else whole_s / latency_s
            stall_s = float(timing[f"{method}_stall_s"])
            assert measured is not None
            rows.append(
                _row(f"{measured['layers']} layers, {what}", "measured", float(timing["pace_mb"]), latency_s, stall_s, ratio)
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
    """Return the least speedup of native unpacking over torch and numba, and the speed at 6 bits over that at 2."""
    unpacking = measured["unpack"]
    return float(unpacking["least_ratio"]), float(unpacking["six_over_two"])


NEEDS = "needs a file of `python -m benchmarks.sti_pipeline --out FILE`: give --pipeline"
FASTER: ClaimText = (
    "STI-16 (a)",
    f"A pipeline of 6-bit shards is at least {FASTER_BY:g} times as fast as loading 32 bits first",
    "",
)
STALLS: ClaimText = (
    "STI-16 (b)",
    f"Plans that are predicted not to stall wait for at most {100 * MOST_STALL:.0f} % of their time",
    "pipelines of one bitwidth stall for more than 72 %",
)
SIMULATED: ClaimText = (
    "STI-16 (c)",
    f"Simulated latency is within {100 * LARGEST_ERROR:.0f} % of what is measured, for every plan",
    "",
)
UNPACKING: ClaimText = (
    "STI-06",
    f"Native unpacking is at least {UNPACKS_BY:g} times as fast as torch or numba, and hardly depends on the bits",
    "within 25 % from 2 to 6 bits",
)
EVERY = (FASTER, STALLS, SIMULATED, UNPACKING)


def pipeline_claims(measured: Measured | None) -> Records:
    """Return the four claims that the measurement decides; without one, records that it is needed."""
    if measured is None:
        return [claim_record(*claim_text, "", UNKNOWN, NEEDS, basis="needs --pipeline") for claim_text in EVERY]
    unjudged = why_unjudged(measured)
    if unjudged is not None:
        return [_pipeline_record(measured, claim_text, "", UNKNOWN, unjudged) for claim_text in EVERY]
    return [_faster(measured), _stalls(measured), _simulated(measured), _unpacking(measured)]


def _faster(measured: Measured) -> dict[str, Any]:
    rows = [row for row in pipeline_rows(measured) if row["kind"] == "measured" and row["what"].endswith("6 bits")]
    ours = "; ".join(f"{row['ratio']:.2f} times at {row['pace_mb_s']:g} MB/s" for row in rows)
    why = "16 tokens, cold reads, medians of repeats in turn"
    return _pipeline_record(measured, FASTER, ours, bool(rows) and all(row["ratio"] >= FASTER_BY for row in rows), why)


def _stalls(measured: Measured) -> dict[str, Any]:
    free = [row for row in simulated_rows(measured) if row["at_skew"] and row["no_stall_predicted"]]
    if len(free) < LEAST_PLANS:
        return _pipeline_record(measured, STALLS, "", UNKNOWN, f"{len(free)} such plans, of {LEAST_PLANS} that are asked for")
    shares = sorted(100 * row["stall_share"] for row in free)
    ours = f"{shares[0]:.1f} to {shares[-1]:.1f} % of {len(free)} plans"
    why = f"paced to {free[0]['pace_mb_s']:.0f} MB/s, where 32 bits of a layer load for 3.57 times as long as it computes"
    return _pipeline_record(measured, STALLS, ours, shares[-1] <= 100 * MOST_STALL, why)


def _simulated(measured: Measured) -> dict[str, Any]:
    rows = simulated_rows(measured)
    if not rows:
        return _pipeline_record(measured, SIMULATED, "", UNKNOWN, "no plan was measured")
    off = [abs(row["off"]) for row in rows]
    within = sum(error <= LARGEST_ERROR for error in off)
    ours = f"{within} of {len(off)} plans; off by {100 * max(off):.1f} % at most, {100 * sum(off) / len(off):.1f} % on average"
    before = max(abs(row["off_before"]) for row in rows)
    why = (
        "deadlines, preload buffers and paces; costs of reads and layers alone, from the same rounds as the plans and not "
        f"fitted to them; by costs measured ahead of all rounds it is {100 * before:.1f} % at most"
    )
    return _pipeline_record(measured, SIMULATED, ours, within == len(off), why)


def _unpacking(measured: Measured) -> dict[str, Any]:
    least, even = unpack_ratios(measured)
    ours = f"{least:.2f} times as fast; 6 bits at {100 * even:.0f} % of the speed of 2"
    return _pipeline_record(measured, UNPACKING, ours, least >= UNPACKS_BY and even >= EVEN, "one thread; the least over bits")


def _pipeline_record(measured: Measured, claim_text: ClaimText, ours: str, verdict: bool | str, why: str) -> dict[str, Any]:
    return claim_record(*claim_text, ours, verdict, why, device=machine_of(measured), basis="measured")
