"""Reproduce the sharp decoder: time it on this box, and set its tables and figure 1 beside the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simnmt.base.errors import InputError
from simnmt.papers.kit.claims import quartiles
from simnmt.papers.kit.figures import Figure, Row, Rows, curve, figure_of, line_chart
from simnmt.papers.kit.rendering import Report, derived_table, record
from simnmt.papers.sharp.claims import (
    LADDER,
    PAPER,
    RUNGS,
    SYSTEMS,
    all_claims,
    derived,
    predicted_int16,
    predicted_ladder,
    predicted_over,
    printed_factor,
    printed_over,
    printed_step,
    product_gain,
    product_share,
)
from simnmt.report.table import Table, TableCell
from simnmt.report.typography import DASH, significant, typeset_interval

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import SharpSpeeds

Progress = Callable[[int, int, str], None]
STAGES = ("prepare", "body", "product", "search")


def ladder_rows(speeds: SharpSpeeds, agreements: Sequence[RungAgreement]) -> list[Row]:
    """Return the rows of Table 1: from the fifth rung on a rung has two, with table and with polynomial activations."""
    shares = {agreement.settings: agreement.share for agreement in agreements}
    rows: list[Row] = []
    for place, (activations, times) in product(range(len(RUNGS)), speeds.ladder.items()):
        rung, time = RUNGS[place], times[place]
        if time.settings.activations == "library" and activations != "table":
            continue
        exact, exact_settings = LADDER[rung, "exact"], time.settings.model_copy(update={"candidates": None})
        low, step, high = quartiles(time.ratios(times[place - 1])) if place else (None, None, None)
        rows.append(
            {
                **record(LADDER.row(rung), "rung=key name"),
                **LADDER.beside(rung),
                "published_factor": printed_factor(rung),
                "published_step": printed_step(rung),
                **record(time, "activations=settings.activations words_per_s ms_per_word=word_s*1e3 multiply_adds"),
                "distinct_share": time.distinct_share,
                "settings": time.settings.describe(),
                "factor": time.over(times[0]),
                "decoder_factor": time.decoder_over(times[0]),
                "source_ms": 1e3 * statistics.median(time.source_s),
                "step": step,
                "step_low": low,
                "step_high": high,
                "predicted_factor": predicted_ladder(speeds, times)[place],
                "exact": exact_settings.exact,
                "adds_noise": not exact,
                # The noise of earlier rungs stays, whether or not a rung is exact.
                "translations": "adds noise" if not exact else "exact over the rung before" if place else "exact",
                "agreement": shares.get(exact_settings),
            }
        )
    return rows


def _step_cell(row: Row) -> TableCell:
    if row["step"] is None:
        return TableCell(DASH)
    return TableCell(*typeset_interval(row["step"], row["step_low"], row["step_high"], signs="minus", most=3))


def system_rows(speeds: SharpSpeeds) -> list[Row]:
    """Return the rows of Table 2, the paper's own systems."""
    measured = {time.key: time for time in speeds.systems}
    first = measured.get("S1")
    rows: list[Row] = []
    for printed in SYSTEMS.rows:
        time = measured.get(printed["key"])
        factors = (None, None) if time is None or first is None else (time.over(first), predicted_over(time, first))
        rows.append(
            record(printed, "key name")
            | SYSTEMS.beside(printed["key"])
            | record({"time": time}, "words_per_s=time.words_per_s multiply_adds=time.multiply_adds")
            | {
                "published_factor": printed_over(printed["key"], "S1"),
                "source_ms": None if time is None else 1e3 * statistics.median(time.source_s),
                "factor": factors[0],
                "predicted_factor": factors[1],
                "exact": None if time is None else time.settings.model_copy(update={"candidates": None}).exact,
            }
        )
    return rows


def stage_rows(speeds: SharpSpeeds) -> list[Row]:
    """Return where a word's time goes; a decoder that ran without compiled kernels has no stage times and no row."""
    rungs = speeds.ladder["polynomial"]
    return [
        {"of": time.key, "rung": time in rungs, "settings": time.settings.describe()}
        | {"source_ms": 1e3 * statistics.median(time.source_s) / time.words}
        | {f"{stage}_ms": 1e3 * getattr(time.stage_s, f"{stage}_s") / time.words for stage in STAGES}
        for time in (*rungs, *speeds.systems)
        if time.stage_s is not None
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
    baseline, int16, *_ = speeds.ladder["polynomial"]
    amdahl: dict[str, float | None] = {"share": product_share(speeds), "product_gain": product_gain(speeds)}
    amdahl |= {"predicted": predicted_int16(speeds), "measured": int16.over(baseline)}
    keys = "rung=key exact=settings.exact tokens tokens_same_share=share sentences sentences_same distinct_share bleu"
    kept = [record(agreement, keys) | {"settings": agreement.settings.describe()} for agreement in agreements]
    products = [
        record(item, "batch cold library=best_library")
        | {f"{name}_us": 1e6 * item.median_s(name) for name in item.seconds}
        | {"over_library": item.ratio("library"), "over_packed": item.ratio("float32")}
        for item in speeds.products
    ]
    activations = [{"way": method, "ns": 1e9 * seconds} for method, seconds in speeds.activation_s.items()]
    return [
        PAPER.shown_table(
            "table-1",
            ladder_rows(speeds, agreements),
            cells={"step": _step_cell},
            source=lambda row: f"source {significant(row['source_ms'], 3)} ms",
        ),
        PAPER.shown_table("amdahl", [amdahl], rung=lambda _: LADDER["int16", "name"]),
        PAPER.shown_table(
            "agreement",
            kept,
            so_far=lambda row: "exact" if row["exact"] else "not exact",
            same_of=lambda row: f"{row['sentences_same']:,} of {row['sentences']:,}",
        ),
        PAPER.shown_table("stages", stage_rows(speeds)),
        PAPER.shown_table("table-2", system_rows(speeds)),
        PAPER.table("context").shown(),
        PAPER.shown_table("figure-1", products, weights=lambda row: "from memory" if row["cold"] else "in the cache"),
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
        | {"vocab": speeds.vocab, "rounds": len(speeds.systems[0].sentence_s)},
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
    progress: Progress | None = None,
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
