"""The page of the reproduction of the sharp decoder: Tables 1 and 2, Figure 1, and what counting predicts beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simnmt.papers.kit.page import Figure, Line, render_paper, table
from simnmt.report.typography import number, significant, typeset_interval

Rows = Sequence[Mapping[str, Any]]


def drawings(tables: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """One section each: id, title, note, content, and its figures."""
    sections = [_ladder_section(tables["table-1"]), _system_section(tables["table-2"]), _product_section(tables["figure-1"])]
    return sections if not tables["stages"] else [sections[0], _stage_section(tables["stages"]), *sections[1:]]


def _ladder_section(rows: Rows) -> dict[str, Any]:
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


def _stage_section(rows: Rows) -> dict[str, Any]:
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


def _system_section(rows: Rows) -> dict[str, Any]:
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


def _product_section(rows: Rows) -> dict[str, Any]:
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


Record = Mapping[str, Any]


def render_sharp(document: Record) -> str:
    """The page as text, to be written as UTF-8; it opens from disk without a network. `document`: what `--json` prints."""
    rows = {each["id"]: each["rows"] for each in document["tables"]}
    return render_paper(
        document,
        heading="Sharp models on dull hardware, reproduced",
        tables=[
            _ladder(rows["table-1"]),
            _amdahl(rows["amdahl"]),
            _agreement(rows["agreement"]),
            _stages(rows["stages"]),
            _systems(rows["table-2"]),
            _context(rows["context"]),
            _products(rows["figure-1"]),
            _activations(rows["activations"]),
            _derived(rows["derived"]),
        ],
        drawings=drawings(rows),
    )


def _ladder(rows: Sequence[Record]) -> dict[str, Any]:
    return table(
        "table-1",
        "Table 1: the ladder",
        "Words a second, source side included, one thread; each rung on top of those before it. From the fifth on with the "
        "paper’s lookup table and with a polynomial. A rung is exact over the one before, or it adds noise, which later ones "
        "keep. Small print: quartiles over rounds, what the paper prints, and milliseconds of the source side a sentence.",
        (
            "rung",
            "activations",
            "translations",
            "published, words/s",
            "published factor",
            "measured, words/s",
            "measured factor",
            "measured over the rung before",
            "decoder alone, factor",
            "predicted factor",
        ),
        [
            Line(
                row["name"],
                (
                    row["activations"],
                    Figure(
                        row["translations"],
                        "" if row["agreement"] is None else f"so far {number(100 * row['agreement'], 2)} % the same",
                    ),
                    str(row["published_words_per_s"]),
                    Figure(number(row["published_factor"], 3), f"printed {number(row['printed_factor'], 2)}"),
                    number(row["words_per_s"], 1),
                    number(row["factor"], 3),
                    ""
                    if row["step"] is None
                    else Figure(*typeset_interval(row["step"], row["step_low"], row["step_high"], signs="minus", most=3)),
                    Figure(number(row["decoder_factor"], 3), f"source {significant(row['source_ms'], 3)} ms"),
                    number(row["predicted_factor"], 2),
                ),
            )
            for row in rows
        ],
    )


def _amdahl(rows: Sequence[Record]) -> dict[str, Any]:
    return table(
        "amdahl",
        "The 16-bit product by Amdahl’s law",
        "Products’ share of the baseline’s time and their gain, both by the rates of products alone, and what the whole should "
        "gain of it. With a share above 100 % products ran slower alone than in the decoder, and nothing is foretold.",
        ("rung", "share of products, %", "products’ gain", "predicted end to end", "measured end to end"),
        [
            Line(
                "+ 16-bit product",
                (
                    number(100 * row["share"], 1),
                    number(row["product_gain"], 2),
                    "none" if row["predicted"] is None else number(row["predicted"], 3),
                    number(row["measured"], 3),
                ),
            )
            for row in rows
        ],
    )


def _agreement(rows: Sequence[Record]) -> dict[str, Any]:
    return table(
        "agreement",
        "What each rung changes on a trained model",
        "Beside the baseline, whole vocabulary. Words: the likeliest along the baseline’s translations; sentences are "
        "translated by themselves.",
        ("rungs", "so far", "words the same, %", "of words", "sentences the same", "distinct states, %", "BLEU"),
        [
            Line(
                row["rung"],
                (
                    "exact" if row["exact"] else "not exact",
                    number(100 * row["tokens_same_share"], 3),
                    number(row["tokens"], 0),
                    f"{row['sentences_same']:,} of {row['sentences']:,}",
                    number(100 * row["distinct_share"], 1),
                    "" if row["bleu"] is None else number(row["bleu"], 4),
                ),
                small=row["settings"],
            )
            for row in rows
        ],
    )


def _stages(rows: Sequence[Record]) -> dict[str, Any]:
    return table(
        "stages",
        "Where a word’s time goes",
        "Milliseconds; the source side of the median round, the others of one run with a clock inside.",
        ("decoder", "source side", "once a sentence", "body", "output product", "bias, softmax, search"),
        [
            Line(
                row["of"],
                tuple(number(row[name], 3) for name in ("source_ms", "prepare_ms", "body_ms", "product_ms", "search_ms")),
                small=row["settings"],
            )
            for row in rows
        ],
    )


def _systems(rows: Sequence[Record]) -> dict[str, Any]:
    def shown(value: float | None, decimals: int) -> str:
        return "" if value is None else number(value, decimals)

    return table(
        "table-2",
        "Table 2: systems of the paper",
        "With all techniques, so not exact (see the ladder); BLEU as published. Predicted: by multiply-adds alone.",
        (
            "system",
            "BLEU",
            "published, words/s",
            "published over S1",
            "measured, words/s",
            "measured over S1",
            "predicted over S1",
            "million multiply-adds a word",
        ),
        [
            Line(
                row["key"],
                (
                    number(row["bleu"], 1),
                    str(row["published_words_per_s"]),
                    number(row["published_factor"], 2),
                    shown(row["words_per_s"], 1),
                    shown(row["factor"], 2),
                    shown(row["predicted_factor"], 2),
                    "" if row["multiply_adds"] is None else number(row["multiply_adds"] / 1e6, 1),
                ),
                small=row["name"],
            )
            for row in rows
        ],
    )


def _context(rows: Sequence[Record]) -> dict[str, Any]:
    return table(
        "context",
        "Table 2: others’ systems",
        "As published.",
        ("system", "BLEU", "speed"),
        [Line(row["name"], (number(row["bleu"], 1), row["remark"]), published=True) for row in rows],
    )


def _products(rows: Sequence[Record]) -> dict[str, Any]:
    names = ("int16_us", "float32_us", "torch_us", "numpy_us")
    return table(
        "figure-1",
        "Figure 1: 16-bit and 32-bit products",
        "Microseconds of one product with weights of 1024 by 1024; ratios are medians over rounds.",
        ("rows", "16 bits", "float32, packed", "torch", "numpy", "over the faster library", "over packed float32"),
        [
            Line(
                str(row["batch"]),
                (
                    *(significant(row[name], 3) for name in names),
                    number(row["over_library"], 2),
                    number(row["over_packed"], 2),
                ),
                small="weights from memory" if row["cold"] else "weights in the cache",
            )
            for row in rows
        ],
    )


def _activations(rows: Sequence[Record]) -> dict[str, Any]:
    return table(
        "activations",
        "Sigmoid and tanh",
        "Nanoseconds an element, in the cache, the mean of both.",
        ("way", "ns"),
        [Line(row["way"], (significant(row["ns"], 3),)) for row in rows],
    )


def _derived(rows: Sequence[Record]) -> dict[str, Any]:
    return table(
        "derived",
        "What follows from the printed figures",
        "",
        ("what", "value", "beside it"),
        [Line(row["what"], (significant(row["value"], 3), row["meaning"]), published=True) for row in rows],
    )
