"""Vocabulary projection reproduced (`simnmt reproduce vocab`): printed tables with ours beside them, and figures 2 and 3.

Every row on translations states how many sentences stay the same, or that the paper does not print it (XP-03).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from simnmt.base.errors import InputError
from simnmt.calibrate.projection_bench import ProjectionBench, read_bench
from simnmt.papers.fvp.published import PAPER, PROJECTION, QUALITY, derived, means, memory, printed_claims
from simnmt.papers.fvp.study import Part, Study
from simnmt.papers.fvp.study_claims import NEEDS, bench_claims, name_of, study_claims
from simnmt.papers.kit.rendering import Report, Rows, derived_table, record
from simnmt.papers.kit.study import describe_runs, read_distinct, read_studies, shipped_measurements
from simnmt.report.table import Table

Say = Callable[[str], None]
"""Receives a line of progress before each step."""
OUR_TABLE_2 = "us=layer_us active_percent=share_mean*100 ratio=layer_ratio implied_share=layer_share"


def judge(studies: Sequence[Study] = (), benches: Sequence[ProjectionBench] = ()) -> Report:
    """Judge the claims by every study and by the benches; without studies, by the printed figures alone."""

    def rows_of(part: Part) -> list[dict[str, Any]]:
        return [vars(row) for study in studies for row in study.rows(part)]

    chosen, speeds, languages = rows_of("chosen"), rows_of("speeds"), rows_of("by_language")
    quality = {number: [vars(cell) for cell in QUALITY if cell.set == number] for number in (1, 2)}
    projection = [vars(row) for rows, _ in PROJECTION.values() for row in rows]
    table_6 = [dict(row) | {"difference": row["clustered"] - row["baseline"]} for row in PAPER.table("table-6").rows]
    tables = [
        PAPER.table("table-1").shown(),
        _table("real", chosen),
        _table("table-2", [*projection, *(row | record(row, OUR_TABLE_2) for row in chosen)]),
        replace(_table("quality", [*quality[1], *chosen]), id="table-3", title="Table 3: BLEU and speed, set 1"),
        replace(_table("quality", quality[2]), id="table-4", title="Table 4: BLEU and speed, set 2"),
        _table("averages", [vars(row) for row in means()]),
        _table("table-5", [vars(row) for row in memory()]),
        _table("table-6", table_6),
        _table("amdahl", chosen),
        replace(_table("cells", languages), id="figure-2", title="Figure 2: knowledge of languages"),
        replace(_table("cells", rows_of("sweep")), id="sweep"),
        replace(_table("cells", rows_of("volume")), id="volume", title="Training text"),
        _table("figure-3", speeds),
        _table("bench", [row for bench in benches for row in _steps(bench)]),
        derived_table(derived()),
    ]
    notes = [*map(describe_study, studies)] or [f"Published figures alone: what is ours {NEEDS}."]
    for study in studies:
        notes += [f"{study.name}, {run.part} of {', '.join(run.labels)}: {note}" for run in study.runs for note in run.notes]
    return Report(PAPER, [*study_claims(studies), *bench_claims(benches), *printed_claims()], tables, [], notes)


def reproduce(
    *,
    studies: Annotated[
        list[Path] | None,
        typer.Option("--study", metavar="FILE", help="Use this, not the shipped ones; with --model: keep its study here."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A trained model to study: an hour or more, less with short texts.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=TRAIN,HELDOUT[,REFERENCES]",
            help="Texts of a direction: sources to make clusters of, others to judge by, and their translations; repeatable.",
        ),
    ] = None,
    benches: Annotated[
        list[Path] | None,
        typer.Option("--bench", metavar="FILE", help="Result of `simnmt vocab bench --out`, not the shipped ones; repeatable."),
    ] = None,
    say: Say = lambda _: None,
) -> Report:
    """Return the paper's statements beside studies and benches, by default the shipped ones.

    With a model and its texts, that model is studied instead; the first file of `studies` then keeps the study, and what that
    holds is not measured again. Raises `InputError` for a model without texts, and for texts without a model.
    """
    bench_files = shipped_measurements("vocabulary", "bench") if benches is None else benches
    layers = read_distinct(bench_files, read_bench, name_of, "measurements")
    if bool(model) != bool(text):
        raise InputError("--model and --text need each other", remedy="give --model FOLDER --text LABEL=TRAIN,HELDOUT")
    if model is None or text is None:
        return judge(read_studies(shipped_measurements("vocabulary", "study") if studies is None else studies, Study), layers)
    # Here, since reading alone needs no torch.
    from simnmt.papers.fvp.measure import directions_of, run_study

    return judge([run_study(model, directions_of(text), out=studies[0] if studies else None, say=say)], layers)


def _table(name: str, rows: Rows) -> Table:
    """Return a table of ours with what it shows of these rows."""
    shown = PAPER.shown[name]
    keys = {"agreement"} | ({"kind"} if shown.published == "kind" else set())
    for column in shown.columns:
        assert isinstance(column, dict)
        keys |= {column["value"], *column.get("interval", ()), *([column["small"]] if "small" in column else [])}
    keys &= {key for row in rows for key in row}
    return PAPER.shown_table(name, [{key: row.get(key) for key in sorted(keys)} for row in rows])


def _steps(bench: ProjectionBench) -> Rows:
    keys = "vocab width rows share overhead_share dense_us=dense_s*1e6 columns_us=columns_s*1e6 ratio "
    names = {"kind": bench.kind, "box": name_of(bench)}
    return [
        record(step, f"{keys} ratio_scattered=scattered_ratio") | names | {"off": None if step.fitted else step.error}
        for step in bench.steps
    ]


def describe_study(study: Study) -> str:
    model, texts = study.model, ", ".join(f"{text.name} of {text.lines:,} lines" for text in study.texts)
    return (
        f"{study.name}: {model.kind}, V {model.vocab:,}, width {model.width:,}, {model.parameters / 1e6:,.1f} million "
        f"parameters; SHA-256 {model.sha256[:16]}; texts: {texts}; measured {describe_runs(study.runs)}."
    )
