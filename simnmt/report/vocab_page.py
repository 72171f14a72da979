"""The page on projecting onto a part of the vocabulary: Tables 1 to 6, figures 2 to 4, and what trained models say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simnmt.report.paper_page import Figure, Line, render_paper, table
from simnmt.report.typography import number, signed, significant
from simnmt.report.vocab_bench_tables import bench, break_even
from simnmt.report.vocab_figures import drawings
from simnmt.report.vocab_study_tables import amdahl, cells, real, runs, speeds, studied, tried

Record = Mapping[str, Any]
Rows = Sequence[Record]


def render_vocab(document: Record) -> str:
    """The page as text, to be written as UTF-8; it opens from disk without a network. `document`: what `--json` prints."""
    rows = {each["id"]: each["rows"] for each in document["tables"]}
    return render_paper(
        document,
        heading="Fast vocabulary projection via clustering, reproduced",
        matrix_note="By model; what the paper’s own figures decide is below.",
        listed=True,
        tables=[
            studied(document["models"]),
            real(rows["real"]),
            tried(rows["tried"]),
            amdahl(rows["amdahl"]),
            _table_2(rows["table-2"]),
            bench(rows["bench"]),
            break_even(rows["break-even"]),
            _quality("table-3", "Table 3: BLEU and speed on set 1, and ours", rows["table-3"]),
            _quality("table-4", "Table 4: BLEU and speed on set 2", rows["table-4"]),
            _averages(rows["averages"]),
            _memory(rows["table-5"]),
            _people(rows["table-6"]),
            speeds(rows["figure-3"]),
            cells("figure-2", "Figure 2: what knowing the source language spares", rows["figure-2"]),
            cells("sweep", "Clusters and K", rows["sweep"]),
            cells("volume", "Training text", rows["volume"]),
            _sentences(rows["table-1"]),
            _derived(rows["derived"]),
            runs(rows["runs"]),
        ],
        drawings=drawings(rows, document["marks"]),
    )


def _row(row: Record, cells: Sequence[Figure | str]) -> Line:
    """With kind, and what of the translations stays the same (XP-03)."""
    return Line(
        f"{row['model']}, {row['row']}",
        (Figure("", kind=row["kind"]), f"{row['beam']}, {row['batch']}", *cells, Figure(row["agreement"], words=True)),
        small=row["way"],
        published=row["kind"] == "published",
    )


def _table_2(rows: Rows) -> dict[str, Any]:
    return table(
        "table-2",
        "Table 2: the projection of a step",
        "Published: the projection, of 720 us (ZCode Dense) and 600 us (ZCode M3) by default. Ours: the output layer, softmax "
        "and search included. By counting: multiply-adds, with 2,000 clusters for the paper’s. The line: through a model’s six "
        "points. Share: of the whole time, as Tables 2 and 3 imply it, and as ours was measured.",
        ("direction", "kind", "beam, batch", "active, %", "us", "by the line, us", "ratio", "ratio by counting", "share, %",
         "translations"),
        [
            _row(
                row,
                (
                    number(row["active_percent"], 2),
                    number(row["us"], 1),
                    _shown(row["line_us"], 1),
                    number(row["ratio"], 2),
                    number(row["operation_limit"], 1),
                    number(100 * row["implied_share"], 1),
                ),
            )
            for row in rows
        ],
    )  # fmt: skip


def _quality(identifier: str, title: str, rows: Rows) -> dict[str, Any]:
    return table(
        identifier,
        title,
        "The gain is of tokens a second end to end. EX and XE are averages as printed; see below what they are averages of.",
        ("direction", "kind", "beam, batch", "BLEU", "BLEU with a part", "change", "gain, %", "translations"),
        [
            _row(
                row,
                (
                    _shown(row["bleu"], 2),
                    _shown(row["bleu_part"], 2),
                    "" if row["bleu_change"] is None else signed(row["bleu_change"]),
                    signed(row["gain_percent"]),
                ),
            )
            for row in rows
        ],
    )


def _averages(rows: Rows) -> dict[str, Any]:
    return table(
        "averages",
        "Averages of Tables 3 and 4, recomputed",
        "The simple mean of three directions, and their mean weighted by the sentences of Table 1.",
        ("average", "table", "beam", "of", "printed", "simple mean", "weighted by sentences", "printed is"),
        [
            Line(
                f"{row['model']}, {row['row']}",
                (
                    str(row["table"]),
                    str(row["beam"]),
                    Figure(row["what"], words=True),
                    number(row["printed"], row["decimals"]),
                    number(row["simple"], 2),
                    number(row["by_sentences"], 2),
                    Figure(
                        {"simple": "the simple mean", "by sentences": "weighted"}.get(row["follows"], "neither"), words=True
                    ),
                ),
            )
            for row in rows
        ],
    )


def _memory(rows: Rows) -> dict[str, Any]:
    return table(
        "table-5",
        "Table 5: memory",
        "Published: what runs on the device. Inferred: the presets’ weights in float16 by their shapes, with sets as large as "
        "figure 4 tells of cluster 0, here taken for all, or as our own sets are. Measured: ours as "
        "allocated, centroids, norms, sets and flags.",
        ("model", "kind", "clusters", "model, MB", "more, MB", "more, %"),
        [
            Line(
                row["model"],
                (
                    Figure("", kind=row["kind"]),
                    "" if row["clusters"] is None else number(row["clusters"], 0),
                    number(row["model_mb"], 1),
                    significant(row["more_mb"], 3),
                    number(row["more_percent"], 2),
                ),
                small=row["row"],
                published=row["kind"] == "published",
            )
            for row in rows
        ],
    )


def _people(rows: Rows) -> dict[str, Any]:
    return table(
        "table-6",
        "Table 6: human evaluation",
        "As published, 0 to 100, of 1,700 translations a direction that differ; nothing here can repeat it.",
        ("direction", "without clusters", "with clusters", "printed difference", "recomputed", "significance"),
        [
            Line(
                row["direction"],
                (
                    number(row["baseline"], 2),
                    number(row["clustered"], 2),
                    signed(row["printed_difference"]),
                    signed(row["difference"]),
                    Figure(row["level"], words=True),
                ),
                published=True,
            )
            for row in rows
        ],
    )


def _sentences(rows: Rows) -> dict[str, Any]:
    return table(
        "table-1",
        "Table 1: sentences",
        "As published; the weights of the means above.",
        ("direction", "set 1", "set 2"),
        [Line(row["direction"], (number(row["set_1"], 0), number(row["set_2"], 0)), published=True) for row in rows],
    )


def _derived(rows: Rows) -> dict[str, Any]:
    return table(
        "derived",
        "What follows from the printed figures",
        "",
        ("what", "value", "unit", "beside it"),
        [
            Line(row["what"], (significant(row["value"], 4), row["unit"], Figure(row["meaning"], words=True)), published=True)
            for row in rows
        ],
    )


def _shown(value: float | None, decimals: int) -> str:
    return "" if value is None else number(value, decimals)
