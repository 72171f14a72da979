"""Vocabulary projection reproduced (`simnmt reproduce vocab`): printed tables with ours beside them, and figures 2 and 3.

Every row on translations states how many sentences stay the same, or that the paper does not print it (XP-03).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from simnmt.base.errors import InputError
from simnmt.calibrate.projection_bench import ProjectionBench, read_bench
from simnmt.papers.fvp.printed_claims import WHAT, bench_claims, name_of, printed_claims
from simnmt.papers.fvp.published import (
    BEST,
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
from simnmt.papers.fvp.texts import directions_of
from simnmt.papers.kit.figures import Curve, Figure, Rows, curve, figure_of, grouped, labelled_groups, line_chart
from simnmt.papers.kit.rendering import Report, derived_table, record
from simnmt.papers.kit.study import read_distinct, read_studies, shipped_measurements
from simnmt.report.charts import Chart

Say = Callable[[str], None]
"""Receives a line of progress before each step."""
KNOWN = {"both": "both languages", "target": "the target alone"}
CELL_TABLES = {"figure-2": "by_language", "sweep": "sweep", "volume": "volume"}
"""Tables of cells by id, with the part of a study that they show."""


def judge(studies: Sequence[Study] = (), benches: Sequence[ProjectionBench] = ()) -> Report:
    """Judge the claims by every study and by the benches; without studies, by the printed figures alone."""
    cells = {name: _cells(studies, part) for name, part in CELL_TABLES.items()}
    speeds = _speeds(studies)
    rows: dict[str, Rows] = {
        "real": _real(studies),
        "table-2": _projections(studies),
        "table-3": _qualities(studies, 1),
        "table-4": _qualities((), 2),
        "averages": _averages(),
        "table-5": _memory(),
        "table-6": [dict(row) | {"difference": row["clustered"] - row["baseline"]} for row in PAPER.table("table-6").rows],
        "amdahl": _amdahl(studies),
        **cells,
        "figure-3": speeds,
        "bench": _steps(benches),
        "studied": _studied(studies),
    }
    tables = [PAPER.table("table-1").shown(), *(PAPER.shown_table(*both) for both in rows.items()), derived_table(derived())]
    drawings = ((_languages, cells["figure-2"]), (_fastest, speeds))
    figures = [draw(drawn) for draw, drawn in drawings if drawn]
    notes = [] if studies else [f"Published figures alone: what is ours {NEEDS}."]
    if any(study.quick for study in studies):
        notes.append("A quick look: few sentences, clusters and rounds; its verdicts are not reliable.")
    for study in studies:
        notes += [f"{study.name}, {run.part} of {', '.join(run.labels)}: {note}" for run in study.runs for note in run.notes]
    claims = [*study_claims(studies), *bench_claims(benches), *printed_claims()]
    return Report(PAPER, claims, tables, figures, notes)


def reproduce(
    *,
    studies: Annotated[
        list[Path] | None,
        typer.Option("--study", metavar="FILE", help="Use this, not the shipped ones; with --model: keep its study here."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A trained model to study: an hour or more, minutes with --quick.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="LABEL=FILE", help="Sources to make clusters of, a direction each; repeatable.")
    ] = None,
    heldout: Annotated[
        list[str] | None, typer.Option(metavar="LABEL=FILE", help="Other sources, to judge by; repeatable.")
    ] = None,
    references: Annotated[
        list[str] | None, typer.Option(metavar="LABEL=FILE", help="A translation of each of these, for BLEU.")
    ] = None,
    benches: Annotated[
        list[Path] | None,
        typer.Option("--bench", metavar="FILE", help="Result of `simnmt vocab bench --out`, not the shipped ones; repeatable."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Shorter study of --model: fewer sentences, clusters and rounds.")
    ] = False,
    say: Say = lambda _: None,
) -> Report:
    """Return the paper's statements beside studies and benches, by default the shipped ones.

    With a model and its texts, that model is studied instead; the one named file of `studies` then keeps the study, and what it
    holds is not measured again. Raises `InputError` for a model without texts, and for texts without a model.
    """
    directions = directions_of(text=text or (), heldout=heldout or (), references=references or ())
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
    names = {"kind": "published", "name": f"{MODELS[model]}, {row}", "model": MODELS[model], "row": row, "way": ""}
    return names | {"beam": beam, "batch": batch, "agreement": f"not exact: {same}"}


def _decoded(study: Study, decoding: Decoded, keys: str, label: str = "label") -> dict[str, Any]:
    """Return the fields that name a decoding, its agreement, and those of `keys`; `label`: the key of the direction."""
    names = {"name": f"{study.name}, {decoding.label}, {decoding.method}", "model": study.name, label: decoding.label}
    names |= record(decoding, "beam batch way=method") | {"agreement": _agreement(decoding.identical, decoding.token_agreement)}
    return names | record(decoding, keys)


def _real(studies: Sequence[Study]) -> Rows:
    keys = "sentences emitted miss_rate identical near_ties token_agreement share_mean share_most tokens_per_s "
    keys += "tokens_per_s_fused tokens_per_s_part"
    return [
        _decoded(study, decoding, keys)
        | {"vocab": study.model.vocab, "share_of_emitted": decoding.share_mean * study.model.vocab / decoding.emitted}
        for study in studies
        for decoding in study.chosen
    ]


def _projections(studies: Sequence[Study]) -> Rows:
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
        | {"operation_limit": 1.0 / (decoding.share_mean + decoding.clusters / study.model.vocab)}
        for study in studies
        for decoding in study.chosen
    ]
    return rows


def _qualities(studies: Sequence[Study], test_set: int) -> Rows:
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
        for study in studies
        for decoding in study.chosen
    ]
    return rows


def _averages() -> Rows:
    return [
        record(row, "simple by_sentences row beam printed follows")
        | {"table": 2 + row.set, "model": MODELS[row.model], "what": WHAT[row.what], "name": f"{MODELS[row.model]}, {row.row}"}
        for row in means()
    ]


def _memory() -> Rows:
    figures: list[tuple[str, str, str, int | None, float, float]] = [
        ("published", MODELS[row.model], row.direction, None, 1e9 * row.baseline_gb, 1e9 * (row.clustered_gb - row.baseline_gb))
        for row in MEMORY
    ]
    for row in preset_memory():
        sets = f"sets of {row.percent:.2g} % (figure 4, K = {row.top})"
        figures.append(("inferred", f"{MODELS[row.model]}, weights", sets, row.clusters, row.model_bytes, row.bytes))
    return [
        {"kind": kind, "model": model, "row": row, "clusters": clusters, "name": f"{model}, {row}"}
        | {"model_mb": model_bytes / 1e6, "more_mb": more_bytes / 1e6, "more_percent": 100.0 * more_bytes / model_bytes}
        for kind, model, row, clusters, model_bytes, more_bytes in figures
    ]


def _amdahl(studies: Sequence[Study]) -> Rows:
    keys = "layer_share layer_ratio body_ratio predicted measured measured_over_fused layer_ratio_over_fused rounds=gains"
    return [
        _decoded(study, decoding, keys)
        | {"off": decoding.predicted / decoding.measured - 1.0}
        | {"least": min(decoding.gains), "greatest": max(decoding.gains)}
        for study in studies
        for decoding in study.chosen
    ]


def _cells(studies: Sequence[Study], part: str) -> Rows:
    """Return the cells of a part of the studies: active, missed and kept on held-out text."""
    cells: list[tuple[Study, Cell]] = [(study, cell) for study in studies for cell in getattr(study, part)]
    keys = "label knowledge clusters top training_sentences miss_rate identical share_mean share_most set_most"
    return [
        record(cell, keys)
        | {"model": study.name, "name": f"{study.name}, {cell.label}", "vocab": study.model.vocab}
        | {"known": KNOWN[cell.knowledge], "agreement": _agreement(cell.identical)}
        | {"share_of_emitted": cell.share_mean * study.model.vocab / cell.emitted}
        for study, cell in cells
    ]


def _speeds(studies: Sequence[Study]) -> Rows:
    return [
        record(speed, "label clusters top beam batch sentences")
        | {"model": study.name, "name": f"{study.name}, {speed.label}", "agreement": _agreement(speed.identical)}
        | {"gain_percent": 100 * speed.gain}
        | {"low_percent": 100 * (min(speed.ratios) - 1.0), "high_percent": 100 * (max(speed.ratios) - 1.0)}
        for study in studies
        for speed in study.speeds
    ]


def _steps(benches: Sequence[ProjectionBench]) -> Rows:
    keys = "vocab width rows share fitted overhead_share way=method dense_us=dense_s*1e6 columns_us=columns_s*1e6 "
    keys += "predicted_us=predicted_s*1e6 ratio ratio_scattered=scattered_ratio"
    return [
        record(step, keys) | {"kind": bench.kind, "box": name_of(bench), "off": None if step.fitted else step.error}
        for bench in benches
        for step in bench.steps
    ]


def _studied(studies: Sequence[Study]) -> Rows:
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


def _languages(rows: Rows) -> Figure:
    """Draw figure 2: the largest active set by clusters and by known languages."""
    known = {"both": "source and target known", "target": "target known"}
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
    charts = {name: chart_of(group) for name, group in labelled_groups(rows, "model", "label")}
    note = "The largest active set of any cluster."
    return figure_of("figure-2-drawn", title, "Largest active set by clusters", charts, note=note)


def _fastest(rows: Rows) -> Figure:
    """Draw figure 3: the gain in tokens/s by clusters and K; of the paper's best only the number of clusters is known."""

    def chart_of(direction_rows: Rows) -> Chart:
        lines = [
            curve(f"K = {top}", group, "clusters", lambda row: row["gain_percent"])
            for (top,), group in grouped(direction_rows, "top").items()
        ]
        values = [value for line in lines for value in line.y]
        lines.append(Curve("published: fastest here", [BEST] * 2, [min(0.0, *values), max(0.0, *values)], "lines"))
        reading = f"{direction_rows[0]['sentences']:,} sentences, medians over rounds. Published: {BEST:,} clusters and K = 1."
        return line_chart("clusters", "more tokens a second, %", reading, lines, linear=True)

    charts = {
        f"{name}, beam {beam}, batch {batch}": chart_of(group)
        for name, direction_rows in labelled_groups(rows, "model", "label")
        for (beam, batch), group in grouped(direction_rows, "beam", "batch").items()
    }
    title, note = "Figure 3, redrawn: speed by clusters and K", "Real decoding, end to end, over dense decoding."
    return figure_of("figure-3-drawn", title, "Gain end to end by clusters and K", charts, note=note)
