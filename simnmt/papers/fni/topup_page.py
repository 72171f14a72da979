"""The page of the reproduction of top-up batching: figures 2, 6, 7 and 8, verdicts, and loads within a p95."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import floor, log10
from typing import Any

import numpy as np

from simnmt.papers.kit.page import claim_groups, verdict_matrix
from simnmt.report import thinning
from simnmt.report.page_template import Record, fill_template
from simnmt.report.typography import DASH, number, signed, significant, typeset_interval

Rows = Sequence[Mapping[str, Any]]

SETS = {"europarl": "Europarl", "opensubtitles": "OpenSubtitles"}


def drawings(tables: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """Return the sections, each with id, title, note, content and figures; device sections only if devices have rows."""
    return [
        _active(tables["active"], tables["occupancies"]),
        *([_speeds(tables["speeds"])] if tables["speeds"] else []),
        *([_online(tables["p95-curves"], tables["p95-load"])] if tables["p95-curves"] else []),
    ]


def _active(rows: Rows, occupancies: Rows) -> dict[str, Any]:
    published = {
        (row["set"], row["strategy"], row["measure"]): 100 * row["published"]
        for row in occupancies
        if row["published"] is not None
    }
    strategies = list(dict.fromkeys(row["strategy"] for row in rows))
    names = {row["strategy"]: row["name"] for row in rows}
    shares = {(row["set"], row["strategy"]): [100 * share for share in row["share_by_active"]] for row in rows}
    content = {
        "names": list(names.values()),
        "sets": list(SETS.values()),
        "share": [[_rounded(shares[key, strategy], 5) for strategy in strategies] for key in SETS],
        "upTo": [[_rounded(list(accumulate(shares[key, strategy])), 5) for strategy in strategies] for key in SETS],
        "fullPublished": [[published.get((key, strategy, "full_share")) for strategy in strategies] for key in SETS],
        "fewPublished": [[published.get((key, strategy, "below_8_share")) for strategy in strategies] for key in SETS],
    }
    shown = strategies.index("maxi")
    return {
        "id": "figures-2-8",
        "title": "Figures 2 and 8: active sentences during decoding",
        "note": "Batches of 128, all sentences at hand. These need no device: only lengths, which are drawn.",
        "content": content,
        "figures": [
            {
                "name": "shares",
                "heading": "Figure 2: share of the steps by active sentences, Europarl",
                "choices": list(enumerate(names.values())),
                "shown": shown,
                "says": "Percentage of decode steps by the number of active sentences, Europarl",
            },
            {
                "name": "few",
                "heading": "Figure 8: share of the steps with at most so many active",
                "choices": list(enumerate(SETS.values())),
                "shown": 0,
                "says": "Cumulative percentage of decode steps by active sentences, one line per way to form batches",
            },
        ],
    }


def _speeds(rows: Rows) -> dict[str, Any]:
    devices = list(dict.fromkeys(row["device"] for row in rows))
    content = {"devices": devices, "sets": [[_bars(rows, device, key) for device in devices] for key in SETS]}
    figures = [
        {
            "name": f"speeds-{place}",
            "heading": f"Figure {6 + place}: speed over mini-batching, {name}",
            "choices": list(enumerate(devices)),
            "shown": 0,
            "says": f"Speed relative to mini-batching by beam, one bar per way to form batches, {name}",
        }
        for place, name in enumerate(SETS.values())
    ]
    return {
        "id": "figures-6-7",
        "title": "Figures 6 and 7: speed with top-up batching",
        "note": "All sentences at hand, simulated on each device's step costs; the list of devices tells how they are known. "
        "The paper's curves are not in its text; its statements stand among the claims.",
        "content": content,
        "figures": figures,
    }


def _bars(rows: Rows, device: str, test_set: str) -> dict[str, Any]:
    device_rows = [row for row in rows if row["device"] == device and row["set"] == test_set]
    beams = list(dict.fromkeys(row["beam"] for row in device_rows))
    first = {row["beam"]: row for row in device_rows if row["strategy"] == "mini"}
    by_strategy: dict[str, list[Mapping[str, Any]]] = {}
    for row in device_rows:
        by_strategy.setdefault(row["name"], []).append(row)
    return {
        "beams": [
            f"beam {beam}, batches of {first[beam]['batch']}" + (", extrapolated" if first[beam]["extrapolated"] else "")
            for beam in beams
        ],
        "bars": [
            {
                "name": name,
                "relative": _rounded([row["relative"] for row in bars], 5),
                "least": _rounded([row["relative_least"] for row in bars], 5),
                "greatest": _rounded([row["relative_greatest"] for row in bars], 5),
                "rate": _rounded([row["sentences_per_s"] for row in bars], 5),
                "active": _rounded([row["mean_active"] for row in bars], 4),
            }
            for name, bars in by_strategy.items()
        ],
    }


def _online(curves: Rows, loads: Rows) -> dict[str, Any]:
    names = {row["strategy"]: row["name"] for row in loads}
    runs = list(dict.fromkeys(map(_run, curves)))
    content = [
        {
            "asked": sorted({row["p95_ms"] for row in loads if _run(row) == run}),
            "lines": [
                {
                    "name": names[row["strategy"]],
                    "rate": _rounded(row["rate_rps"], 5),
                    "p95": _rounded(row["p95_ms"], 5),
                    "capacity": float(f"{row['capacity_rps']:.5g}"),
                }
                for row in curves
                if _run(row) == run
            ],
        }
        for run in runs
    ]
    return {
        "id": "online",
        "title": "Online: the p95 of latency over the load",
        "note": "Beyond the paper. Sentences arrive as a Poisson process; means over seeds, up to what each way can do at all.",
        "content": content,
        "figures": [
            {
                "name": "online",
                "heading": "p95 of latency over sentences a second",
                "choices": [(place, f"{device}, beam {beam}, {SETS[key]}") for place, (device, beam, key) in enumerate(runs)],
                "shown": 0,
                "says": "p95 of latency in milliseconds over the load, one line per way to form batches, and what is asked for",
            }
        ],
    }


def _run(row: Mapping[str, Any]) -> tuple[str, int, str]:
    return row["device"], row["beam"], row["set"]


def _rounded(values: Sequence[float], digits: int) -> list[float | None]:
    return thinning.numbers(np.asarray(values, np.float64), digits)


_SCRIPTS = ("page_tools.js", "topup_page.js", "page.js")
_MEASURES = {"full_share": "full, %", "below_8_share": "below 8, %", "mean_active": "mean active", "steps": "steps"}
_MARKS = {"saturated": "capacity", "dips": "not at some lower load"}


def render_topup(document: Mapping[str, Any]) -> str:
    """The page as text, to be written as UTF-8; it opens from disk without a network. `document`: what `--json` prints."""
    tables = {table["id"]: table["rows"] for table in document["tables"]}
    names = {row["strategy"]: row["name"] for row in tables["active"]}
    return fill_template(
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
    """Return a line per set and strategy, with our figure, and the published or stated one, per measure."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for row in rows:
        groups.setdefault((row["set"], row["strategy"]), []).append(row)
    return [
        {
            "set": SETS[test_set],
            "strategy": names[strategy],
            "figures": [_occupancy(row) for row in strategy_rows],
        }
        for (test_set, strategy), strategy_rows in groups.items()
    ]


def _occupancy(row: Record) -> dict[str, str]:
    def figure(value: float) -> str:
        if row["measure"].endswith("_share"):
            return number(100 * value, 1)
        return number(value, 0 if row["measure"] == "steps" else 1)

    paper_figures = [
        f"{word} {figure(row[key])}" for key, word in (("published", "published"), ("stated", "stated")) if row[key] is not None
    ]
    return {
        "ours": figure(row["ours"]),
        "spread": f"[{figure(row['least'])}, {figure(row['greatest'])}]",
        "said": ", ".join(paper_figures),
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
    """Return a line per device, set and p95, with a figure per strategy; the greatest of a line is marked."""
    groups: dict[tuple[str, int, str, float], list[Record]] = {}
    for row in rows:
        groups.setdefault((row["device"], row["beam"], row["set"], row["p95_ms"]), []).append(row)
    return [
        {
            "device": f"{device}, beam {beam}",
            "set": SETS[test_set],
            "p95": number(p95_ms, 0),
            "over": significant(line_rows[0]["over_solo"], 3),
            "figures": [_capacity(row, line_rows) for row in line_rows],
        }
        for (device, beam, test_set, p95_ms), line_rows in groups.items()
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
