"""`simnmt vocab bench`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simnmt.costs.projection_bench import BreakEven, ProjectionBench, StepTime


def bench(
    vocab: Annotated[
        list[int] | None, typer.Option("--vocab", metavar="V", help="Target tokens; once for each [32000, 128000, 250000].")
    ] = None,
    width: Annotated[
        list[int] | None, typer.Option("--width", metavar="D", help="Of the hidden state; once for each [512, 1024].")
    ] = None,
    rows: Annotated[
        list[int] | None, typer.Option("--rows", metavar="R", help="Sentences x beam; once for each [1, 8, 40].")
    ] = None,
    share: Annotated[
        list[float] | None,
        typer.Option("--share", metavar="PERCENT", help="Of the vocabulary active in a step; once for each [2, 6, 12, 20]."),
    ] = None,
    clusters: Annotated[int | None, typer.Option("--clusters", metavar="R", help="Clusters of contexts [2000].")] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", metavar="N", help="Rounds in which the contestants take turns [5].")
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", metavar="T", help="CPU threads [1].")] = None,
    device: Annotated[str | None, typer.Option("--device", metavar="cpu|cuda", help="Where [cpu].")] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", metavar="TYPE", help="Of the weights: float32, float16, bfloat16 [float32].")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write all figures to this file, as JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Measure the output layer on this box with all columns and with the active ones alone; some three minutes.

    Random weights, and active sets that overlap as those of clusters do. Leave the box alone meanwhile: contestants take turns,
    so their ratios bear some noise, but their times do not.
    """
    from simnmt.kernels.needs import need_torch

    need_torch()
    from simnmt.calibrate.vocabulary.layer_bench import check, vocabulary_bench
    from simnmt.cli.progress import bar
    from simnmt.costs.projection_bench import Setting
    from simnmt.files import written_whole

    lists = {"vocabs": vocab, "widths": width, "rows": rows, "shares": share and [each / 100 for each in share]}
    given: dict[str, Any] = {name: tuple(each) for name, each in lists.items() if each}
    single: dict[str, Any] = {"clusters": clusters, "rounds": rounds, "threads": threads, "device": device, "dtype": dtype}
    setting = Setting(**given, **{name: each for name, each in single.items() if each is not None})
    check(setting)
    with bar() as move:
        done = vocabulary_bench(setting, lambda at, whole, what: move(at, whole, what))
    text = done.model_dump_json(indent=1)
    if out is not None:
        with written_whole(out) as partial:
            partial.write_text(text + "\n", encoding="utf-8")
        print(f"written to {out}", file=sys.stderr)
    print(text if as_json else _told(done))


def _told(done: ProjectionBench) -> str:
    from simnmt.calibrate.box import describe
    from simnmt.calibrate.busy import is_busy
    from simnmt.cli.tables import aligned

    lines = [f"{done.box}, {done.date}: {done.setting.clusters:,} clusters, weights in {done.setting.dtype}, found in memory"]
    header = ["V", "width", "rows", "active %", "way", "assign", "union", "row_wise", "gather", "kept", "scatter", "search"]
    lines += ["", "Stages in us, each by itself:"]
    lines += [aligned(header, [_stages(step) for step in done.steps], 0)]
    header = ["V", "width", "rows", "active %", "dense us", "columns us", "predicted", "times as fast", "kept", "scattered"]
    lines += [
        "",
        "Whole steps; `columns`: straight into the search, `scattered`: as published, `kept`: from a copy found again:",
    ]
    lines += [aligned(header, [_whole(step) for step in done.steps], 0)]
    lines += [
        "",
        "Above which share of V all columns win; `own`: by whichever product is the faster one for all, torch's or ours:",
    ]
    lines += [aligned(["V", "width", "rows", "columns", "scattered", "own"], [_even(each) for each in done.break_even], 0)]
    lines += ["", *_judged(done)]
    if done.others_cpus is not None and is_busy(done.others_cpus, describe(libraries=False)):
        lines += [f"The box was not alone: others used {done.others_cpus:.1f} CPUs before or after."]
    return "\n".join(lines)


def _judged(done: ProjectionBench) -> Iterator[str]:
    from simnmt.costs.projection_bench import FIT_WITHIN

    error, most, knowing = done.heldout_error, done.most_heldout_error, done.heldout_error_knowing
    if error is not None and most is not None and knowing is not None:
        asked = f"{'within' if error <= FIT_WITHIN else 'beyond'} the {100 * FIT_WITHIN:.0f} % that are asked"
        yield (
            f"Predicted from their sizes alone, {len(done.heldout)} steps that were not fitted (*) are off by "
            f"{100 * error:.1f} % on average, {asked}, and {100 * most:.1f} % at most; told the way of multiplying and the "
            f"indices in the sets, by {100 * knowing:.1f} % on average."
        )
    for bar in done.bars:
        yield (
            f"V {bar.step.vocab:,} x {bar.step.width:,}, one row, {100 * bar.share:.0f} % active: {bar.measured:.1f} times as "
            f"fast as dense; {bar.asked:g} times are asked: {'reached' if bar.reached else 'missed'}."
        )


def _size(step: StepTime) -> list[str]:
    star = "" if step.fitted else "*"
    return [f"{step.vocab:,}", f"{step.width:,}", str(step.rows), f"{100 * step.share:.1f}{star}"]


def _stages(step: StepTime) -> list[str]:
    names = ("assign", "union", "row_wise", "gather", "kept", "scatter", "search")
    return [*_size(step), step.way, *(f"{1e6 * step.stages_s[name]:,.0f}" for name in names)]


def _whole(step: StepTime) -> list[str]:
    predicted = "" if step.predicted_s is None else f"{1e6 * step.predicted_s:,.0f}"
    ratios = [f"{step.ratios[name]:.2f}" for name in ("columns", "kept", "scattered")]
    return [*_size(step), f"{1e6 * step.dense_s:,.0f}", f"{1e6 * step.columns_s:,.0f}", predicted, *ratios]


def _even(each: BreakEven) -> list[str]:
    shares = ["never" if share is None else f"{100 * share:.0f} %" for share in (each.columns, each.scattered, each.own)]
    return [f"{each.vocab:,}", f"{each.width:,}", str(each.rows), *shares]
