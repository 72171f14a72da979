"""The page on vocabulary projection: Tables 1 to 6, figures 2 to 4, and what trained models show (FVP-09 to 11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simnmt.papers.fvp.page_tables import amdahl, bench, break_even, cells, real, runs, speeds, studied_models, trials
from simnmt.papers.kit.page import Figure, Line, Row, Rows, grouped, labelled_groups, line, render_paper, section, table
from simnmt.report.page_template import Record
from simnmt.report.typography import number, signed, significant

MOST_POINTS = 300
"""Of a line of figure 4, which is smooth."""


def drawings(tables: Mapping[str, Rows], marks: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one section per measured drawing. `marks`: the values of figures 2 to 4 that the paper's text gives."""
    sections = [_projection(tables["table-2"])]
    sections += [_languages(tables["figure-2"], marks)] if tables["figure-2"] else []
    sections += [_speeds(tables["figure-3"], marks)] if tables["figure-3"] else []
    sections += [_sweep(tables["sweep"])] if tables["sweep"] else []
    sections += [_volume(tables["volume"])] if tables["volume"] else []
    sections += [_sets(tables["figure-4"], marks)] if tables["figure-4"] else []
    return sections


def _projection(rows: Rows) -> dict[str, Any]:
    """Draw Table 2 as points, with the line through each model's six points."""
    lines = []
    for name in dict.fromkeys(row["model"] for row in rows if row["kind"] == "published"):
        model_rows = sorted((row for row in rows if row["model"] == name), key=lambda row: row["active_percent"])
        percent = [row["active_percent"] for row in model_rows]
        lines.append({"name": f"{name}, Table 2", "x": percent, "y": [row["us"] for row in model_rows], "mode": "markers"})
        lines.append({"name": f"{name}, line", "x": percent, "y": [row["line_us"] for row in model_rows], "mode": "lines"})
    reading = "Published alone: a V100 in float16, by default 720 and 600 microseconds."
    content = {"x": "columns active, %", "y": "microseconds", "reading": reading, "lines": lines, "linear": True}
    return section(
        "projection-drawn",
        "Table 2, drawn",
        "Time of the projection by what is active, and the line through each model’s six points.",
        [("", content)],
        "Time of a projection by active columns",
        before="table-2",
    )


def _languages(rows: Rows, marks: Mapping[str, Any]) -> dict[str, Any]:
    """Draw figure 2: the largest active set by clusters and by known languages."""
    known = {"both": "source and target known", "target": "target known", "mixed, same size": "target known, as much text"}

    def content(direction_rows: Rows) -> dict[str, Any]:
        lines = [
            line(f"{known[what]}, K = {top}", group, "clusters", lambda row: 100 * row["set_most"])
            for (what, top), group in grouped(direction_rows, "knowledge", "top").items()
        ]
        lines += [
            {"name": f"published: {known[what]}", "x": [marks["figure_2_clusters"]], "y": [percent], "mode": "markers"}
            for what, percent in marks["figure_2"].items()
        ]
        reading = "Published: Italian to English, K = 1, one point each of a vocabulary of 250,000."
        return {"x": "clusters", "y": "largest active set, % of V", "reading": reading, "lines": lines, "linear": True}

    return section(
        "figure-2-drawn",
        "Figure 2, redrawn: what knowing the source language spares",
        "The largest active set of any cluster.",
        [(name, content(direction_rows)) for name, direction_rows in labelled_groups(rows, "model", "label")],
        "Largest active set by clusters",
    )


def _speeds(rows: Rows, marks: Mapping[str, Any]) -> dict[str, Any]:
    """Draw figure 3: the gain in tokens/s by clusters and K; of the paper's best only the number of clusters is known."""

    def content(direction_rows: Rows) -> dict[str, Any]:
        lines = [
            line(f"K = {top}", group, "clusters", lambda row: row["gain_percent"])
            for (top,), group in grouped(direction_rows, "top").items()
        ]
        values = [value for curve in lines for value in curve["y"]]
        best = max(direction_rows, key=lambda row: row["gain_percent"])
        lines.append(
            {
                "name": "published: fastest here",
                "x": [marks["figure_3_best"]] * 2,
                "y": [min(0.0, *values), max(0.0, *values)],
                "mode": "lines",
            }
        )
        reading = (
            f"Fastest: {best['clusters']:,} clusters, K = {best['top']}, {best['gain_percent']:+.1f} %; "
            f"{best['sentences']:,} sentences, medians over rounds. Published: "
            f"{marks['figure_3_best']:,} clusters and K = 1; how much is not in the text."
        )
        return {"x": "clusters", "y": "more tokens a second, %", "reading": reading, "lines": lines, "linear": True}

    return section(
        "figure-3-drawn",
        "Figure 3, redrawn: speed by clusters and K",
        "Real decoding, end to end, over dense decoding.",
        [
            (f"{name}, beam {beam}, batch {batch}", content(group))
            for name, direction_rows in labelled_groups(rows, "model", "label")
            for (beam, batch), group in grouped(direction_rows, "beam", "batch").items()
        ],
        "Gain end to end by clusters and K",
    )


