"""The reproduction of elastic pipelines: tables and figures of studies of trained classifiers and of a measured pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import floor
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from simnmt.base.errors import InputError
from simnmt.papers.kit.claims import describe_verdicts
from simnmt.papers.kit.figures import Curve, Figure, Row, Rows, curve, figure_of, grouped, labelled_groups, line_chart
from simnmt.papers.kit.rendering import Report, record
from simnmt.papers.kit.study import read_studies, shipped_measurements
from simnmt.papers.sti.claims import NEEDS, all_claims
from simnmt.papers.sti.comparison import POINTS, Comparison, PairedDifference, comparisons, importance_gain
from simnmt.papers.sti.pipeline import PipelineMeasurement, read_pipeline, shipped_pipeline
from simnmt.papers.sti.printed import BOARDS, GAINS, LOADED_FIRST, PAPER, PIPELINE, derived_table
from simnmt.papers.sti.study import Point, StudiedDevice, Study
from simnmt.report.charts import Chart
from simnmt.report.page_template import Section
from simnmt.report.pipelines import DrawnPipeline, pipeline_svg
from simnmt.report.table import Column, Table
from simnmt.report.typography import significant
from simnmt.streaming.plan.timeline import MOMENTS, Timeline

IN_MEMORY = ("PreloadModel-32", "PreloadModel-6")
DRAWN_SHARE = 0.175
"""The deadline that is drawn, or the nearest that a study has: the paper's 200 ms where a layer takes 95 ms."""


def _in_points(gain: PairedDifference) -> tuple[float, float, float]:
    return POINTS * gain.difference, POINTS * gain.low, POINTS * gain.high


def _gain_columns(compared: Comparison, suffix: str = "") -> dict[str, Any]:
    """Return gain, interval, accuracies and number of deadlines, under names with this suffix."""
    names = [f"{name}{suffix}" for name in ("gain", "low", "high", "accuracy", "accuracy_other")]
    values = (*_in_points(compared.gain), *compared.accuracies) if compared.pairs else (None,) * 5
    return dict(zip(names, values, strict=True)) | {f"deadlines{suffix}": len(compared.pairs)}


def gains_table(studies: Sequence[Study]) -> Table:
    """Return the points that STI gains over each other method, printed and ours."""
    rows: list[Row] = []
    for board, column in BOARDS.items():
        for method in GAINS.column("method"):
            nothing = _gain_columns(Comparison(0, ()), "_in_time") | _gain_columns(Comparison(0, ()))
            row: dict[str, Any] = {"kind": "published", "study": "GLUE, mean", "device": board, "method": method, **nothing}
            row |= {"gain": GAINS[method, column], "deadlines_in_time": None, "deadlines": PAPER["deadlines"]}
            rows.append(row | {"missed": None, "missed_other": None, "shards_ratio": GAINS[method, "shards"]})
    for study, device in _devices(studies):
        for method, compared in comparisons(study, device).items():
            (missed, missed_other), ratio = compared.missed, compared.ratio(lambda point: point.shards)
            row = {"kind": device.kind, "study": study.name, "device": device.name, "method": method}
            row |= {**_gain_columns(compared.in_time, "_in_time"), **_gain_columns(compared)}
            rows.append(row | {"missed": missed, "missed_other": missed_other, "shards_ratio": ratio})
    return PAPER.shown_table(
        "gains",
        rows,
        gain_shown=lambda row: row["gain"] if row["kind"] == "published" else row["gain_in_time"],
        gain_of_all=lambda row: None if row["kind"] == "published" else row["gain"],
        kept_deadlines=_kept_deadlines,
    )


def _devices(studies: Sequence[Study]) -> list[tuple[Study, StudiedDevice]]:
    return [(study, device) for study in studies for device in study.devices]


def _kept_deadlines(row: Row) -> str:
    in_time = row["deadlines_in_time"]
    return str(row["deadlines"]) if in_time is None else f"{in_time} of {row['deadlines']}"


