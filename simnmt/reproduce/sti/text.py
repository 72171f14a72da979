"""The reproduction for a terminal."""

from __future__ import annotations

from typing import Any

from simnmt.reproduce.sti.reproduction import Reproduction
from simnmt.reproduce.sti.summary import summary
from simnmt.reproduce.sti.tables import tables
from simnmt.reproduce.told import claim_lines, columns

Rows = list[dict[str, Any]]


def as_text(found: Reproduction) -> str:
    """Gains, submodels, raised shards, real pipelines, what is lost, what follows, and a line per claim."""
    rows = {table["id"]: table["rows"] for table in tables(found)}
    told = [
        summary(found),
        _gains(rows["gains"]),
        _submodels(rows["submodels"]),
        _upgrades(rows["upgrades"]),
        _pipeline(rows["pipeline"]),
        _derived(rows["derived"]),
        _lost(rows["lost"]),
        claim_lines(found.claims),
    ]
    return "\n\n".join(part for part in told if part)


def _gains(rows: Rows) -> str:
    lines = [
        (
            f"{row['study']}, {row['device']}, {row['method']}",
            row["kind"],
            *_in_time(row),
            "" if row["kind"] == "published" else f"{row['gain']:+.2f}",
            "" if row["missed"] is None else f"{row['missed']} and {row['missed_other']} of {row['deadlines']}",
            _shown(row["shards_ratio"], 1, ".2f"),
        )
        for row in rows
    ]
    head = ("STI over", "kind", "points", "95 %", "deadlines", "STI, %", "other, %", "all deadlines", "missed", "shards, times")
    heading = "Points of accuracy gained where both are in time; beside them over all deadlines, late answers included"
    return f"{heading}\n{columns(head, lines)}"


def _in_time(row: dict[str, Any]) -> tuple[str, ...]:
    """Points, interval, deadlines and both accuracies where neither is late; the printed points of the paper."""
    if row["kind"] == "published":
        return (f"{row['gain']:+.2f}", "", "", "", "")
    low = row["low_in_time"]
    return (
        _shown(row["gain_in_time"], 1, "+.2f"),
        "" if low is None else f"{low:+.2f} to {row['high_in_time']:+.2f}",
        f"{row['deadlines_in_time']} of {row['deadlines']}",
        _shown(row["accuracy_in_time"], 100, ".1f"),
        _shown(row["accuracy_other_in_time"], 100, ".1f"),
    )


def _submodels(rows: Rows) -> str:
    if not rows:
        return ""
    shares = list(dict.fromkeys(share for row in rows for share in row["sizes"]))
    lines = [
        (
            f"{row['study']}, {row['device']}, {named(row)}",
            *(" x ".join(map(str, row["sizes"][share])) if share in row["sizes"] else "" for share in shares),
            f"{row['held_mb']:,.4g}",
            f"{100 * row['accuracy']:.1f}",
        )
        for row in rows
    ]
    return columns(("Submodels at", *(f"{share} %" for share in shares), "held, MB", "accuracy, %"), lines)


def named(row: dict[str, Any]) -> str:
    """The way, and of STI its buffer."""
    if row["preload_share"] is None:
        return str(row["method"])
    buffer = f"buffer of {100 * row['preload_share']:.2f} %" if row["preload_share"] else "no buffer"
    return f"{row['method']}, {buffer}"


def _upgrades(rows: Rows) -> str:
    lines = [
        (
            f"{row['study']}, {row['layers']} x {row['slices']}",
            f"{row['raised']} to {row['to_bits']}",
            f"{100 * row['base']:.1f}",
            f"{100 * row['best']:.1f}",
            _shown(row["random_mean"], 100, ".1f"),
            _shown(row["gain"], 1, "+.2f"),
            "" if row["low"] is None else f"{row['low']:+.2f} to {row['high']:+.2f}",
            f"{row['beaten']} of {row['orders']}",
        )
        for row in rows
    ]
    head = ("Raised", "shards to bits", "none, %", "by importance", "at random", "points", "95 %", "orders no better")
    return columns(head, lines) if lines else ""


def _pipeline(rows: Rows) -> str:
    if not rows:
        return ""
    lines = [
        (
            row["what"],
            f"{row['pace_mb_s']:g}" if row["pace_mb_s"] else "",
            f"{row['latency_ms']:,.1f}",
            _shown(row["ratio"], 1, ".2f"),
        )
        for row in rows
    ]
    return columns(("Real pipeline", "MB/s", "ms", "times as fast as load, then run"), lines)


def _derived(rows: Rows) -> str:
    lines = [
        (row["what"], f"{row['value']:,.4g}" if row["value"] < 1e4 else f"{row['value']:,.0f}", row["unit"], row["said"])
        for row in rows
    ]
    return columns(("What follows", "value", "unit", "the text says"), lines)


def _lost(rows: Rows) -> str:
    return columns(("Not in source text", "in its place"), [(f"{row['what']}: {row['held']}", row["stands"]) for row in rows])


def _shown(value: float | None, times: float, form: str) -> str:
    return "" if value is None else format(times * value, form)
