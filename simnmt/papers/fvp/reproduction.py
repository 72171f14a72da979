"""Vocabulary projection reproduced (`simnmt reproduce vocab`): printed tables with ours beside them, and figures 2 to 4.

Every row on translations states how many sentences stay the same, or that the paper does not print it (XP-03).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnmt.base.errors import InputError
from simnmt.calibrate.projection_bench import ProjectionBench, read_bench
from simnmt.papers.fvp.printed_claims import WHAT, bench_claims, name_of, printed_claims
from simnmt.papers.fvp.published import (
    BEST,
    CENTROID_BYTES,
    FIGURE_4,
    MEMORY,
    MODELS,
    PAPER,
    QUALITY,
    derived,
    fit,
    implied_share,
    means,
    of_model,
    operation_limit,
    preset_memory,
)
from simnmt.papers.fvp.study import Cell, Decoded, Study
from simnmt.papers.fvp.study_claims import NEEDS, study_claims
from simnmt.papers.kit.figures import Curve, Figure, Row, Rows, curve, figure_of, grouped, labelled_groups, line_chart
from simnmt.papers.kit.rendering import Report, derived_table, record
from simnmt.papers.kit.study import read_distinct, read_studies, shipped_measurements
from simnmt.report.charts import Chart
from simnmt.report.table import Column, Table
from simnmt.report.typography import number

if TYPE_CHECKING:
    from simnmt.papers.fvp.texts import Direction

Say = Callable[[str], None]
"""Receives a line of progress before each step."""
KNOWN = {"both": "both languages", "target": "the target alone", "mixed, same size": "the target alone, as much text"}
SHOWN_DIGITS = 16
"""Digits of a SHA-256 sum that tables show; the JSON document has all 64."""
MOST_POINTS = 300
"""Points of a line of figure 4, which is smooth."""


def judge(studies: Sequence[Study] = (), benches: Sequence[ProjectionBench] = ()) -> Report:
    """Judge the claims by every study and by the benches; without studies, by the printed figures alone."""
    cells = {part: _cells(studies, part) for part in ("by_language", "sweep", "volume")}
    speeds, sizes, studied = _speeds(studies), _per_cluster(studies), _studied(studies)
    notes = [
        f"{study.name}, {run.part} of {', '.join(run.labels)}: {note}"
        for study in studies
        for run in study.runs
        for note in run.notes
    ]
    if any(study.quick for study in studies):
        notes.insert(0, "A quick look: few sentences, clusters and rounds; its verdicts are not reliable.")
    tables = [
        _real_table(studies),
        PAPER.table("table-1").shown(),
        _projection_table(studies),
        _quality_table("table-3", "Table 3: BLEU and speed, set 1", studies, 1),
        _quality_table("table-4", "Table 4: BLEU and speed, set 2", (), 2),
        _average_table(),
        _memory_table(studies),
        _people_table(),
        _amdahl_table(studies),
        _cell_table("figure-2", "Figure 2: knowledge of languages", cells["by_language"]),
        _speed_table(speeds),
        _cell_table("sweep", "Clusters and K", cells["sweep"]),
        _cell_table("volume", "Training text", cells["volume"]),
        Table("Figure 4: each cluster's columns", [], sizes, id="figure-4"),
        _bench_table(benches),
        derived_table(derived()),
        _studied_table(studied),
    ]
    figures = [draw(rows) for draw, rows in ((_languages, cells["by_language"]), (_fastest, speeds), (_sets, sizes)) if rows]
    claims = [*study_claims(studies), *bench_claims(benches), *printed_claims()]
    alone = [] if studies else [f"Published figures alone: what is ours {NEEDS}."]
    return Report(PAPER, claims, tables, figures, [*alone, *notes])


def reproduce(
    *,
    studies: Sequence[Path] | None = None,
    benches: Sequence[Path] | None = None,
    model: Path | None = None,
    directions: Sequence[Direction] = (),
    quick: bool = False,
    say: Say = lambda _: None,
) -> Report:
    """Reproduce the paper by `studies` and `benches`, by default the shipped ones.

    With a `model` and its texts, that model is studied instead, which takes an hour or, if `quick`, minutes; the one named
    file of `studies` then keeps the study, and what it holds is not measured again.

    Args:
        studies: files of studies.
        benches: files of `simnmt vocab bench`.
        model: folder of a trained model.
        directions: its texts.
        quick: study fewer sentences, clusters and rounds.
        say: receives progress.

    Raises:
        InputError: a model without texts, or texts without a model.
    """
    bench_files = shipped_measurements("vocabulary", "bench") if benches is None else benches
    layers = read_distinct(bench_files, read_bench, name_of, "measurements")
    if model is None:
        if directions or quick:
            option = "--text" if directions else "--quick"
            raise InputError(f"{option} without a model to study", remedy="give --model FOLDER as well")
        return judge(read_studies(shipped_measurements("vocabulary", "study") if studies is None else studies, Study), layers)
    if not directions:
        remedy = "give both for each direction: --text fr-en=FILE --heldout fr-en=FILE"
        raise InputError("--model without --text and --heldout", remedy=remedy)
    if studies and len(studies) > 1:
        raise InputError("more than one --study beside --model", remedy="give the one file that its study is kept in")
    # Here, since reading alone needs no torch.
    from simnmt.papers.fvp.measure import QUICK, Sizes, run_study

    sizes = QUICK if quick else Sizes()
    return judge([run_study(model, directions, sizes, out=studies[0] if studies else None, say=say)], layers)


def _agreement(identical: float, tokens: float | None = None) -> str:
    text = f"not exact: {100 * identical:.1f} % of the sentences the same"
    return text if tokens is None else f"{text}, {100 * tokens:.2f} % of the tokens"


def _printed(model: str, row: str, beam: int, batch: int) -> dict[str, Any]:
    """Return the fields that name a published row and its agreement."""
    same = f"about {100 * PAPER['identical']:.0f} % the same (section 3.4)" if model == "m3" else "not printed"
    fields = {"kind": "published", "model": MODELS[model], "row": row, "way": "", "beam": beam, "batch": batch}
    return fields | {"agreement": f"not exact: {same}"}


def _decoded(study: Study, decoding: Decoded, keys: str, label: str = "label") -> dict[str, Any]:
    """Return the fields that name a decoding, its agreement, and those of `keys`; `label`: the key of the direction."""
    fields = {"model": study.name, label: decoding.label, **record(decoding, "beam batch way=method")}
    return fields | {"agreement": _agreement(decoding.identical, decoding.token_agreement)} | record(decoding, keys)


def _decodings(studies: Sequence[Study]) -> list[tuple[Study, Decoded]]:
    """Return each study with its decodings by the chosen clusters and by candidate lists."""
    return [(study, decoding) for study in studies for decoding in (*study.chosen, *study.candidates)]


def _name(row: Row) -> str:
    return ", ".join(part for part in (row["model"], row.get("row", row.get("label")), row.get("way")) if part)


def _percent(head: str, key: str, digits: int, **style: Any) -> Column:
    """Return a column of percentages of a share from 0 to 1."""
    return Column(head, key, digits, scale=100.0, **style)


def _of_kind(row: Row) -> bool:
    return bool(row["kind"] == "published")


KIND = Column("kind", "kind", kind=True)
DIRECTION = Column("direction", _name)
SEARCH = Column("beam, batch", lambda row: f"{row['beam']}, {row['batch']}")
TRANSLATIONS = Column("translations", "agreement", words=True)
CLUSTERS = Column("clusters", "clusters", 0)
GRID = (CLUSTERS, Column("K", "top", 0))
COMPARED = (DIRECTION, KIND, SEARCH)


def _real_table(studies: Sequence[Study]) -> Table:
    keys = "sentences emitted miss_rate identical near_ties token_agreement share_mean share_most tokens_per_s "
    keys += "tokens_per_s_fused tokens_per_s_part"
    rows = [
        _decoded(study, decoding, keys)
        | {"vocab": study.model.vocab, "share_of_emitted": decoding.share_mean * study.model.vocab / decoding.emitted}
        for study, decoding in _decodings(studies)
    ]

    def at_most(row: Row) -> str:
        return f"at most {number(100 * row['share_most'], 2)}"

    columns = [
        DIRECTION,
        SEARCH,
        _percent("active, % of V", "share_mean", 2, small=at_most),
        Column("V", "vocab", 0),
        _percent("of what is written, %", "share_of_emitted", 1, small=lambda row: f"of {number(row['emitted'], 0)}"),
        _percent("missed, %", "miss_rate", 3),
        _percent("sentences the same, %", "identical", 1, small=lambda row: f"of {number(row['sentences'], 0)}"),
        _percent("tokens the same, %", "token_agreement", 2),
        Column("tokens/s, all", "tokens_per_s", 0),
        Column("fused", "tokens_per_s_fused", 0),
        Column("with a part", "tokens_per_s_part", 0),
    ]
    note = "Share of active columns: of V, and of the tokens that dense decoding of the training text and the development half "
    note += "writes; small print: the most of any step. Missed: on the path of this decoding."
    return Table("Real decoding of held-out text", columns, rows, note, id="real")


def _projection_table(studies: Sequence[Study]) -> Table:
    rows = [
        _printed(model, row.direction, 2, 20)
        | record(row, "active_percent us ratio")
        | {"line_us": fit(model).fixed_us + fit(model).us_per_percent * row.active_percent}
        | {"operation_limit": operation_limit(row), "implied_share": implied_share(row)}
        for model in MODELS
        for row in of_model(model)
    ]
    keys = "us=layer_us active_percent=share_mean*100 ratio=layer_ratio implied_share=layer_share"
    rows += [
        _decoded(study, decoding, keys, "row")
        | {"kind": "measured", "line_us": None}
        | {"operation_limit": 1.0 / (decoding.share_mean + (decoding.clusters or 0) / study.model.vocab)}
        for study, decoding in _decodings(studies)
    ]
    columns = [
        *COMPARED,
        Column("active, %", "active_percent", 2),
        Column("us", "us", 1),
        Column("by the line, us", "line_us", 1),
        Column("ratio", "ratio", 2),
        Column("ratio by counting", "operation_limit", 1),
        _percent("share, %", "implied_share", 1),
        TRANSLATIONS,
    ]
    note = (
        "Published: the projection, of 720 us (ZCode Dense) and 600 us (ZCode M3) by default. Ours: the output layer, softmax "
    )
    note += "and search included. By counting: multiply-adds, with 2,000 clusters for the paper's. The line: through a model's "
    note += "six points. Share: of the whole time, as Tables 2 and 3 imply it, and as ours was measured."
    return Table("Table 2: the projection of a step", columns, rows, note, id="table-2", published=_of_kind)


def _quality_table(name: str, title: str, studies: Sequence[Study], test_set: int) -> Table:
    """Return BLEU and end-to-end gains of Table 3 (set 1, with our measurements) or Table 4 (set 2)."""
    rows = [
        _printed(cell.model, cell.row, cell.beam, cell.batch)
        | record(cell, "bleu_change gain_percent bleu=baseline bleu_part=clustered")
        for cell in QUALITY
        if cell.set == test_set
    ]
    rows += [
        _decoded(study, decoding, "bleu_change bleu bleu_part", "row")
        | {"kind": "measured", "gain_percent": 100 * (decoding.measured - 1.0)}
        for study, decoding in _decodings(studies)
    ]
    columns = [
        *COMPARED,
        Column("BLEU", "bleu", 2),
        Column("BLEU with a part", "bleu_part", 2),
        Column("change", "bleu_change", 2, signed=True),
        Column("gain, %", "gain_percent", 2, signed=True),
        TRANSLATIONS,
    ]
    note = "The gain is of tokens per second end to end. EX and XE are averages as printed; a table below recomputes them."
    return Table(title, columns, rows, note, id=name, published=_of_kind)


def _average_table() -> Table:
    keys = "simple by_sentences decimals row beam printed follows"
    rows = [record(row, keys) | {"table": 2 + row.set, "model": MODELS[row.model], "what": WHAT[row.what]} for row in means()]
    columns = [
        Column("average", _name),
        Column("table", "table", 0),
        Column("beam", "beam", 0),
        Column("of", "what", words=True),
        Column("printed", lambda row: number(row["printed"], row["decimals"])),
        Column("simple mean", "simple", 2),
        Column("weighted by sentences", "by_sentences", 2),
        Column("printed is", "follows", words=True),
    ]
    note = "The simple mean of three directions, and their mean weighted by the sentences of Table 1."
    return Table("Averages of Tables 3 and 4, recomputed", columns, rows, note, id="averages")


def _memory_table(studies: Sequence[Study]) -> Table:
    figures: list[tuple[str, str, str, int | None, float, float]] = [
        ("published", MODELS[row.model], row.direction, None, 1e9 * row.baseline_gb, 1e9 * (row.clustered_gb - row.baseline_gb))
        for row in MEMORY
    ]
    for row in preset_memory(studies):
        sets = f"sets of {row.percent:.2g} % ({row.origin}), {CENTROID_BYTES[row.size]} centroids"
        figures.append(("inferred", f"{MODELS[row.model]}, weights", sets, row.clusters, row.model_bytes, row.bytes))
    for study in studies:
        for memory in study.memory:
            sets, model_bytes = f"{memory.label}, K = {memory.top}", study.model.parameter_bytes
            figures.append(("measured", study.name, sets, memory.clusters, model_bytes, memory.total_bytes))
    rows = [
        {"kind": kind, "model": model, "row": row, "clusters": clusters}
        | {"model_mb": model_bytes / 1e6, "more_mb": more_bytes / 1e6, "more_percent": 100.0 * more_bytes / model_bytes}
        for kind, model, row, clusters, model_bytes, more_bytes in figures
    ]
    columns = [
        Column("model", _name),
        KIND,
        CLUSTERS,
        Column("model, MB", "model_mb", 1),
        Column("more, MB", "more_mb", significant=3),
        Column("more, %", "more_percent", 2),
    ]
    note = "Published: memory of the device. Inferred: the presets' weights in float16 by their shapes, with sets as large as "
    note += "figure 4 prints of cluster 0, here taken for all, or as our own sets are. Measured: ours as allocated, centroids, "
    note += "norms, sets and flags."
    return Table("Table 5: memory", columns, rows, note, id="table-5", published=_of_kind)


def _people_table() -> Table:
    table = PAPER.table("table-6")
    rows = [dict(row) | {"difference": row["clustered"] - row["baseline"]} for row in table.rows]
    columns = [*table.shown().columns, Column("recomputed", "difference", 2, signed=True)]
    return Table(table.title, columns, rows, table.note, id=table.id, published=lambda row: True)


def _amdahl_table(studies: Sequence[Study]) -> Table:
    keys = "layer_share layer_ratio body_ratio predicted measured measured_over_fused layer_ratio_over_fused rounds=gains"
    rows = [
        _decoded(study, decoding, keys) | {"off": decoding.predicted / decoding.measured - 1.0}
        for study, decoding in _decodings(studies)
    ]

    def over_fused(row: Row) -> str:
        return f"{number(row['layer_ratio_over_fused'], 2)} over fused"

    def rounds(row: Row) -> str:
        return f"[{number(min(row['rounds']), 3)}, {number(max(row['rounds']), 3)}]"

    columns = [
        DIRECTION,
        SEARCH,
        _percent("share, %", "layer_share", 1),
        Column("output layer's gain", "layer_ratio", 2, small=over_fused),
        Column("body's gain", "body_ratio", 2),
        Column("predicted", "predicted", 3),
        Column("measured", "measured", 3, small=rounds),
        _percent("off, %", "off", 1, signed=True),
        Column("over fused", "measured_over_fused", 3),
        TRANSLATIONS,
    ]
    note = "Share: of the plain decoder's time in projection, softmax and search. Gain: of the output layer, the choice of "
    note += "columns included. Over fused: beside the fused output layer with all columns, so the gain of leaving columns out "
    note += "alone. Body: below the output layer, whose gain Amdahl's law takes for 1."
    return Table("The output layer by Amdahl's law", columns, rows, note, id="amdahl")


def _cells(studies: Sequence[Study], part: str) -> list[dict[str, Any]]:
    """Return the cells of a part of the studies: active, missed and kept on held-out text."""
    cells: list[tuple[Study, Cell]] = [(study, cell) for study in studies for cell in getattr(study, part)]
    keys = "label knowledge clusters top training_sentences miss_rate identical share_mean share_most set_most"
    return [
        record(cell, keys)
        | {"model": study.name, "vocab": study.model.vocab, "agreement": _agreement(cell.identical)}
        | {"share_of_emitted": cell.share_mean * study.model.vocab / cell.emitted}
        for study, cell in cells
    ]


def _cell_table(name: str, title: str, rows: Rows) -> Table:
    columns = [
        DIRECTION,
        Column("known", lambda row: KNOWN[row["knowledge"]], words=True),
        *GRID,
        Column("sentences", "training_sentences", 0),
        _percent("of V, mean", "share_mean", 2),
        _percent("of V, most", "share_most", 2),
        _percent("largest set, of V", "set_most", 2),
        _percent("of what is written", "share_of_emitted", 1),
        _percent("missed", "miss_rate", 3),
        TRANSLATIONS,
    ]
    note = "In percent, over held-out steps of dense decoding; of what is written: of the tokens that dense decoding of the "
    note += "training text and the development half writes."
    return Table(title, columns, rows, note, id=name)


def _speeds(studies: Sequence[Study]) -> list[dict[str, Any]]:
    return [
        record(speed, "label clusters top beam batch sentences")
        | {"model": study.name, "agreement": _agreement(speed.identical, speed.token_agreement)}
        | {"gain_percent": 100 * speed.gain}
        | {"low_percent": 100 * (min(speed.ratios) - 1.0), "high_percent": 100 * (max(speed.ratios) - 1.0)}
        for study in studies
        for speed in study.speeds
    ]


def _speed_table(rows: Rows) -> Table:
    gain = Column("gain, %", "gain_percent", 1, signed=True, interval=("low_percent", "high_percent"))
    note = "Tokens per second more than plain dense decoding; small print: least and most of the rounds. Translations: of the "
    note += "same decoding."
    columns = [DIRECTION, *GRID, SEARCH, gain, TRANSLATIONS]
    return Table("Figure 3: speed by clusters and K", columns, rows, note, id="figure-3")


def _per_cluster(studies: Sequence[Study]) -> list[dict[str, Any]]:
    return [
        {"model": study.name, "vocab": study.model.vocab, **sizes.model_dump(mode="json")}
        for study in studies
        for sizes in study.per_cluster
    ]


def _bench_table(benches: Sequence[ProjectionBench]) -> Table:
    keys = "vocab width rows share fitted overhead_share way=method dense_us=dense_s*1e6 columns_us=columns_s*1e6 "
    keys += "predicted_us=predicted_s*1e6 ratio=ratios.columns ratio_scattered=ratios.scattered"
    rows = [record(step, keys) | {"kind": bench.kind, "box": name_of(bench)} for bench in benches for step in bench.steps]

    def off(row: Row) -> float | None:
        return None if row["fitted"] or row["predicted_us"] is None else row["predicted_us"] / row["columns_us"] - 1.0

    columns = [
        Column("box", "box"),
        KIND,
        Column("V", "vocab", 0),
        Column("width", "width", 0),
        Column("rows", "rows", 0),
        _percent("active, %", "share", 1),
        Column("dense, us", "dense_us", 0),
        Column("active alone, us", "columns_us", 0, small="way"),
        Column("times as fast", "ratio", 2),
        Column("scattered", "ratio_scattered", 2),
        _percent("overheads, % of dense", "overhead_share", 1),
        Column("off, %", off, 1, scale=100, signed=True),
    ]
    note = "Whole steps with random weights, so that nothing is translated: exact for the columns that are active. Dense: the "
    note += "fastest of torch's products, then the same search. Off: the prediction of a cost fitted to other steps' stages, "
    note += "where a step was not fitted."
    return Table("The output layer by itself", columns, rows, note, id="bench")


def _studied(studies: Sequence[Study]) -> list[dict[str, Any]]:
    """Return each model and each of its texts, with the sums of their files."""
    rows = []
    for study in studies:
        model = study.model
        size = f"{model.kind}, V {model.vocab:,}, width {model.width:,}, {model.parameters / 1e6:,.1f} million parameters"
        machines, dates = sorted({run.machine for run in study.runs}), sorted({run.date[:10] for run in study.runs})
        origin = "; ".join((", ".join(machines), ", ".join(dates), study.tool))
        rows.append({"model": model.name, "file": "weights", "content": size, "sha256": model.sha256, "of": origin})
        rows += [
            {"model": model.name, "file": f"{text.role}: {text.name}", "content": f"{text.lines:,} lines"}
            | {"sha256": text.sha256, "of": text.label}
            for text in study.texts
        ]
    return rows


def _studied_table(rows: Rows) -> Table:
    columns = [
        Column("model", "model"),
        Column("file", "file", words=True),
        Column("content", "content", words=True),
        Column("SHA-256", lambda row: row["sha256"][:SHOWN_DIGITS], words=True),
        Column("of", "of", words=True),
    ]
    return Table("What was studied", columns, rows, id="studied")


def _by_direction(rows: Rows, chart: Callable[[Rows], Chart]) -> dict[str, Chart]:
    return {name: chart(group) for name, group in labelled_groups(rows, "model", "label")}


def _languages(rows: Rows) -> Figure:
    """Draw figure 2: the largest active set by clusters and by known languages."""
    known = {"both": "source and target known", "target": "target known", "mixed, same size": "target known, as much text"}
    printed = PAPER["figure_2"]

    def chart_of(direction_rows: Rows) -> Chart:
        lines = [
            curve(f"{known[what]}, K = {top}", group, "clusters", lambda row: 100 * row["set_most"])
            for (what, top), group in grouped(direction_rows, "knowledge", "top").items()
        ]
        lines += [
            Curve(f"published: {known[what]}", [printed["clusters"]], [printed[what]], "markers") for what in ("both", "target")
        ]
        reading = "Published: Italian to English, K = 1, one point each of a vocabulary of 250,000."
        return line_chart("clusters", "largest active set, % of V", reading, lines, linear=True)

    title = "Figure 2, redrawn: what knowing the source language spares"
    charts, note = _by_direction(rows, chart_of), "The largest active set of any cluster."
    return figure_of("figure-2-drawn", title, "Largest active set by clusters", charts, note=note)


def _fastest(rows: Rows) -> Figure:
    """Draw figure 3: the gain in tokens/s by clusters and K; of the paper's best only the number of clusters is known."""

    def chart_of(direction_rows: Rows) -> Chart:
        lines = [
            curve(f"K = {top}", group, "clusters", lambda row: row["gain_percent"])
            for (top,), group in grouped(direction_rows, "top").items()
        ]
        values = [value for line in lines for value in line.y]
        best = max(direction_rows, key=lambda row: row["gain_percent"])
        lines.append(Curve("published: fastest here", [BEST] * 2, [min(0.0, *values), max(0.0, *values)], "lines"))
        reading = f"Fastest: {best['clusters']:,} clusters, K = {best['top']}, {best['gain_percent']:+.1f} %; "
        reading += f"{best['sentences']:,} sentences, medians over rounds. Published: {BEST:,} clusters and K = 1; how much is "
        return line_chart("clusters", "more tokens a second, %", f"{reading}not in the text.", lines, linear=True)

    charts = {
        f"{name}, beam {beam}, batch {batch}": chart_of(group)
        for name, direction_rows in labelled_groups(rows, "model", "label")
        for (beam, batch), group in grouped(direction_rows, "beam", "batch").items()
    }
    title, note = "Figure 3, redrawn: speed by clusters and K", "Real decoding, end to end, over dense decoding."
    return figure_of("figure-3-drawn", title, "Gain end to end by clusters and K", charts, note=note)


