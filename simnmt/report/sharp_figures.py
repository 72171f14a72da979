"""What the figures of the page on the sharp decoder show, as plain numbers; `paper_page.js` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def drawings(tables: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """One section each: id, title, note, content, and its figures."""
    sections = [_ladder(tables["table-1"]), _systems(tables["table-2"]), _products(tables["figure-1"])]
    return sections if not tables["stages"] else [sections[0], _stages(tables["stages"]), *sections[1:]]


def _ladder(rows: Rows) -> dict[str, Any]:
    first = [row for row in rows if row["activations"] != "table"]
    by_table = {row["rung"]: row["factor"] for row in rows if row["activations"] == "table"}
    content = {
        "names": [row["name"] for row in first],
        "unit": "times the baseline",
        "reading": f"In all {first[-1]['factor']:.2f} times; published {first[-1]['published_factor']:.2f}.",
        "bars": [
            {"name": "published", "values": [row["published_factor"] for row in first]},
            {"name": "measured, polynomial activations", "values": [row["factor"] for row in first]},
            {"name": "measured, the paper's table", "values": [by_table.get(row["rung"]) for row in first]},
            {"name": "predicted by counting", "values": [row["predicted_factor"] for row in first]},
        ],
    }
    return _one(
        "ladder", "Table 1, drawn", "Speed over the baseline, rung by rung.", "bars", content, "Speed over the baseline"
    )


def _stages(rows: Rows) -> dict[str, Any]:
    names = {
        "prepare_ms": "once a sentence",
        "body_ms": "body",
        "product_ms": "output product",
        "search_ms": "bias, softmax, search",
    }
    ladders = [row for row in rows if row["rung"]], [row for row in rows if not row["rung"]]
    of = [
        {
            "names": [row["of"] for row in own],
            "unit": "ms a word",
            "reading": "Products, attention and activations below the output layer are the body.",
            "bars": [{"name": name, "values": [row[key] for row in own]} for key, name in names.items()],
        }
        for own in ladders
    ]
    return {
        "id": "stages-drawn",
        "title": "Where a word's time goes, drawn",
        "note": "One run with a clock inside.",
        "content": {"of": of},
        "figures": [
            {
                "name": "stack",
                "heading": "Milliseconds a word",
                "choices": [(0, "the ladder"), (1, "systems")],
                "shown": 0,
                "says": "Milliseconds of a word by stage, stacked, one bar a decoder",
            }
        ],
    }


def _systems(rows: Rows) -> dict[str, Any]:
    known = [row for row in rows if row["factor"] is not None]
    content = {
        "names": [row["key"] for row in known],
        "unit": "times the speed of S1",
        "reading": "; ".join(f"{row['key']} {row['words_per_s']:.0f} words a second" for row in known) + ".",
        "bars": [
            {"name": "published", "values": [row["published_factor"] for row in known]},
            {"name": "measured", "values": [row["factor"] for row in known]},
            {"name": "by multiply-adds", "values": [row["predicted_factor"] for row in known]},
        ],
    }
    return _one("systems-drawn", "Table 2, drawn", "Speed over S1.", "bars", content, "Speed over S1")


def _products(rows: Rows) -> dict[str, Any]:
    of = []
    for cold in (False, True):
        own = [row for row in rows if row["cold"] == cold]
        batches = [row["batch"] for row in own]
        names = {
            "int16_us": "16 bits",
            "float32_us": "float32, packed",
            "torch_us": "float32, torch",
            "numpy_us": "float32, numpy",
        }
        of.append(
            {
                "x": "batch",
                "y": "microseconds",
                "reading": "16 bits over the faster library: "
                + ", ".join(f"{row['over_library']:.2f} at {row['batch']}" for row in own)
                + ". Published: 2 to 3 at 2 to 8.",
                "lines": [{"name": name, "x": batches, "y": [row[key] for row in own]} for key, name in names.items()],
            }
        )
    return {
        "id": "figure-1-drawn",
        "title": "Figure 1: 16-bit and 32-bit products by batch",
        "note": "Weights of 1024 by 1024, one thread. The paper's curve is not in its text.",
        "content": {"of": of},
        "figures": [
            {
                "name": "lines",
                "heading": "Time of one product by batch",
                "choices": [(0, "weights in the cache"), (1, "weights from memory")],
                "shown": 0,
                "says": "Microseconds of a product by batch, one line a way to multiply",
            }
        ],
    }


def _one(identifier: str, title: str, note: str, kind: str, content: Any, heading: str) -> dict[str, Any]:
    """A section of one figure without a choice."""
    figure = {"name": kind, "heading": heading, "choices": [], "shown": 0, "says": f"{title}: {content['unit']}"}
    return {"id": identifier, "title": title, "note": note, "content": {"of": [content]}, "figures": [figure]}
