"""The reproduction of elastic pipelines: tables and figures of studies of trained classifiers and of a measured pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import floor
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from simnmt.base.errors import InputError
from simnmt.papers.kit.figures import Curve, Figure, Row, Rows, curve, figure_of, grouped, labelled_groups, line_chart
from simnmt.papers.kit.rendering import Report, derived_table
from simnmt.papers.kit.study import read_studies, shipped_measurements
from simnmt.papers.sti.claims import NEEDS, all_claims, gain, in_points, in_time, paired, ratio
from simnmt.papers.sti.pipeline import PipelineMeasurement, read_pipeline
from simnmt.papers.sti.plans import DEVICES, METHODS, PLANNED, Studied
from simnmt.papers.sti.printed import BASELINES, BOARDS, DERIVED, GAINS, LOADED_FIRST, PAPER, PIPELINE
from simnmt.papers.sti.study import Study
from simnmt.report.charts import Chart
from simnmt.report.page_template import Section
from simnmt.report.pipelines import DrawnPipeline, pipeline_svg
from simnmt.report.table import Table
from simnmt.streaming.plan.timeline import Work, load_then_run, timeline

IN_MEMORY = ("PreloadModel-32", "PreloadModel-6")
DRAWN_SHARE = 0.175
"""The deadline that is drawn, or the nearest that a study has: the paper's 200 ms where a layer takes 95 ms."""


def _gain_columns(pairs: pd.DataFrame | None, suffix: str = "") -> Row:
    """Return gain, interval, accuracies and number of deadlines, under names with this suffix."""
    values: tuple[Any, ...] = (None,) * 5
    if pairs is not None and len(pairs):
        means = pairs["accuracy"].mean(), pairs["accuracy_other"].mean()
        values = (*in_points(gain(pairs["right"], pairs["right_other"])), *means)
    names = ("gain", "low", "high", "accuracy", "accuracy_other", "deadlines")
    return dict(zip([f"{name}{suffix}" for name in names], (*values, 0 if pairs is None else len(pairs)), strict=True))


def gains_table(studies: Sequence[Studied]) -> Table:
    """Return the points that STI gains over each other method, printed and ours."""
    nothing = {**_gain_columns(None, "_in_time"), "deadlines_in_time": None, **_gain_columns(None)}
    rows: list[Row] = [
        {"kind": "published", "study": "GLUE, mean", "device": board, "method": method}
        | {**nothing, "gain": GAINS[method, column], "deadlines": PAPER["deadlines"]}
        | {"missed": None, "missed_other": None, "shards_ratio": GAINS[method, "shards"]}
        for board, column in BOARDS.items()
        for method in BASELINES
    ]
    for studied, device, method in product(studies, DEVICES, METHODS[1:]):
        pairs = paired(studied.grid[studied.grid["device"] == device.name], method)
        rows.append(
            {"kind": "inferred", "study": studied.study.name, "device": device.name, "method": method}
            | {**_gain_columns(in_time(pairs), "_in_time"), **_gain_columns(pairs)}
            | {"missed": int(pairs["misses"].sum()), "missed_other": int(pairs["misses_other"].sum())}
            | {"shards_ratio": ratio(pairs, "shards")}
        )
    return PAPER.shown_table(
        "gains",
        rows,
        gain_shown=lambda row: row["gain"] if row["kind"] == "published" else row["gain_in_time"],
        gain_of_all=lambda row: None if row["kind"] == "published" else row["gain"],
    )


def _method(row: Row) -> str:
    """Return the method of a row, with its preload buffer as a share of the whole model."""
    preload = row["preload_share"]
    buffer = "" if preload is None else f", buffer of {100 * preload:.2f} %" if preload else ", no buffer"
    return f"{row['method']}{buffer}"


def point_rows(frames: Sequence[pd.DataFrame]) -> Rows:
    """Return the rows of a part of all studies, without the answers and the times of each layer."""
    shown = [frame.drop(columns=["right", "load_s", "comp_s", "shards"]).astype(object) for frame in frames]
    rows: Any = pd.concat(shown).to_dict("records") if shown else []
    return [{key: None if value != value else value for key, value in row.items()} for row in rows]


def memory_figure(grid: Rows, sizes: Rows) -> Figure:
    """Return figure 7: accuracy against parameters held between executions, one deadline at a time."""

    def line(name: str, rows: Rows, mode: str = "lines+markers") -> Curve:
        return curve(name, rows, "held_mb", lambda row: round(100 * row["accuracy"], 4), mode=mode)

    def chart_of(rows: Rows) -> Chart:
        first = rows[0]
        swept = [row for row in sizes if all(row[key] == first[key] for key in ("study", "deadline_ms"))]
        plans = {row["held_mb"]: row for row in (*rows, *swept) if row["method"] == "STI" and row["held_mb"] > 0.0}
        lines = [line("STI", list(plans.values()))] if plans else []
        lines += [line(method, [row for row in rows if row["method"] == method], "markers") for method in IN_MEMORY]
        held = [value for drawn in lines for value in drawn.x]
        for row in rows:
            if row["method"] not in IN_MEMORY and not row["held_mb"]:
                name = _method(row) + (", late" if row["misses"] else "")
                lines.append(Curve(name, [min(held), max(held)], [100 * row["accuracy"]] * 2, "lines"))
        reading = f"Under {first['deadline_ms']:,.0f} ms. Methods that hold nothing between executions are level lines."
        values = [value for drawn in lines for value in drawn.y]
        span = (5.0 * floor(min(values) / 5.0) - 1.0, min(100.5, max(values) + 2.0))
        return line_chart("parameters held, MB", "accuracy, %", reading, lines, linear="y", span=span)

    charts = {
        f"{name}, {100 * at:g} %": chart_of(group)
        for name, device_rows in labelled_groups(grid, "study", "device")
        for (at,), group in grouped(device_rows, "deadline_share").items()
    }
    buffers = {name: sum(len(mark.x) for mark in chart.marks if mark.name == "STI") for name, chart in charts.items()}
    return figure_of(
        "figure-7-drawn",
        "Figure 7, redrawn: accuracy against memory",
        "Accuracy by parameters held in memory between executions",
        charts,
        note="By deadline, as a share of the whole model’s computation. The paper’s own figure is not in the source text.",
        before="gains",
        chosen=next((name for name, count in buffers.items() if count > 2), ""),
    )


