"""The reproduction for a terminal."""

from __future__ import annotations

from typing import Any

from simnmt.reproduce.told import claim_lines, columns
from simnmt.reproduce.vocab.decoding_claims import cluster_words
from simnmt.reproduce.vocab.reproduction import Reproduction
from simnmt.reproduce.vocab.summary import summary
from simnmt.reproduce.vocab.tables import tables


def as_text(found: Reproduction) -> str:
    """Tables 2 to 5 with ours beside them, Amdahl's law, the sweep's ends and what was chosen of it, and a line per claim."""
    rows = {table["id"]: table["rows"] for table in tables(found)}
    told = [
        summary(found),
        _projection(rows["table-2"]),
        _quality("Table 3", rows["table-3"]),
        _quality("Table 4", rows["table-4"]),
        _memory(rows["table-5"]),
        _amdahl(rows["amdahl"]),
        _sweep(_extremes(rows["sweep"], rows["table-3"])),
        claim_lines(found.claims),
    ]
    return "\n\n".join(part for part in told if part)


def _projection(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            _name(row),
            row["kind"],
            f"{row['beam']} x {row['batch']}",
            f"{row['active_percent']:.2f}",
            f"{row['us']:,.1f}",
            _shown(row["line_us"], ",.1f"),
            f"{row['ratio']:.2f}",
            f"{row['operation_limit']:.1f}",
            row["agreement"],
        )
        for row in rows
    ]
    head = ("Table 2", "kind", "beam x batch", "active, %", "us", "line, us", "ratio", "by counting", "translations")
    return "The projection of a step; ours with softmax and search\n" + columns(head, lines)


def _quality(table: str, rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            _name(row),
            row["kind"],
            f"{row['beam']} x {row['batch']}",
            _shown(row["bleu"], ".2f"),
            _shown(row["bleu_part"], ".2f"),
            _shown(row["bleu_change"], "+.2f"),
            f"{row['gain_percent']:+.2f}",
            row["agreement"],
        )
        for row in rows
    ]
    head = (table, "kind", "beam x batch", "BLEU", "with a part", "change", "gain, %", "translations")
    return "BLEU, and tokens a second end to end\n" + columns(head, lines)


def _memory(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            f"{row['model']}, {row['row']}",
            row["kind"],
            "" if row["clusters"] is None else f"{row['clusters']:,}",
            f"{row['model_mb']:,.1f}",
            f"{row['more_mb']:,.2f}",
            f"{row['more_percent']:.2f}",
        )
        for row in rows
    ]
    return columns(("Table 5", "kind", "clusters", "model, MB", "more, MB", "more, %"), lines)


def _amdahl(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            _name(row),
            f"{row['beam']} x {row['batch']}",
            f"{100 * row['layer_share']:.1f}",
            f"{row['layer_ratio']:.2f}",
            f"{row['body_ratio']:.2f}",
            f"{row['predicted']:.3f}",
            f"{row['measured']:.3f}",
            f"{row['measured_over_fused']:.3f}",
        )
        for row in rows
    ]
    head = (
        "Amdahl",
        "beam x batch",
        "output layer, %",
        "its gain",
        "body's gain",
        "predicted",
        "measured",
        "measured over fused",
    )
    return columns(head, lines) if lines else ""


def _extremes(sweep: list[dict[str, Any]], decoded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fewest and the most clusters of each direction and K, and what was decoded with."""
    spans: dict[tuple[Any, ...], list[int]] = {}
    for row in sweep:
        spans.setdefault((row["model"], row["label"], row["top"]), []).append(row["clusters"])
    chosen = {(row["model"], row["row"], row["way"]) for row in decoded}

    def is_told(row: dict[str, Any]) -> bool:
        own = spans[row["model"], row["label"], row["top"]]
        way = cluster_words(row["clusters"], row["top"])
        return row["clusters"] in (min(own), max(own)) or (row["model"], row["label"], way) in chosen

    return [row for row in sweep if is_told(row)]


def _sweep(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            f"{row['model']}, {row['label']}, {cluster_words(row['clusters'], row['top'])}",
            f"{100 * row['share_mean']:.2f}",
            f"{100 * row['share_most']:.2f}",
            f"{100 * row['union_mean']:.2f}",
            f"{100 * row['share_of_emitted']:.1f}",
            f"{100 * row['miss_rate']:.2f}",
            f"{100 * row['identical']:.1f}",
        )
        for row in rows
    ]
    head = ("Sweep, %", "of V", "most", f"of V at {rows[0]['union_rows']}" if rows else "", "of emitted", "missed", "same")
    return columns(head, lines) if lines else ""


def _name(row: dict[str, Any]) -> str:
    return ", ".join(part for part in (row["model"], row.get("row", row.get("label")), row["way"]) if part)


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