def _method(row: Row) -> str:
    """Return the method of a row, with its preload buffer as a share of the whole model."""
    preload = row["preload_share"]
    buffer = "" if preload is None else f", buffer of {100 * preload:.2f} %" if preload else ", no buffer"
    return f"{row['method']}{buffer}"


def submodels_table(grid: Rows) -> Table:
    """Return n x m by method and deadline, instead of the lost Table 6."""
    rows = [
        {
            "study": study,
            "device": device,
            "method": method,
            "preload_share": preload,
            "sizes": {f"{100 * row['deadline_share']:g}": [row["layers"], row["slices"]] for row in group},
            "shards": fmean(row["layers"] * row["slices"] for row in group),
            "missed": sum(row["misses"] for row in group),
            **{name: fmean(row[name] for row in group) for name in ("accuracy", "held_mb", "working_mb")},
        }
        for (study, device, method, preload), group in grouped(grid, "study", "device", "method", "preload_share").items()
    ]
    deadlines = sorted({at for row in rows for at in row["sizes"]}, key=float)

    def size_at(deadline: str, row: Row) -> str:
        return " x ".join(map(str, row["sizes"].get(deadline, ())))

    columns = [Column(f"{deadline} %", partial(size_at, deadline)) for deadline in deadlines]
    return PAPER.shown_table("submodels", rows, *columns, method_shown=_method)


def upgrades_table(studies: Sequence[Study]) -> Table:
    """Return shards raised by importance and at random, instead of the lost Table 7."""
    rows: list[Row] = []
    for study in studies:
        for case in study.upgrades:
            by_chance = [outcome.accuracy for outcome in case.random]
            gain = _in_points(importance_gain([case], study.task.examples)) if by_chance else (None,) * 3
            rows.append(
                dict(zip(("gain", "low", "high"), gain, strict=True))
                | {"study": study.name, "agreement": case.best.agreement}
                | record(case, "layers slices raised to_bits base=base.accuracy best=best.accuracy")
                | {
                    "random_mean": fmean(by_chance) if by_chance else None,
                    "random_least": min(by_chance, default=None),
                    "random_most": max(by_chance, default=None),
                    "orders": len(by_chance),
                    "beaten": sum(accuracy <= case.best.accuracy for accuracy in by_chance),
                }
            )
    return PAPER.shown_table(
        "upgrades",
        rows,
        size=lambda row: f"{row['layers']} x {row['slices']}",
        no_better=lambda row: f"{row['beaten']} of {row['orders']}",
    )


def _point_rows(studies: Sequence[Study], part: str) -> list[Row]:
    keys = (
        "device method deadline_share preload_share layers slices misses flagged deadline_ms=deadline_s*1e3 mean_bits "
        "preload_mb=preload_bytes*1e-6 held_mb=held_bytes*1e-6 working_mb=working_bytes*1e-6 latency_ms=latency_s*1e3 "
        "stall_ms=stall_s*1e3 io_busy_ms=io_s*1e3 compute_busy_ms=busy_s*1e3 accuracy=outcome.accuracy "
        "log_likelihood=outcome.log_likelihood agreement=outcome.agreement"
    )
    return [
        {"study": study.name, "bits": {str(bits): count for bits, count in point.bits.items()}} | record(point, keys)
        for study in studies
        for point in getattr(study, part)
    ]


