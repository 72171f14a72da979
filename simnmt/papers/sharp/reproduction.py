"""Reproduce the sharp decoder: time it on this box, and set its tables and figure 1 beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.base.errors import InputError
from simnmt.papers.kit.rendering import Report, Row, record
from simnmt.papers.sharp.claims import (
    BASELINE,
    LADDER,
    PAPER,
    RUNGS,
    SYSTEMS,
    all_claims,
    amdahl,
    predicted_over,
    predictions,
    printed_over,
    product_rows,
)
from simnmt.report.page_template import significant
from simnmt.report.table import Table

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import SharpSpeeds


def decoder_row(speeds: SharpSpeeds, decoder: str, first: str) -> dict[str, Any]:
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
            measured = decoder_row(speeds, decoder, BASELINE) | {
                "activations": settings.activations,
                "decoder_factor": speeds.ratio(decoder, BASELINE, search=True),
                "step": speeds.ratio(decoder, before) if place else None,
                "predicted_factor": float(predicted[decoder]),
                "agreement": shares.get(settings.model_copy(update={"candidates": None})),
            }
            rows.append(printed | measured)
    return rows


def system_rows(speeds: SharpSpeeds) -> list[Row]:
    rows: list[Row] = []
    for system in SYSTEMS.column("key"):
        measured: dict[str, Any] = dict.fromkeys(("words_per_s", "multiply_adds", "source_ms", "factor", "predicted_factor"))
        if system in speeds.setting.systems:
            measured |= decoder_row(speeds, system, "S1") | {"predicted_factor": predicted_over(speeds, system, "S1")}
        printed = record(SYSTEMS.row(system), "key name") | SYSTEMS.beside(system)
        rows.append(printed | {"published_factor": printed_over(system, "S1")} | measured)
    return rows


def agreement_rows(agreements: Sequence[RungAgreement]) -> list[Row]:
    keys = "rung=key exact=settings.exact tokens tokens_same_share=share sentences sentences_same distinct_share bleu"
    return [
        record(agreement, keys)
        | {
            "settings": agreement.settings.describe(),
            "so_far": "exact" if agreement.settings.exact else "not exact",
            "same_of": f"{agreement.sentences_same:,} of {agreement.sentences:,}",
        }
        for agreement in agreements
    ]


def report(speeds: SharpSpeeds, agreements: Sequence[RungAgreement] = (), *, quick: bool = False) -> Report:
    activations = [{"method": method, "ns": 1e9 * seconds} for method, seconds in speeds.activations.median().items()]
    products = product_rows(speeds)
    tables: list[Table] = [
        PAPER.shown_table(
            "table-1", ladder_rows(speeds, agreements), source=lambda row: f"source {significant(row['source_ms'], 3)} ms"
        ),
        PAPER.shown_table("amdahl", [amdahl(speeds)]),
        PAPER.shown_table("agreement", agreement_rows(agreements)),
        PAPER.shown_table("table-2", system_rows(speeds)),
        PAPER.table("context").shown(),
        PAPER.shown_table("figure-1", products),
        PAPER.shown_table("activations", activations),
    ]
    clipped = [rung.clipping.warning() for rung in agreements if rung.clipping is not None]
    warnings = list(dict.fromkeys(filter(None, clipped)))
    notes = [f"Compiled kernels: {speeds.level}.", *(f"The trained model: {warning}." for warning in warnings)]
    if quick:
        notes.append("A quick look: fewer rounds, systems and batches, and a smaller vocabulary, more of it in the cache.")
    rounds = int(speeds.sentences[speeds.setting.systems[0]].count())
    return Report(
        PAPER,
        all_claims(speeds, agreements, quick=quick),
        tables,
        [],
        notes,
        values=record(speeds.setting, "beam src_len tgt_len candidates") | {"vocab": speeds.vocab, "rounds": rounds},
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
    `model` without `text`, `text` without `model`, `references` without both, and without compiled kernels.
    """
    if (model is None) != (text is None):
        raise InputError("a trained model and a text go together", remedy="give both --model and --text, or neither")
    if references is not None and text is None:
        raise InputError("--references without a text", remedy="give --model and --text as well")
    # Imported here, so that the published tables need no torch.
    from simnmt.calibrate.sharp_agreement import sharp_agreement
    from simnmt.calibrate.sharp_speeds import QUICK, Setting, sharp_speeds
    from simnmt.kernels.native_library import native

    if native() is None:
        raise InputError("the sharp decoder needs compiled kernels", remedy="install with a C compiler")
    setting = QUICK if quick else Setting()
    if rounds is not None:
        setting = replace(setting, rounds=rounds)
    agreements = []
    if model is not None and text is not None:
        agreements = sharp_agreement(model, text, setting.beam, progress=progress, references=references)
    return report(sharp_speeds(setting, progress), agreements, quick=quick)
