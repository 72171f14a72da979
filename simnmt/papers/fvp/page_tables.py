"""The page's tables of what was measured: output layers by themselves, and studies of trained models (FVP-08 to 11, 15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simnmt.papers.kit.page import Figure, Line, table
from simnmt.report.typography import number, signed, typeset_interval

Rows = Sequence[Mapping[str, Any]]

MOST_SHOWN = 24
"""Rows of a sweep that are not folded away."""
SHOWN_DIGITS = 16
"""Of a sum of 64, which the JSON tells whole."""


def real(rows: Rows) -> dict[str, Any]:
    """What is active, missed and kept in real decoding."""
    return table(
        "real",
        "Real decoding of held-out text",
        "The share of active columns three ways: of V, of the tokens that dense decoding of the training text and the "
        "development half writes, and by beam and batch. Small print: the most of any step. Missed: along this way’s own path. "
        "Probability: of the model’s, what lies on active columns at batch 1.",
        ("direction", "beam, batch", "active, % of V", "V", "of what is written, %", "missed, %", "probability, %",
         "sentences the same, %", "tokens the same, %", "tokens/s, all", "fused", "with a part"),
        [
            Line(
                f"{row['model']}, {row['label']}",
                (
                    f"{row['beam']}, {row['batch']}",
                    Figure(number(100 * row["share_mean"], 2), f"at most {number(100 * row['share_most'], 2)}"),
                    number(row["vocab"], 0),
                    Figure(number(100 * row["share_of_emitted"], 1), f"of {number(row['emitted'], 0)}"),
                    number(100 * row["miss_rate"], 3),
                    "" if row["active_mass"] is None else number(100 * row["active_mass"], 1),
                    Figure(number(100 * row["identical"], 1), f"of {number(row['sentences'], 0)}"),
                    number(100 * row["token_agreement"], 2),
                    *(number(row[name], 0) for name in ("tokens_per_s", "tokens_per_s_fused", "tokens_per_s_part")),
                ),
                small=row["way"],
            )
            for row in rows
        ],
    )  # fmt: skip


def amdahl(rows: Rows) -> dict[str, Any]:
    """Predicted beside measured."""
    return table(
        "amdahl",
        "The output layer by Amdahl’s law",
        "Share: of the plain decoder’s time in projection, softmax and search. Gain: of the output layer, the choice of "
        "columns included. Over fused: beside the fused output layer with all columns, so what leaving some out gains alone. "
        "Body: what is below the output layer, whose gain Amdahl’s law takes for 1.",
        ("direction", "beam, batch", "share, %", "output layer’s gain", "body’s gain", "predicted", "measured", "off, %",
         "over fused", "translations"),
        [
            Line(
                f"{row['model']}, {row['label']}",
                (
                    f"{row['beam']}, {row['batch']}",
                    number(100 * row["layer_share"], 1),
                    Figure(number(row["layer_ratio"], 2), f"{number(row['layer_ratio_over_fused'], 2)} over fused"),
                    number(row["body_ratio"], 2),
                    number(row["predicted"], 3),
                    Figure(number(row["measured"], 3), _rounds(row["rounds"])),
                    signed(100 * row["off"], 1),
                    number(row["measured_over_fused"], 3),
                    Figure(row["agreement"], words=True),
                ),
                small=row["way"],
            )
            for row in rows
        ],
    )  # fmt: skip


def speeds(rows: Rows) -> dict[str, Any]:
    """Figure 3 in numbers."""
    return table(
        "figure-3",
        "Figure 3: speed by clusters and K",
        "Tokens a second more than plain dense decoding; small print: least and most of the rounds. Translations: of the same "
        "decoding.",
        ("direction", "clusters", "K", "beam, batch", "gain, %", "translations"),
        [
            Line(
                f"{row['model']}, {row['label']}",
                (
                    number(row["clusters"], 0),
                    str(row["top"]),
                    f"{row['beam']}, {row['batch']}",
                    Figure(*typeset_interval(row["gain_percent"], row["low_percent"], row["high_percent"], most=1)),
                    Figure(row["agreement"], words=True),
                ),
            )
            for row in rows
        ],
        folded=len(rows) > MOST_SHOWN,
    )


def cells(identifier: str, title: str, rows: Rows) -> dict[str, Any]:
    """A sweep: what is active, missed and kept on held-out text."""
    known = {"both": "both languages", "target": "the target alone", "mixed, same size": "the target alone, as much text"}
    union = f"of V, {rows[0]['union_rows']} rows" if rows else ""
    return table(
        identifier,
        title,
        "In percent, over held-out steps of dense decoding; of what is written: of the tokens that dense decoding of the "
        "training text and the development half writes.",
        ("direction", "known", "clusters", "K", "sentences", "of V, mean", "of V, most", "largest set, of V", union,
         "of what is written", "missed", "translations"),
        [
            Line(
                f"{row['model']}, {row['label']}",
                (
                    Figure(known[row["knowledge"]], words=True),
                    number(row["clusters"], 0),
                    str(row["top"]),
                    number(row["training_sentences"], 0),
                    *(number(100 * row[name], 2) for name in ("share_mean", "share_most", "set_most", "union_mean")),
                    number(100 * row["share_of_emitted"], 1),
                    number(100 * row["miss_rate"], 3),
                    Figure(row["agreement"], words=True),
                ),
            )
            for row in rows
        ],
        folded=len(rows) > MOST_SHOWN,
    )  # fmt: skip


def trials(rows: Rows) -> dict[str, Any]:
    """How r and K were chosen."""
    return table(
        "tried",
        "How r and K were chosen",
        "Decoded on the development half: of the cells that keep enough with each search the one that multiplies least was "
        "taken, where there was none the one that keeps most.",
        ("direction", "clusters", "K", "beam, batch", "columns", "BLEU, all", "with a part", "enough", "translations"),
        [
            Line(
                f"{row['model']}, {row['label']}",
                (
                    number(row["clusters"], 0),
                    str(row["top"]),
                    f"{row['beam']}, {row['batch']}",
                    number(row["columns"], 0),
                    *("" if row[name] is None else number(row[name], 2) for name in ("bleu_dense", "bleu")),
                    "yes" if row["good"] else "no",
                    Figure(row["agreement"], words=True),
                ),
            )
            for row in rows
        ],
        folded=len(rows) > MOST_SHOWN,
    )


def studied_models(models: Rows) -> dict[str, Any]:
    """What was studied, by the sums of its files."""
    lines = []
    for model in models:
        what = f"{model['architecture']}, V {number(model['vocab'], 0)}, width {number(model['width'], 0)}, "
        what += f"{number(model['parameters'] / 1e6, 1)} million parameters"
        where = "; ".join((", ".join(model["machines"]), ", ".join(model["dates"]), model["tool"]))
        lines.append(_file(model["model"], "weights", "", model["sha256"], what, where))
        lines += [
            _file(
                model["model"], text["role"], text["name"], text["sha256"], f"{number(text['lines'], 0)} lines", text["label"]
            )
            for text in model["texts"]
        ]
    return table("studied", "What was studied", "", ("model", "part", "file", "what", "SHA-256", "of"), lines)


def _file(model: str, part: str, name: str, sha256: str, what: str, of: str) -> Line:
    cells = (Figure(part, words=True), Figure(name, words=True), Figure(what, words=True))
    return Line(model, (*cells, Figure(sha256[:SHOWN_DIGITS], words=True), Figure(of, words=True)))


def runs(rows: Rows) -> dict[str, Any]:
    """When, where and with what."""
    return table(
        "runs",
        "How ours was measured",
        "",
        ("part", "date", "seconds", "threads", "busy beside it, CPUs", "machine", "k-means", "with"),
        [
            Line(
                f"{row['model']}, {row['part']}",
                (
                    Figure(row["date"], words=True),
                    number(row["seconds"], 0),
                    str(row["threads"]),
                    "" if row["others_cpus"] is None else number(row["others_cpus"], 2),
                    Figure(row["machine"], words=True),
                    row["method"] or "none",
                    Figure(", ".join(f"{name} {version}" for name, version in row["versions"].items()), words=True),
                ),
                small=", ".join(row["labels"]),
            )
            for row in rows
        ],
    )


def _rounds(ratios: Sequence[float]) -> str:
    return "" if not ratios else f"[{number(min(ratios), 3)}, {number(max(ratios), 3)}]"


def bench(rows: Rows) -> dict[str, Any]:
    """Whole steps beside what was predicted of them."""
    return table(
        "bench",
        "The output layer by itself",
        "Whole steps with random weights, so that nothing is translated: exact for the columns that are active. Dense: the "
        "fastest of torch’s products, then the same search. Off: the prediction of a cost fitted to other steps’ stages, where "
        "a step was not fitted.",
        ("box", "kind", "V", "width", "rows", "active, %", "dense, us", "active alone, us", "times as fast", "kept copy",
         "scattered", "overheads, % of dense", "off, %"),
        [
            Line(
                row["box"],
                (
                    Figure("", kind=row["kind"]),
                    number(row["vocab"], 0),
                    number(row["width"], 0),
                    number(row["rows"], 0),
                    number(100 * row["share"], 1),
                    number(row["dense_us"], 0),
                    Figure(number(row["columns_us"], 0), row["way"]),
                    *("" if row[name] is None else number(row[name], 2) for name in ("ratio", "ratio_kept", "ratio_scattered")),
                    number(100 * row["overhead_share"], 1),
                    _off(row),
                ),
            )
            for row in rows
        ],
        folded=len(rows) > MOST_SHOWN,
    )  # fmt: skip


def break_even(rows: Rows) -> dict[str, Any]:
    """Above which share all columns win."""
    return table(
        "break-even",
        "Above which share all columns win",
        "By the fitted costs, in percent of V: active columns straight into the search, scattered as published, and against "
        "all columns by the faster of torch’s products and ours.",
        ("box", "kind", "V", "width", "rows", "clusters", "straight", "scattered", "by any product"),
        [
            Line(
                row["box"],
                (
                    Figure("", kind=row["kind"]),
                    *(number(row[name], 0) for name in ("vocab", "width", "rows", "clusters")),
                    *("never" if row[name] is None else number(100 * row[name], 0) for name in ("columns", "scattered", "own")),
                ),
                small=row["date"],
            )
            for row in rows
        ],
        folded=len(rows) > MOST_SHOWN,
    )


def _off(row: Mapping[str, Any]) -> str:
    if row["fitted"] or row["predicted_us"] is None:
        return ""
    return signed(100 * (row["predicted_us"] / row["columns_us"] - 1.0), 1)