def pipeline_table(measured: PipelineMeasurement | None) -> Table:
    """Return the paper's pipeline of section 2.2, and the measured ones."""
    both_s, pipeline_s = LOADED_FIRST.latency_s, PIPELINE.latency_s
    figures: list[tuple[str, str, float | None, float, float, float]] = [
        ("six layers, 32 bits loaded first", "published", None, both_s, LOADED_FIRST.stall_s, 1.0),
        ("six layers, pipeline, 32 bits", "published", None, pipeline_s, PIPELINE.stall_s, both_s / pipeline_s),
    ]
    layers = "" if measured is None else f"{measured.layers} layers"
    for runs in () if measured is None else measured.faster:
        loaded_s, two_s = runs.load_then_run_s, runs.bits_2_s
        figures += [
            (f"{layers}, 32 bits loaded first", "measured", runs.pace_mb, loaded_s, runs.load_then_run_stall_s, 1.0),
            (f"{layers}, pipeline, 6 bits", "measured", runs.pace_mb, runs.bits_6_s, runs.bits_6_stall_s, runs.ratio),
            (f"{layers}, pipeline, 2 bits", "measured", runs.pace_mb, two_s, runs.bits_2_stall_s, loaded_s / two_s),
        ]
    rows = [
        {"what": what, "kind": kind, "pace_mb_s": pace, "latency_ms": 1e3 * total_s, "stall_ms": 1e3 * stall_s, "ratio": ratio}
        for what, kind, pace, total_s, stall_s, ratio in figures
    ]
    return PAPER.shown_table("pipeline", rows)


def devices_table(studies: Sequence[Study]) -> Table:
    """Return the costs that plans were made by."""
    keys = "device=name kind said=source skew embed_ms=embed_s*1e3 head_ms=head_s*1e3 preload_share"
    rows = [
        {
            "study": study.name,
            "layer_ms": 1e3 * device.comp_s[-1],
            "quarter_ms": 1e3 * device.comp_s[max(len(device.comp_s) // 4, 1) - 1],
            "slowed": max(device.slowed, default=1.0),
            "io_ms": {str(bits): 1e3 * seconds for bits, seconds in device.io_s.items()},
            "length": study.length,
            **record(device, keys),
        }
        for study, device in _devices(studies)
    ]
    return PAPER.shown_table(
        "devices",
        rows,
        ends_ms=lambda row: row["embed_ms"] + row["head_ms"],
        in_32_bits=lambda row: f"{significant(row['io_ms']['32'], 3)} in 32 bits",
    )


def _studied(study: Study) -> dict[str, Any]:
    """Return model, task and store of a study, with the sums that identify the files."""
    keys = (
        "study=name layers_mb=model.layers_bytes*1e-6 importance_task_sha256=importance.task_sha256 "
        "importance_task=importance.task importance_on_same=ranked_on_judged importance_examples=importance.examples "
        "importance_shared=importance.shared evaluations=importance.evaluations tool"
    )
    return record(study, keys) | study.model_dump(mode="json", include={"model", "task", "store"})


def memory_figure(grid: Rows, sizes: Rows) -> Figure:
    """Return figure 7: accuracy against parameters held between executions, one deadline at a time."""

    def line(name: str, rows: Rows, mode: str = "lines+markers") -> Curve:
        return curve(name, rows, "held_mb", lambda row: round(100 * row["accuracy"], 4), mode=mode)

    def chart_of(rows: Rows) -> Chart:
        first = rows[0]
        swept = [row for row in sizes if all(row[key] == first[key] for key in ("study", "deadline_ms"))]
        plans = {row["held_mb"]: row for row in (*rows, *swept) if row["method"] == "STI" and row["held_mb"] > 0.0}
        lines = [line("STI", list(plans.values()))] if plans else []
        for method in IN_MEMORY:
            points = [row for row in rows if row["method"] == method]
            lines += [line(method, points, mode="markers")] if points else []
        held = [value for drawn in lines for value in drawn.x]
        for row in rows if held else ():
            if row["method"] not in IN_MEMORY and not row["held_mb"]:
                name = _method(row) + (", late" if row["misses"] else "")
                lines.append(Curve(name, [min(held), max(held)], [100 * row["accuracy"]] * 2, "lines"))
        reading = f"Under {first['deadline_ms']:,.0f} ms. Methods that hold nothing between executions are level lines. "
        reading += "Working buffers come on top: see the table."
        values = [value for drawn in lines for value in drawn.y]
        low, high = min(values, default=0.0), max(values, default=100.0)
        span = (5.0 * floor(low / 5.0) - 1.0, min(100.5, high + 2.0))
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


def _pipeline_row(name: str, times: Timeline) -> dict[str, Any]:
    moments = {moment: getattr(times, moment).tolist() for moment in MOMENTS}
    return {"name": name, "latency_s": times.latency_s, "stall_s": times.stall_s, **moments}


def timelines(studies: Sequence[Study]) -> tuple[list[dict[str, Any]], list[Section]]:
    """Return groups of pipelines under one deadline, with the times of every layer in seconds, and their pictures."""
    drawn = [DrawnPipeline("pipeline", PIPELINE), DrawnPipeline("load, then run", LOADED_FIRST)]
    groups: list[tuple[str, str, float | None, list[DrawnPipeline], list[dict[str, Any]]]] = []
    groups.append(("Published: six layers of DistilBERT", "published", None, drawn, [{}, {}]))
    for study, device in _devices(studies):
        points = [point for point in study.grid if point.device == device.name]
        if not points:
            continue
        at = min((point.deadline_share for point in points), key=lambda share: abs(share - DRAWN_SHARE))
        points = [point for point in points if point.deadline_share == at]
        drawn = [DrawnPipeline(_pipeline_name(point), point.timeline(device)) for point in points]
        further = [{"accuracy": point.outcome.accuracy, "misses": point.misses} for point in points]
        name = f"{study.name}, {device.name}, {100 * at:g} % of the whole computation"
        groups.append((name, device.kind, points[0].deadline_s, drawn, further))
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "kind": kind,
            "deadline_s": deadline_s,
            "pipelines": [_pipeline_row(one.name, one.timeline) | more for one, more in zip(drawn, further, strict=True)],
        }
        for name, kind, deadline_s, drawn, further in groups
    ]
    parts = [Section(name, picture=pipeline_svg(name, drawn, deadline_s)) for name, _, deadline_s, drawn, _ in groups]
    note = (
        "Above what the disk reads, below what the processor computes and how long it waits; a box for each layer, a line for "
        "the deadline; MB: preloaded. Figure 8 itself is not in the source text."
    )
    return rows, [Section("Pipelines, drawn", "pipelines", [note], parts=parts, folded=True)]