def _sets(rows: Rows) -> Figure:
    """Draw figure 4: each cluster's share of V, the largest first, with the paper's three values as level lines."""

    def chart_of(direction_rows: Rows) -> Chart:
        lines, last = [], max(len(row["columns"]) for row in direction_rows)
        for row in direction_rows:
            places = _thinned(len(row["columns"]))
            shares = [round(100 * row["columns"][place] / row["vocab"], 4) for place in places]
            lines.append(Curve(f"K = {row['top']}", [place + 1 for place in places], shares, "lines"))
        lines += [
            Curve(f"published: cluster 0, K = {top}", [1, last], [percent] * 2, "lines") for top, percent in FIGURE_4.items()
        ]
        first = ", ".join(f"{100 * row['first'] / row['vocab']:.2f} % at K = {row['top']}" for row in direction_rows)
        reading = f"{direction_rows[0]['clusters']:,} clusters; the one that k-means numbers 0, as the paper quotes: {first}."
        return line_chart("cluster, by size", "active set, % of V", reading, lines)

    title, note = "Figure 4, redrawn: each cluster's columns", "In descending order, as the numbers of clusters mean nothing; "
    note += "published: about 2, 5 and 6 % of cluster 0."
    charts = _by_direction(rows, chart_of)
    return figure_of("figure-4-drawn", title, "Active set of each cluster", charts, note=note, before="table-1")


def _thinned(count: int) -> list[int]:
    """Return the places of at most about `MOST_POINTS`, closer together at the beginning, where the curve is steep."""
    if count <= MOST_POINTS:
        return list(range(count))
    return sorted({round((count - 1) ** (at / (MOST_POINTS - 1))) - 1 for at in range(MOST_POINTS)} | {count - 1})
