"""What the figures of the page on the fused kernel show, as plain numbers; `paper_page.js` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]

SETS = {"europarl": "Europarl", "opensubtitles": "OpenSubtitles"}
FUSED_FIGURES = {"europarl": "3", "opensubtitles": "4"}
BOTH_FIGURES = {"europarl": "9", "opensubtitles": "10"}
SHARE_FIGURES = {"europarl": "1", "opensubtitles": "5"}
WAYS = {
    ("mini", False): "mini",
    ("mini", True): "mini, fused",
    ("half-empty", False): "topped up",
    ("half-empty", True): "topped up, fused",
    ("maxi", False): "maxi",
    ("maxi", True): "maxi, fused",
    ("maxi half-empty", False): "maxi, topped up",
    ("maxi half-empty", True): "maxi, topped up, fused",
}


def drawings(tables: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """One section each: id, title, note, content, and its figures; those of devices only where there are any."""
    sections = [_seconds(tables["table-2-3"])]
    if tables["shares"]:
        sections.append(_shares(tables["shares"]))
    if tables["speeds"]:
        sections += [
            _speeds(tables["speeds"], "figures-3-4", "Figures 3 and 4: speed with the fused kernel", FUSED_FIGURES, ("mini",)),
            _speeds(
                tables["speeds"], "figures-9-10", "Figures 9 and 10: cumulative results", BOTH_FIGURES, ("mini", "half-empty")
            ),
            _speeds(
                tables["speeds"],
                "figures-9-10-maxi",
                "Figures 9 and 10, with maxi-batching",
                BOTH_FIGURES,
                ("maxi", "maxi half-empty"),
            ),
        ]
    return sections


def _seconds(rows: Rows) -> dict[str, Any]:
    sources = list(dict.fromkeys(row["source"] for row in rows))
    of = []
    for source in sources:
        own = [row for row in rows if row["source"] == source]
        of.append(
            {
                "names": [f"{SETS[row['set']]}, beam {row['beam']}" for row in own],
                "unit": "seconds over the set",
                "reading": f"{source}: "
                + "; ".join(f"{SETS[row['set']]}, beam {row['beam']}: {row['ratio']:.2f} times" for row in own)
                + ", three steps over fused.",
                "bars": [
                    {"name": name, "values": [row[key] for row in own]}
                    for key, name in (
                        ("product_s", "product"),
                        ("three_s", "bias, softmax and search"),
                        ("product_fused_s", "product, fused layer's way"),
                        ("fused_s", "fused"),
                    )
                ],
            }
        )
    return {
        "id": "tables-2-3-drawn",
        "title": "Tables 2 and 3, drawn",
        "note": "Seconds of the output layer over a whole test set.",
        "content": {"of": of},
        "figures": [
            {
                "name": "bars",
                "heading": "Seconds of each stage",
                "choices": list(enumerate(sources)),
                "shown": 0,
                "says": "Seconds of the output layer's stages by set and beam",
            }
        ],
    }


def _shares(rows: Rows) -> dict[str, Any]:
    devices = list(dict.fromkeys(row["device"] for row in rows))
    parts = list(dict.fromkeys(row["part"] for row in rows))
    of = []
    for device in devices:
        cells = list(dict.fromkeys((row["set"], row["beam"]) for row in rows if row["device"] == device))
        share = {(row["set"], row["beam"], row["part"]): 100 * row["share"] for row in rows if row["device"] == device}
        layer = {cell: sum(share[(*cell, part)] for part in parts[-2:]) for cell in cells}
        of.append(
            {
                "names": [f"{SETS[key]}, beam {beam}" for key, beam in cells],
                "unit": "% of the time",
                "reading": f"Output layer on {device}: "
                + ", ".join(f"{SETS[key]}, beam {beam} {layer[key, beam]:.0f} %" for key, beam in cells)
                + " (published: nearly 70 % of Europarl, more of OpenSubtitles).",
                "bars": [{"name": part, "values": [share[(*cell, part)] for cell in cells]} for part in parts],
            }
        )
    return {
        "id": "figures-1-5",
        "title": "Figures 1 and 5: shares of the time",
        "note": "Without the fused kernel, maxi-batching.",
        "content": {"of": of},
        "figures": [
            {
                "name": "stack",
                "heading": "Share of the time by part",
                "choices": list(enumerate(devices)),
                "shown": 0,
                "says": "Percentage of the time of translating a set by part, stacked",
            }
        ],
    }


def _speeds(rows: Rows, identifier: str, title: str, numbers: Mapping[str, str], strategies: Sequence[str]) -> dict[str, Any]:
    choices = list(dict.fromkeys((row["device"], row["set"]) for row in rows))
    return {
        "id": identifier,
        "title": title,
        "note": f"All sentences at hand, over {strategies[0]}-batching without the fused kernel; error bars hold the least "
        "and the greatest over seeds. The paper's curves are not in its text.",
        "content": {"of": [_speed_of(rows, device, key, strategies) for device, key in choices]},
        "figures": [
            {
                "name": "bars",
                "heading": "Speed by beam",
                "choices": [(at, f"figure {numbers[key]}: {SETS[key]}, {device}") for at, (device, key) in enumerate(choices)],
                "shown": 0,
                "says": "Speed relative to the paper's baseline by beam, one bar per way",
            }
        ],
    }


def _speed_of(rows: Rows, device: str, test_set: str, strategies: Sequence[str]) -> dict[str, Any]:
    own = [row for row in rows if (row["device"], row["set"]) == (device, test_set) and row["strategy"] in strategies]
    beams = list(dict.fromkeys(row["beam"] for row in own))
    bars = []
    for way in dict.fromkeys((row["strategy"], row["fused"]) for row in own):
        cells = [row for row in own if (row["strategy"], row["fused"]) == way]
        bars.append(
            {
                "name": WAYS[way],
                "values": [row["relative"] for row in cells],
                "low": [row["relative_least"] for row in cells],
                "high": [row["relative_greatest"] for row in cells],
            }
        )
    said = {WAYS[row["strategy"], row["fused"]]: row["published"] for row in own if row["published"] is not None}
    published = ", ".join(f"{name} up to {1 + value:.2f}" for name, value in said.items())
    return {
        "names": [f"beam {beam}" for beam in beams],
        "unit": f"speed over {strategies[0]}-batching",
        "reading": f"{SETS[test_set]}, {device}." + (f" Published: {published}." if published else ""),
        "bars": bars,
    }