def _pipeline_name(point: Point) -> str:
    held = f", {point.held_bytes / 1e6:.3g} MB" if point.preload_share is not None and point.held_bytes else ""
    return f"{point.method}, {point.layers} x {point.slices}{held}"


def report(studies: Sequence[Study], pipeline: PipelineMeasurement | None) -> Report:
    """Return the reproduction for JSON, terminal and page."""
    grid, sizes = _point_rows(studies, "grid"), _point_rows(studies, "sizes")
    claims, (groups, pictures) = all_claims(studies, pipeline), timelines(studies)
    gains = [line for study, device in _devices(studies) if (line := _gain_line(study, device))]
    lines = gains if studies else [f"Published figures alone; a result of ours {NEEDS}."]
    summary = "\n".join([*lines, f"{describe_verdicts(claims)}."])
    return Report(
        PAPER,
        claims,
        [
            gains_table(studies),
            submodels_table(grid),
            upgrades_table(studies),
            PAPER.shown_table("sizes", sizes),
            pipeline_table(pipeline),
            PAPER.table("said").shown(),
            derived_table(),
            PAPER.table("lost").shown(),
            PAPER.shown_table("grid", grid),
            devices_table(studies),
        ],
        [memory_figure(grid, sizes)] if grid else [],
        notes(studies),
        more={"summary": summary, "timelines": groups, "models": [_studied(study) for study in studies]},
        pictures=pictures,
        remarks=[summary],
    )


def _gain_line(study: Study, device: StudiedDevice) -> str:
    """Return a line on the gains of planning for a model and a device."""
    in_time, over_all, count, missed = [], [], 0, 0
    for method, compared in comparisons(study, device).items():
        if method in (*GAINS.column("method"), "PreloadModel-32"):
            kept, count, (missed, _) = compared.in_time, len(compared.pairs), compared.missed
            points = f"{POINTS * kept.gain.difference:+.1f}" if kept.pairs else "none"
            in_time.append(f"{points} over {method} ({len(kept.pairs)})")
            over_all.append(f"{POINTS * compared.gain.difference:+.1f}")
    if not in_time:
        return ""
    return (
        f"{study.name}, costs of {device.name}: points where both are in time, and under how many of {count} deadlines, "
        f"{', '.join(in_time)}; late answers included {', '.join(over_all)}; {count - missed} of {count} kept."
    )


