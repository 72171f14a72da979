"""The page of the reproduction of the fused output layer: Tables 2 and 3, shares, speeds, and Amdahl's prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simnmt.papers.kit.page import Figure, Line, render_paper, table
from simnmt.report.typography import number, signed, significant

Rows = Sequence[Mapping[str, Any]]

SETS = {"europarl": "Europarl", "opensubtitles": "OpenSubtitles"}
FUSED_FIGURES = {"europarl": "3", "opensubtitles": "4"}
BOTH_FIGURES = {"europarl": "9", "opensubtitles": "10"}
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
    """Return the sections, each with id, title, note, content and figures; device sections only if devices have rows."""
    sections = [_seconds(tables["table-2-3"])]
    if tables["shares"]:
        sections.append(_shares(tables["shares"]))
    if tables["speeds"]:
        sections += [
            _speed_section(
                tables["speeds"], "figures-3-4", "Figures 3 and 4: speed with the fused kernel", FUSED_FIGURES, ("mini",)
            ),
            _speed_section(
                tables["speeds"], "figures-9-10", "Figures 9 and 10: cumulative results", BOTH_FIGURES, ("mini", "half-empty")
            ),
            _speed_section(
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
        source_rows = [row for row in rows if row["source"] == source]
        of.append(
            {
                "names": [f"{SETS[row['set']]}, beam {row['beam']}" for row in source_rows],
                "unit": "seconds over the set",
                "reading": f"{source}: "
                + "; ".join(f"{SETS[row['set']]}, beam {row['beam']}: {row['ratio']:.2f} times" for row in source_rows)
                + ", three steps over fused.",
                "bars": [
                    {"name": name, "values": [row[key] for row in source_rows]}
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


def _speed_section(
    rows: Rows, identifier: str, title: str, numbers: Mapping[str, str], strategies: Sequence[str]
) -> dict[str, Any]:
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
    section_rows = [row for row in rows if (row["device"], row["set"]) == (device, test_set) and row["strategy"] in strategies]
    beams = list(dict.fromkeys(row["beam"] for row in section_rows))
    bars = []
    for variant in dict.fromkeys((row["strategy"], row["fused"]) for row in section_rows):
        cells = [row for row in section_rows if (row["strategy"], row["fused"]) == variant]
        bars.append(
            {
                "name": WAYS[variant],
                "values": [row["relative"] for row in cells],
                "low": [row["relative_least"] for row in cells],
                "high": [row["relative_greatest"] for row in cells],
            }
        )
    published_gains = {
        WAYS[row["strategy"], row["fused"]]: row["published"] for row in section_rows if row["published"] is not None
    }
    published = ", ".join(f"{name} up to {1 + value:.2f}" for name, value in published_gains.items())
    return {
        "names": [f"beam {beam}" for beam in beams],
        "unit": f"speed over {strategies[0]}-batching",
        "reading": f"{SETS[test_set]}, {device}." + (f" Published: {published}." if published else ""),
        "bars": bars,
    }


Record = Mapping[str, Any]


def render_fused(document: Record) -> str:
    """The page as text, to be written as UTF-8; it opens from disk without a network. `document`: what `--json` prints."""
    rows = {document_table["id"]: document_table["rows"] for document_table in document["tables"]}
    return render_paper(
        document,
        heading="Fused softmax and search, reproduced",
        matrix_note="Signs and orders can be compared; sizes hang on the device, and the paper’s is a GPU.",
        tables=[
            _output_times(rows["table-2-3"]),
            _amdahl(rows["amdahl"]),
            _speeds(rows["speeds"]),
            _real(rows["real"]),
            _derived(rows["derived"]),
            _devices(document["devices"]),
        ],
        drawings=drawings(rows),
    )


def _cell(row: Record) -> str:
    return f"{SETS[row['set']]}, beam {row['beam']}"


def _output_times(rows: Sequence[Record]) -> dict[str, Any]:
    order = list(SETS)
    return table(
        "table-2-3",
        "Tables 2 and 3: the output layer over a whole set",
        "Seconds. Three steps: bias, softmax and search. Our fused layer takes its product block by block; the paper leaves it "
        "alone. In small print what the paper prints of a change, where that is not what its seconds give. Fusing is exact: "
        "translations stay as they are.",
        (
            "set, source",
            "how",
            "product",
            "product, fused layer’s way",
            "product’s change, %",
            "three steps",
            "fused",
            "their change, %",
            "three steps over fused",
            "whole layer’s speed-up",
        ),
        [
            Line(
                _cell(row),
                (
                    Figure("", kind=row["kind"]),
                    number(row["product_s"], 2),
                    number(row["product_fused_s"], 2),
                    _change(row["product_percent"], row["printed_product_percent"]),
                    _three(row),
                    number(row["fused_s"], 2),
                    _change(row["fused_percent"], row["printed_fused_percent"]),
                    number(row["ratio"], 2),
                    number(row["layer_ratio"], 3),
                ),
                small=row["source"],
                published=row["kind"] == "published",
            )
            for row in sorted(rows, key=lambda row: (order.index(row["set"]), row["beam"]))
        ],
    )


def _three(row: Record) -> Figure:
    """Together, and one by one where the paper prints them."""
    parts = [row[key] for key in ("bias_s", "softmax_s", "search_s")]
    return Figure(number(row["three_s"], 2), "" if None in parts else " + ".join(number(part, 2) for part in parts))


def _change(value: float, printed: float | None) -> Figure:
    slip = printed is not None and abs(printed - value) > 0.06
    return Figure(signed(value, 2), f"printed {signed(printed, 1)}" if slip and printed is not None else "")


def _amdahl(rows: Sequence[Record]) -> dict[str, Any]:
    return table(
        "amdahl",
        "Amdahl’s prediction beside each speed-up",
        "From the output layer’s share of the time and its own speed-up. Ours multiplies block by block, which plain decoding "
        "might do as well: beside it stands what fusing alone foretells, the product left alone as in the paper. Simulated "
        "speed-ups are made of the same stages; a measured one is a test where it is not within the 10 % allowed of 1.",
        (
            "set, source",
            "how",
            "output layer’s share, %",
            "its speed-up",
            "predicted",
            "predicted, product left alone",
            "end to end",
        ),
        [
            Line(
                _cell(row),
                (
                    Figure("", kind=row["kind"]),
                    number(100 * row["output_share"], 1),
                    number(row["layer_ratio"], 3),
                    number(row["predicted"], 3),
                    number(row["predicted_product_left_alone"], 3),
                    number(row["end_to_end"], 3),
                ),
                small=row["source"],
            )
            for row in rows
        ],
    )


def _speeds(rows: Sequence[Record]) -> dict[str, Any]:
    return table(
        "speeds",
        "Speed, fused and topped up",
        "All sentences at hand. Relative to mini-batching, with maxi-batching to that, without the fused kernel; square "
        "brackets hold the least and the greatest over seeds.",
        ("device, set", "batching", "fused", "sentences a second", "relative", "published"),
        [
            Line(
                f"{row['device']}, beam {row['beam']}",
                (
                    Figure(row["name"], words=True),
                    "yes" if row["fused"] else "no",
                    significant(row["sentences_per_s"], 4),
                    Figure(
                        number(row["relative"], 3),
                        f"[{number(row['relative_least'], 3)}, {number(row['relative_greatest'], 3)}]",
                    ),
                    "" if row["published"] is None else f"up to {number(1 + row['published'], 2)}",
                ),
                small=SETS[row["set"]],
            )
            for row in rows
        ],
    )


def _real(rows: Sequence[Record]) -> dict[str, Any]:
    stages = ("product_s", "bias_s", "softmax_s", "search_s", "fused_product_s", "fused_s")
    return table(
        "real",
        "A real decoder on this box",
        "With and without the fused output layer in turn; stages in seconds over all steps. Translations are compared where "
        "sentences end by themselves; near ties are closer than 1e-4.",
        (
            "set",
            "sentences",
            "times as fast",
            "translations the same",
            "near ties",
            "other differences",
            "product",
            "bias",
            "softmax",
            "search",
            "product, fused layer’s way",
            "fused",
        ),
        [
            Line(
                _cell(row),
                (
                    number(row["sentences"], 0),
                    number(row["ratio"], 3),
                    number(row["equal"], 0),
                    number(row["near_ties"], 0),
                    number(row["disagreements"], 0),
                    *(number(row[name], 2) for name in stages),
                ),
                small=f"{row['model']}, {row['vocab']:,} words",
            )
            for row in rows
        ],
    )


def _derived(rows: Sequence[Record]) -> dict[str, Any]:
    return table(
        "derived",
        "What follows from the printed figures",
        "",
        ("what", "value", "beside it"),
        [
            Line(
                row["what"],
                (
                    f"{number(row['value'], 3)} times" if row["unit"] == "times" else f"{number(row['value'], 1)} %",
                    Figure(row["meaning"], words=True),
                ),
                published=True,
            )
            for row in rows
        ],
    )


def _devices(records: Sequence[Record]) -> dict[str, Any]:
    return table(
        "devices",
        "Devices",
        "How each profile’s decoder is known, with the fused kernel and without.",
        ("device", "model", "batches of", "kind", "without", "fused", "remarks"),
        [
            Line(
                f"{record['device']}, beam {record['beam']}",
                (
                    f"{record['model']}, {record['vocab']:,} words",
                    str(record["batch"]),
                    Figure("", kind=record["kind"]),
                    Figure(record["plain"], words=True),
                    Figure(record["fused"], words=True),
                    Figure("; ".join(record["remarks"]), words=True),
                ),
                small=record["box"],
            )
            for record in records
        ],
    )
