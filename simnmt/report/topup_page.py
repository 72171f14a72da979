"""The page of the reproduction of the paper on top-up batching: figures 2, 6, 7, 8, claims, and loads within a p95."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import Any

from simnmt.report.reproduced import Record, claim_groups, filled, verdict_matrix
from simnmt.report.topup_figures import SETS, drawings
from simnmt.report.typography import DASH, number, signed, significant, typeset_interval

_SCRIPTS = ("page_tools.js", "topup_page.js", "page.js")
_MEASURES = {"full_share": "full, %", "below_8_share": "below 8, %", "mean_active": "mean active", "steps": "steps"}
_MARKS = {"saturated": "capacity", "dips": "not at some lower load"}


def render_topup(document: Mapping[str, Any]) -> str:
    """The page as text, to be written as UTF-8; it opens from disk without a network. `document`: what `--json` prints."""
    tables = {table["id"]: table["rows"] for table in document["tables"]}
    names = {row["strategy"]: row["name"] for row in tables["active"]}
    return filled(
        "topup_page.html.j2",
        _SCRIPTS,
        drawings(tables),
        document=document,
        devices=_devices(document["devices"]),
        groups=claim_groups(document["claims"], document["doubts"]),
        doubtful_profiles=document["doubts"],
        matrix=verdict_matrix(document["claims"]),
        setting=tables["setting"],
        sets=[_set(row) for row in tables["table-1"]],
        measures=list(_MEASURES.values()),
        occupancies=_occupancies(tables["occupancies"], names),
        limits=[_limit(row, names) for row in tables["refill-limits"]],
        loads=_loads(tables["p95-load"]),
        load_heads=list(dict.fromkeys(row["name"] for row in tables["p95-load"])),
    )


def _devices(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [
        {
            "name": record["device"],
            "box": record["box"],
            "model": record["model"],
            "beam": record["beam"],
            "batch": record["batch"],
            "kinds": [record["kind"], *(["extrapolated"] if record["guessed"] else [])],
            "remarks": "; ".join(record["remarks"]),
        }
        for record in records
    ]


def _set(row: Record) -> dict[str, str]:
    return {
        "name": row["set"],
        "sentences": number(row["sentences"], 0),
        "subwords": number(row["subwords"], 0),
        "published": f"{number(row['published_mean'], 1)} ± {number(row['published_sd'], 1)}",
        "ours": f"{number(row['mean'], 2)} ± {number(row['sd'], 2)}",
    }


def _occupancies(rows: Sequence[Record], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """A line per set and strategy; per measure ours, and what is published or stated of it."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for row in rows:
        groups.setdefault((row["set"], row["strategy"]), []).append(row)
    return [
        {
            "set": SETS[test_set],
            "strategy": names[strategy],
            "figures": [_occupancy(row) for row in own],
        }
        for (test_set, strategy), own in groups.items()
    ]


def _occupancy(row: Record) -> dict[str, str]:
    def figure(value: float) -> str:
        if row["measure"].endswith("_share"):
            return number(100 * value, 1)
        return number(value, 0 if row["measure"] == "steps" else 1)

    said = [
        f"{word} {figure(row[key])}" for key, word in (("published", "published"), ("stated", "stated")) if row[key] is not None
    ]
    return {
        "ours": figure(row["ours"]),
        "spread": f"[{figure(row['least'])}, {figure(row['greatest'])}]",
        "said": ", ".join(said),
    }


def _limit(row: Record, names: Mapping[str, str]) -> dict[str, str]:
    return {
        "device": f"{row['device']}, beam {row['beam']}",
        "set": SETS[row["set"]],
        "strategy": f"{names[row['strategy']]}, against {names[row['against']]}",
        "steps": DASH if row["limit_steps"] is None else signed(row["limit_steps"], 2),
        "ms": DASH if row["limit_ms"] is None else signed(row["limit_ms"], 2),
        "full": significant(row["full_step_ms"], 3),
    }


def _loads(rows: Sequence[Record]) -> list[dict[str, Any]]:
    """A line per device, set and p95; a figure per strategy, the greatest of a line marked."""
    groups: dict[tuple[str, int, str, float], list[Record]] = {}
    for row in rows:
        groups.setdefault((row["device"], row["beam"], row["set"], row["p95_ms"]), []).append(row)
    return [
        {
            "device": f"{device}, beam {beam}",
            "set": SETS[test_set],
            "p95": number(p95_ms, 0),
            "over": significant(own[0]["over_solo"], 3),
            "figures": [_capacity(row, own) for row in own],
        }
        for (device, beam, test_set, p95_ms), own in groups.items()
    ]


def _decimals(rate_rps: float) -> int:
    """Decimals that show a rate with three significant digits."""
    return max(2 - floor(log10(rate_rps)), 0)


def _capacity(row: Record, beside: Sequence[Record]) -> dict[str, Any]:
    """The load up to which a strategy keeps the limit; `beside`: all strategies of the line, this one included."""
    up_to_rps, low_rps = row["up_to_rps"], row["low_rps"]
    ends = (None, None) if low_rps is None else (max(low_rps, 0.0), row["high_rps"])
    text, interval = (
        typeset_interval(up_to_rps, *ends, signs="minus", most=_decimals(up_to_rps)) if up_to_rps else ("never", "")
    )
    return {
        "text": text,
        "interval": interval,
        "marks": ", ".join(words for key, words in _MARKS.items() if row[key]),
        "best": bool(up_to_rps) and up_to_rps == max(other["up_to_rps"] for other in beside),
    }
