"""The reproduction of elastic pipelines: tables and figures of studies of trained classifiers and of a measured pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from simnmt.base.errors import InputError
from simnmt.papers.kit.rendering import Report, Row, Rows, derived_table
from simnmt.papers.kit.study import describe_runs, read_studies, shipped_measurements
from simnmt.papers.sti.claims import (
    NEEDS,
    PipelineMeasurement,
    all_claims,
    gain,
    in_points,
    in_time,
    paired,
    ratio,
)
from simnmt.papers.sti.plans import DEVICES, METHODS, Studied
from simnmt.papers.sti.printed import BASELINES, DERIVED, GAINS, PAPER
from simnmt.papers.sti.study import Study
from simnmt.report.table import Table


def _gain_columns(pairs: pd.DataFrame, suffix: str = "") -> Row:
    values: tuple[Any, ...] = (None,) * 5
    if len(pairs):
        means = pairs["accuracy"].mean(), pairs["accuracy_other"].mean()
        values = (*in_points(gain(pairs["right"], pairs["right_other"])), *means)
    names = ("gain", "low", "high", "accuracy", "accuracy_other", "deadlines")
    return dict(zip([f"{name}{suffix}" for name in names], (*values, len(pairs)), strict=True))


def gains_table(studies: Sequence[Studied]) -> Table:
    """Return the points that STI gains over each other method, beside the printed ones of the same board."""
    rows: list[Row] = []
    for studied, device, method in product(studies, DEVICES, METHODS[1:]):
        pairs = paired(studied.grid[studied.grid["device"] == device.name], method)
        is_printed = method in BASELINES and device.times == device.buffer
        rows.append(
            {"study": studied.study.name, "device": device.name, "method": method, "kind": "inferred"}
            | {**_gain_columns(in_time(pairs), "_in_time"), **_gain_columns(pairs)}
            | {"missed": int(pairs["misses"].sum()), "missed_other": int(pairs["misses_other"].sum())}
            | {"shards_ratio": ratio(pairs, "shards"), "printed": GAINS[method, device.times] if is_printed else None}
        )
    return PAPER.shown_table("gains", rows)


def point_rows(frames: Sequence[pd.DataFrame]) -> Rows:
    """Return the rows of a part of all studies, without the answers."""
    shown = [frame.drop(columns=["right", "shards"]).astype(object) for frame in frames]
    rows: Any = pd.concat(shown).to_dict("records") if shown else []
    return [{key: None if value != value else value for key, value in row.items()} for row in rows]


def describe_study(study: Study) -> str:
    model, ranked = study.model, study.importance
    ranking = f"on {ranked.examples:,} examples of {ranked.task}, of which {ranked.shared:,} also judge"
    if study.ranked_on_judged:
        ranking = "on the very examples that judge, so that planning and importance look better than they are"
    return (
        f"{study.name}: {model.layers} x {model.heads} shards of width {model.width}, {study.task.examples:,} examples, "
        f"guessing gives {100 * study.task.largest_class:.1f} %; shards were ranked {ranking}; SHA-256 {model.sha256[:16]}; "
        f"measured {describe_runs(study.runs)}."
    )


def report(studies: Sequence[Studied], pipeline: PipelineMeasurement) -> Report:
    return Report(
        PAPER,
        all_claims(studies, pipeline),
        [
            gains_table(studies),
            PAPER.shown_table("sizes", point_rows([studied.sizes for studied in studies])),
            derived_table(DERIVED),
            PAPER.table("lost").shown(),
            PAPER.shown_table("grid", point_rows([studied.grid for studied in studies])),
        ],
        [],
        [describe_study(studied.study) for studied in studies] or [f"Published figures alone; a result of ours {NEEDS}."],
    )


def reproduce(
    *,
    studies: Annotated[
        list[Path] | None,
        typer.Option("--study", metavar="FILE", help="Use this, not the shipped ones; with --store: keep its study here."),
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
    """Return the paper's statements beside studies, by default the shipped ones, and the recorded measurement of a pipeline.

    With a store that model is studied instead, minutes on one core, and `studies` may name the one file that its study is kept
    in and continued from. Raises `InputError`.
    """
    measured = PipelineMeasurement.model_validate_json(shipped_measurements("sti", "pipeline")[0].read_bytes())
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