def notes(studies: Sequence[Study]) -> list[str]:
    """Return the limits of the numbers of studies, one sentence or paragraph each."""
    if not studies:
        return [f"Published figures alone; a result of ours {NEEDS}."]
    limits = [
        "Accuracy is measured: each plan’s submodel answered every example. It is of small classifiers that were trained here, "
        "which stand for fine-tuned ones (STI-27). Streaming at fewer bits is not exact: `agreement` is the share of the "
        "examples that the whole model in 32 bits answers alike (XP-03).",
        "Deadlines, latencies and stalls are of a device’s costs by our timeline. Costs that are `inferred` are the paper’s "
        "own times of a layer, with shards as large as BERT’s: the classifier that answers is smaller, and stands for one of "
        "that size with as many layers and slices.",
        "Intervals are of 95 %, over examples, of pairs: the same examples under the same deadlines, with both methods. A "
        "difference whose interval contains 0 is `not distinguishable`.",
        "Where nothing meets a deadline, the smallest submodel of the method is run late, and counted as missed.",
        *map(_ranking_note, studies),
    ]
    for study in studies:
        model, when = study.model, dict.fromkeys(f"{run.date[:10]} on {run.machine}" for run in study.runs)
        sizes = f"{model.layers} x {model.heads} shards of width {model.width}, {study.task.examples:,} examples"
        guess = f"guessing gives {100 * study.task.largest_class:.1f} %"
        limits.append(f"{study.name}: {sizes}, {guess}; SHA-256 {model.sha256[:16]}; measured {'; '.join(when)}.")
    return limits


def _ranking_note(study: Study) -> str:
    """Return a note on the examples by which shards were ranked."""
    if study.ranked_on_judged:
        return (
            f"{study.name}: shards were ranked on the very examples that accuracy is measured on. The gains of planning over "
            "methods without an order, and of importance over random orders, look larger than they are."
        )
    importance = study.importance
    note = f"{study.name}: shards were ranked on examples of {importance.task or 'another file'}"
    if importance.shared is None:
        return f"{note}; how many of their texts also judge is not known."
    if not importance.shared:
        return f"{note}, which judge nothing."
    return f"{note}, which judge nothing, but for {importance.shared:,} of {importance.examples:,}, which also judge."


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
    importance_on_task: Annotated[
        bool, typer.Option("--importance-on-task", help="Rank them on --task itself: its order then looks too good.")
    ] = False,
    progress: Any = None,
) -> Report:
    """Return the paper's statements beside studies and a pipeline's measurement, by default the shipped ones.

    With a store that model is studied instead, minutes on one core, and `studies` may name the one file that its study is kept
    in and continued from. Raises `InputError`.
    """
    measured = shipped_pipeline() if pipeline is None else read_pipeline(pipeline)
    if store is None or task is None:
        named: dict[str, object] = {"--store": store, "--task": task, "--importance-task": importance_task}
        named["--importance-on-task"] = importance_on_task
        if useless := next((name for name, value in named.items() if value), ""):
            what = f"{useless} alone studies nothing"
            raise InputError(what, remedy="give --store DIR --task FILE.tsv together")
        return report(read_studies(studies or shipped_measurements("sti", "study"), Study), measured)
    if studies and len(studies) > 1:
        raise InputError("more than one --study beside --store", remedy="give the one file that its study is kept in")
    # Here, since reading a study needs no torch.
    from simnmt.papers.sti.study_run import study_classifier

    study = study_classifier(
        store,
        task,
        importance_task=importance_task,
        importance_on_task=importance_on_task,
        out=studies[0] if studies else None,
        progress=progress,
    )
    return report([study], measured)
