"""What the figures of the page on top-up batching show, as plain numbers; `topup_page.js` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from simnmt.report import thinning

Rows = Sequence[Mapping[str, Any]]

SETS = {"europarl": "Europarl", "opensubtitles": "OpenSubtitles"}


def drawings(tables: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """One section each: id, title, note, content, and its figures; those of devices only where there are any."""
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
        "share": [[_rounded(shares[key, each], 5) for each in strategies] for key in SETS],
        "upTo": [[_rounded(list(accumulate(shares[key, each])), 5) for each in strategies] for key in SETS],
        "fullPublished": [[published.get((key, each, "full_share")) for each in strategies] for key in SETS],
        "fewPublished": [[published.get((key, each, "below_8_share")) for each in strategies] for key in SETS],
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
    own = [row for row in rows if row["device"] == device and row["set"] == test_set]
    beams = list(dict.fromkeys(row["beam"] for row in own))
    first = {row["beam"]: row for row in own if row["strategy"] == "mini"}
    by_strategy: dict[str, list[Mapping[str, Any]]] = {}
    for row in own:
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