_SWEPT: dict[str, tuple[str, Callable[[Row], float]]] = {
    "active columns, % of V": ("batch 1", lambda row: 100 * row["share_mean"]),
    "active columns of all rows, % of V": ("many rows", lambda row: 100 * row["union_mean"]),
    "missed tokens, %": ("missed", lambda row: 100 * row["miss_rate"]),
    "sentences the same, %": ("the same", lambda row: 100 * row["identical"]),
}


def _sweep(rows: Rows) -> dict[str, Any]:
    """Draw the active columns, misses and identical sentences of the sweep of clusters and K."""
    choices = []
    for name, direction_rows in labelled_groups(rows, "model", "label"):
        for label, (short, value) in _SWEPT.items():
            lines = [line(f"K = {top}", group, "clusters", value) for (top,), group in grouped(direction_rows, "top").items()]
            step_size = f"{direction_rows[0]['union_rows']} rows a step" if short == "many rows" else "one row a step"
            reading = f"Over held-out steps, {step_size}; V is {direction_rows[0]['vocab']:,}."
            content = {"x": "clusters", "y": label, "reading": reading, "lines": lines, "linear": True}
            choices.append((f"{name}: {short}", content))
    return section(
        "sweep-drawn",
        "Clusters and K: what is active, missed and kept",
        "Means over held-out text; a sentence is the same where no token of it is missed.",
        choices,
        "By clusters and K",
    )


def _volume(rows: Rows) -> dict[str, Any]:
    def content(direction_rows: Rows) -> dict[str, Any]:
        lines = [
            line(f"{clusters:,} clusters, K = {top}", group, "training_sentences", lambda row: 100 * row["miss_rate"])
            for (clusters, top), group in grouped(direction_rows, "clusters", "top").items()
        ]
        reading = "Tokens that dense decoding writes and that are not active. Published: 20 million sentences were used."
        # No miss at all has no place on a logarithmic axis.
        linear = any(row["miss_rate"] == 0.0 for row in direction_rows)
        return {"x": "training sentences", "y": "missed tokens, %", "reading": reading, "lines": lines, "linear": linear}

    return section(
        "volume-drawn",
        "Missed tokens by training text",
        "Each text is the beginning of the next.",
        [(name, content(direction_rows)) for name, direction_rows in labelled_groups(rows, "model", "label")],
        "Miss rate by training sentences",
    )


def _sets(rows: Rows, marks: Mapping[str, Any]) -> dict[str, Any]:
    """Draw figure 4: each cluster's share of V, the largest first, with the paper's three values as level lines."""

    def content(direction_rows: Rows) -> dict[str, Any]:
        lines, last = [], max(len(row["columns"]) for row in direction_rows)
        for row in direction_rows:
            places = _thinned(len(row["columns"]))
            shares = [round(100 * row["columns"][place] / row["vocab"], 4) for place in places]
            lines.append({"name": f"K = {row['top']}", "x": [place + 1 for place in places], "y": shares, "mode": "lines"})
        lines += [
            {"name": f"published: cluster 0, K = {top}", "x": [1, last], "y": [percent] * 2, "mode": "lines"}
            for top, percent in marks["figure_4"].items()
        ]
        first = ", ".join(f"{100 * row['first'] / row['vocab']:.2f} % at K = {row['top']}" for row in direction_rows)
        reading = f"{direction_rows[0]['clusters']:,} clusters; the one that k-means numbers 0, as the paper quotes: {first}."
        return {"x": "cluster, by size", "y": "active set, % of V", "reading": reading, "lines": lines}

    return section(
        "figure-4-drawn",
        "Figure 4, redrawn: each cluster’s columns",
        "In descending order, as the numbers of clusters mean nothing; published: about 2, 5 and 6 % of cluster 0.",
        [(name, content(direction_rows)) for name, direction_rows in labelled_groups(rows, "model", "label")],
        "Active set of each cluster",
        before="table-1",
    )


def _thinned(count: int) -> list[int]:
    """Places of at most about `MOST_POINTS`, closer together at the beginning, where the curve is steep."""
    if count <= MOST_POINTS:
        return list(range(count))
    return sorted({round((count - 1) ** (at / (MOST_POINTS - 1))) - 1 for at in range(MOST_POINTS)} | {count - 1})


Records = Sequence[Record]


def render_vocab(document: Record) -> str:
    """Return the page as text, to be written as UTF-8; it opens without a network. `document`: what `--json` prints."""
    rows = {entry["id"]: entry["rows"] for entry in document["tables"]}
    return render_paper(
        document,
        heading="Fast vocabulary projection via clustering, reproduced",
        matrix_note="By model; what the paper’s own figures decide is below.",
        tables=[
            studied_models(document["models"]),
            real(rows["real"]),
            trials(rows["tried"]),
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


def _table_2(rows: Records) -> dict[str, Any]:
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


def _quality(identifier: str, title: str, rows: Records) -> dict[str, Any]:
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


def _averages(rows: Records) -> dict[str, Any]:
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


def _memory(rows: Records) -> dict[str, Any]:
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


def _people(rows: Records) -> dict[str, Any]:
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


def _sentences(rows: Records) -> dict[str, Any]:
    return table(
        "table-1",
        "Table 1: sentences",
        "As published; the weights of the means above.",
        ("direction", "set 1", "set 2"),
        [Line(row["direction"], (number(row["set_1"], 0), number(row["set_2"], 0)), published=True) for row in rows],
    )


def _derived(rows: Records) -> dict[str, Any]:
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