def pipelines(studies: Sequence[Studied]) -> list[Section]:
    """Return pictures of the paper's pipeline, and of the pipelines of each device under one deadline (figure 8)."""
    drawn = [DrawnPipeline("pipeline", PIPELINE), DrawnPipeline("load, then run", LOADED_FIRST)]
    name = "Published: six layers of DistilBERT"
    parts = [Section(name, picture=pipeline_svg(name, drawn))]
    for studied in studies:
        for device, points in studied.grid.groupby("device", sort=False):
            at = min(points["deadline_share"], key=lambda share: abs(share - DRAWN_SHARE))
            drawn = []
            for point in points[points["deadline_share"] == at].itertuples():
                held = f", {point.held_mb:.3g} MB" if point.method in PLANNED and point.held_mb else ""
                run = load_then_run if point.method == "Load&Exec" else timeline
                times = run(point.load_s, Work([point.comp_s] * point.layers))
                drawn.append(DrawnPipeline(f"{point.method}, {point.layers} x {point.slices}{held}", times))
            name = f"{studied.study.name}, {device}, {100 * at:g} % of the whole computation"
            parts.append(Section(name, picture=pipeline_svg(name, drawn, 1e-3 * point.deadline_ms)))
    note = (
        "Above what the disk reads, below what the processor computes and how long it waits; a box for each layer, a line for "
        "the deadline; MB: preloaded. Figure 8 itself is not in the source text."
    )
    return [Section("Pipelines, drawn", "pipelines", [note], parts=parts, folded=True)]


def describe_study(study: Study) -> str:
    """Return the model, the examples that judged and those that ranked, and when it was measured."""
    model, ranked = study.model, study.importance
    when = dict.fromkeys(f"{run.date[:10]} on {run.machine}" for run in study.runs)
    ranking = f"on {ranked.examples:,} examples of {ranked.task}, of which {ranked.shared:,} also judge"
    if study.ranked_on_judged:
        ranking = "on the very examples that judge, so that planning and importance look better than they are"
    return (
        f"{study.name}: {model.layers} x {model.heads} shards of width {model.width}, {study.task.examples:,} examples, "
        f"guessing gives {100 * study.task.largest_class:.1f} %; shards were ranked {ranking}; SHA-256 {model.sha256[:16]}; "
        f"measured {'; '.join(when)}."
    )


def report(studies: Sequence[Studied], pipeline: PipelineMeasurement | None) -> Report:
    """Return the reproduction for JSON, terminal and page."""
    grid, sizes = (point_rows([getattr(studied, part) for studied in studies]) for part in ("grid", "sizes"))
    measured = [studied.study for studied in studies]
    about: Any = {"tool": True, "model": True, "task": True, "importance": {"task", "task_sha256", "examples", "shared"}}
    return Report(
        PAPER,
        all_claims(studies, pipeline),
        [
            gains_table(studies),
            PAPER.shown_table("sizes", sizes),
            derived_table(DERIVED),
            PAPER.table("lost").shown(),
            PAPER.shown_table("grid", grid),
        ],
        [memory_figure(grid, sizes)] if grid else [],
        [describe_study(study) for study in measured] or [f"Published figures alone; a result of ours {NEEDS}."],
        more={"models": [{"study": study.name, **study.model_dump(mode="json", include=about)} for study in measured]},
        pictures=pipelines(studies),
    )


def reproduce(
    *,
    studies: Annotated[
        list[Path] | None,
        typer.Option("--study", metavar="FILE", help="Use this, not the shipped ones; with --store: keep its study here."),
    ] = None,
    pipeline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Result of `python -m benchmarks.sti_pipeline --out`, instead of the shipped one."),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="STORE", help="Shards of a trained classifier to study: minutes; with --task.")
    ] = None,
    task: Annotated[
        Path | None, typer.Option(metavar="FILE.tsv", help="Examples that it was not trained on, to judge by.")
    ] = None,
    importance_task: Annotated[
        Path | None, typer.Option(metavar="FILE.tsv", help="Other examples, to rank the shards of --store by.")
    ] = None,
    progress: Any = None,
) -> Report:
    """Return the paper's statements beside studies and a pipeline's measurement, by default the shipped ones.

    With a store that model is studied instead, minutes on one core, and `studies` may name the one file that its study is kept
    in and continued from. Raises `InputError`.
    """
    measured = read_pipeline(pipeline or shipped_measurements("sti", "pipeline")[0])
    if store is None or task is None:
        if store or task or importance_task:
            raise InputError("one of --store and --task is missing", remedy="give --store DIR --task FILE.tsv together")
        paths = studies or shipped_measurements("sti", "study")
        return report([Studied.of(study) for study in read_studies(paths, Study)], measured)
    if studies and len(studies) > 1:
        raise InputError("more than one --study beside --store", remedy="give the one file that its study is kept in")
    # Here, since reading a study needs no torch.
    from simnmt.papers.sti.study_run import study_classifier

    out = studies[0] if studies else None
    study = study_classifier(store, task, importance_task=importance_task, out=out, progress=progress)
    return report([Studied.of(study)], measured)
