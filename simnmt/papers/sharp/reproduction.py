"""Reproduce the sharp decoder: time it on this box, and set its tables and figure 1 beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.base.errors import InputError
from simnmt.papers.kit.claims import quartiles
from simnmt.papers.kit.figures import Figure, Row, Rows, curve, figure_of, line_chart
from simnmt.papers.kit.rendering import Report, derived_table, record
from simnmt.papers.sharp.claims import (
    BASELINE,
    INT16,
    LADDER,
    PAPER,
    RUNGS,
    SYSTEMS,
    all_claims,
    amdahl,
    derived,
    predicted_over,
    predictions,
    printed_over,
    product_rows,
)
from simnmt.report.table import Table, TableCell
from simnmt.report.typography import DASH, significant, typeset_interval

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import SharpSpeeds

STAGES = ("prepare", "body", "product", "search")


def decoder_row(speeds: SharpSpeeds, decoder: str, first: str) -> dict[str, Any]:
    """Return the figures of one decoder, with its speed over that of the first."""
    return {
        "words_per_s": 1.0 / speeds.word_s(decoder),
        "multiply_adds": float(speeds.counts["multiply_adds"][decoder]),
        "source_ms": 1e3 * float(speeds.sources[decoder].median()),
        "factor": speeds.ratio(decoder, first),
    }


def ladder_rows(speeds: SharpSpeeds, agreements: Sequence[RungAgreement]) -> list[Row]:
    """Return the rows of Table 1: from the fifth rung on a rung has two, with table and with polynomial activations."""
    shares = {agreement.settings: agreement.share for agreement in agreements}
    ladders, predicted = (speeds.ladder("table"), speeds.ladder("polynomial")), predictions(speeds)["factor"]
    rows: list[Row] = []
    for place, rung in enumerate(RUNGS):
        printed = record(LADDER.row(rung), "rung=key name") | LADDER.beside(rung)
        printed["published_factor"] = printed_over(rung, BASELINE, LADDER)
        printed["published_step"] = printed_over(rung, RUNGS[place - 1], LADDER) if place else None
        # The noise of earlier rungs stays, whether or not a rung is exact.
        exact = "exact over the rung before" if place else "exact"
        printed["translations"] = exact if LADDER[rung, "exact"] else "adds noise"
        for decoder, before in {ladder[place]: ladder[place - 1] for ladder in ladders}.items():
            settings = speeds.counts["settings"][decoder]
            exact_settings = settings.model_copy(update={"candidates": None})
            low, step, high = quartiles(speeds.ratios(decoder, before)) if place else (None, None, None)
            measured = decoder_row(speeds, decoder, BASELINE) | {
                "activations": settings.activations,
                "ms_per_word": 1e3 * speeds.word_s(decoder),
                "distinct_share": float(speeds.counts["distinct_share"][decoder]),
                "decoder_factor": speeds.ratio(decoder, BASELINE, search=True),
                "step": step,
                "step_low": low,
                "step_high": high,
                "predicted_factor": float(predicted[decoder]),
                "settings": settings.describe(),
                "exact": exact_settings.exact,
                "agreement": shares.get(exact_settings),
            }
            rows.append(printed | measured)
    return rows


def _step_cell(row: Row) -> TableCell:
    if row["step"] is None:
        return TableCell(DASH)
    return TableCell(*typeset_interval(row["step"], row["step_low"], row["step_high"], signs="minus", most=3))


def system_rows(speeds: SharpSpeeds) -> list[Row]:
    """Return the rows of Table 2, the paper's own systems."""
    rows: list[Row] = []
    for system in SYSTEMS.column("key"):
        measured: dict[str, Any] = dict.fromkeys(("words_per_s", "multiply_adds", "source_ms", "factor", "predicted_factor"))
        if system in speeds.setting.systems:
            measured |= decoder_row(speeds, system, "S1") | {"predicted_factor": predicted_over(speeds, system, "S1")}
        printed = record(SYSTEMS.row(system), "key name") | SYSTEMS.beside(system)
        rows.append(printed | {"published_factor": printed_over(system, "S1")} | measured)
    return rows


def stage_rows(speeds: SharpSpeeds) -> list[Row]:
    """Return where a word's time goes, in milliseconds; without compiled kernels no stage was timed, and there is no row."""
    decoders = [*speeds.ladder("polynomial"), *speeds.setting.systems] if speeds.level else []
    seconds = speeds.counts.assign(source_s=speeds.sources.median())
    return [
        {"of": decoder, "settings": seconds["settings"][decoder].describe()}
        | {f"{stage}_ms": 1e3 * float(seconds[f"{stage}_s"][decoder]) / speeds.setting.tgt_len for stage in ("source", *STAGES)}
        for decoder in decoders
    ]


def product_figure(rows: Rows) -> Figure:
    """Return figure 1."""
    heads = {"int16_us": "16 bits", "float32_us": "float32, packed", "torch_us": "torch", "numpy_us": "numpy"}
    charts = {}
    for name, cold in (("weights in the cache", False), ("weights from memory", True)):
        shown = [row for row in rows if row["cold"] == cold]
        ratios = ", ".join(f"{row['over_library']:.2f} at {row['batch']}" for row in shown)
        reading = f"16 bits over the faster library: {ratios}. Published: 2 to 3 at 2 to 8."
        curves = [curve(head, shown, "batch", itemgetter(key)) for key, head in heads.items()]
        charts[name] = line_chart("batch", "microseconds", reading, curves)
    title = "Figure 1: 16-bit and 32-bit products by batch"
    note = "Weights of 1024 by 1024, one thread. The paper's curve is not in its text."
    return figure_of("figure-1-drawn", title, "Time of one product by batch", charts, note=note)


def all_tables(speeds: SharpSpeeds, agreements: Sequence[RungAgreement]) -> list[Table]:
    """Return every table, in the order of the page."""
    keys = "rung=key exact=settings.exact tokens tokens_same_share=share sentences sentences_same distinct_share bleu"
    kept = [record(agreement, keys) | {"settings": agreement.settings.describe()} for agreement in agreements]
    activations = [{"way": method, "ns": 1e9 * seconds} for method, seconds in speeds.activations.median().items()]
    return [
        PAPER.shown_table(
            "table-1",
            ladder_rows(speeds, agreements),
            cells={"step": _step_cell},
            source=lambda row: f"source {significant(row['source_ms'], 3)} ms",
        ),
        PAPER.shown_table("amdahl", [amdahl(speeds)], rung=lambda _: LADDER[INT16, "name"]),
        PAPER.shown_table(
            "agreement",
            kept,
            so_far=lambda row: "exact" if row["exact"] else "not exact",
            same_of=lambda row: f"{row['sentences_same']:,} of {row['sentences']:,}",
        ),
        PAPER.shown_table("stages", stage_rows(speeds)),
        PAPER.shown_table("table-2", system_rows(speeds)),
        PAPER.table("context").shown(),
        PAPER.shown_table(
            "figure-1", product_rows(speeds), weights=lambda row: "from memory" if row["cold"] else "in the cache"
        ),
        PAPER.shown_table("activations", activations),
        derived_table(derived()),
    ]


def report(speeds: SharpSpeeds, agreements: Sequence[RungAgreement] = (), *, quick: bool = False) -> Report:
    """Return the reproduction for JSON, terminal and page."""
    tables = all_tables(speeds, agreements)
    messages = [rung.clipping.warning() for rung in agreements if rung.clipping is not None]
    warnings = list(dict.fromkeys(filter(None, messages)))
    without = "No compiled kernels: the fallback in numpy ran, whose times are no test of the paper's techniques."
    notes = [f"Compiled kernels: {speeds.level}." if speeds.level else without]
    notes += [f"The trained model: {warning}." for warning in warnings]
    if quick:
        notes.append(
            "A quick look: fewer rounds, some of the systems and of figure 1's batches, and a smaller vocabulary, whose "
            "embeddings are in the cache more often."
        )
    return Report(
        PAPER,
        all_claims(speeds, agreements, quick=quick),
        tables,
        [product_figure(table.rows) for table in tables if table.id == "figure-1"],
        notes,
        values=record(speeds.setting, "beam src_len tgt_len candidates")
        | {"vocab": speeds.vocab, "rounds": int(speeds.sentences[speeds.setting.systems[0]].count())},
        more={"level": speeds.level},
        warnings=warnings,
    )


def reproduce(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Half a minute: fewer rounds and systems, fewer words; no verdicts.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(metavar="N", help="Interleaved rounds, of which medians are taken.", min=1)
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="A trained attentional model: what does each rung change?")
    ] = None,
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Sentences for it, one a line; the first 200 count.")
    ] = None,
    references: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A translation of each of its lines: what BLEU changes.")
    ] = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Report:
    """Time the ladder, the stacks and the ensembles of the paper on one thread of this box.

    `progress` is called before each step with the steps done, all steps and the name of the next one. Raises `InputError` for
    `model` without `text`, `text` without `model`, and `references` without both.
    """
    if (model is None) != (text is None):
        raise InputError("a trained model and a text go together", remedy="give both --model and --text, or neither")
    if references is not None and text is None:
        raise InputError("--references without a text", remedy="give --model and --text as well")
    # Imported here, so that the published tables need no torch.
    from simnmt.calibrate.sharp_agreement import sharp_agreement
    from simnmt.calibrate.sharp_speeds import QUICK, Setting, sharp_speeds

    setting = QUICK if quick else Setting()
    if rounds is not None:
        setting = replace(setting, rounds=rounds)
    agreements = []
    if model is not None and text is not None:
        agreements = sharp_agreement(model, text, setting.beam, progress=progress, references=references)
    return report(sharp_speeds(setting, progress), agreements, quick=quick)
