"""`simnmt vocab`: build and inspect vocabulary bundles, and measure the output layer with them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simnmt.calibrate.projection_bench import BreakEven, ProjectionBench, StepTime


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
    from simnmt.kernels.errors import need_torch

    need_torch()
    from simnmt.base.files import written_whole
    from simnmt.calibrate.projection_bench import Setting
    from simnmt.calibrate.vocabulary_bench import check, vocabulary_bench
    from simnmt.cli.progress import bar

    lists = {"vocabs": vocab, "widths": width, "rows": rows, "shares": share and [percent / 100 for percent in share]}
    given: dict[str, Any] = {name: tuple(values) for name, values in lists.items() if values}
    single: dict[str, Any] = {"clusters": clusters, "rounds": rounds, "threads": threads, "device": device, "dtype": dtype}
    setting = Setting(**given, **{name: value for name, value in single.items() if value is not None})
    check(setting)
    with bar() as move:
        done = vocabulary_bench(setting, lambda at, whole, what: move(at, whole, what))
    text = done.model_dump_json(indent=1)
    if out is not None:
        with written_whole(out) as partial:
            partial.write_text(text + "\n", encoding="utf-8")
        print(f"written to {out}", file=sys.stderr)
    print(text if as_json else _format_bench(done))


def _format_bench(done: ProjectionBench) -> str:
    from simnmt.base.text_tables import format_table
    from simnmt.calibrate.box import describe
    from simnmt.calibrate.processor_use import is_busy

    lines = [f"{done.box}, {done.date}: {done.setting.clusters:,} clusters, weights in {done.setting.dtype}, found in memory"]
    header = ["V", "width", "rows", "active %", "way", "assign", "union", "row_wise", "gather", "kept", "scatter", "search"]
    lines += ["", "Stages in us, each by itself:"]
    lines += [format_table(header, [_stage_row(step) for step in done.steps], 0)]
    header = ["V", "width", "rows", "active %", "dense us", "columns us", "predicted", "times as fast", "kept", "scattered"]
    lines += [
        "",
        "Whole steps; `columns`: straight into the search, `scattered`: as published, `kept`: from a copy found again:",
    ]
    lines += [format_table(header, [_step_row(step) for step in done.steps], 0)]
    lines += [
        "",
        "Above which share of V all columns win; `own`: by whichever product is the faster one for all, torch's or ours:",
    ]
    lines += [
        format_table(
            ["V", "width", "rows", "columns", "scattered", "own"],
            [_break_even_row(break_even) for break_even in done.break_even],
            0,
        )
    ]
    lines += ["", *_bench_verdicts(done)]
    if done.others_cpus is not None and is_busy(done.others_cpus, describe(libraries=False)):
        lines += [f"The box was not alone: others used {done.others_cpus:.1f} CPUs before or after."]
    return "\n".join(lines)


def _bench_verdicts(done: ProjectionBench) -> Iterator[str]:
    from simnmt.calibrate.projection_bench import FIT_WITHIN

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


def _size_cells(step: StepTime) -> list[str]:
    star = "" if step.fitted else "*"
    return [f"{step.vocab:,}", f"{step.width:,}", str(step.rows), f"{100 * step.share:.1f}{star}"]


def _stage_row(step: StepTime) -> list[str]:
    names = ("assign", "union", "row_wise", "gather", "kept", "scatter", "search")
    return [*_size_cells(step), step.method, *(f"{1e6 * step.stages_s[name]:,.0f}" for name in names)]


def _step_row(step: StepTime) -> list[str]:
    predicted = "" if step.predicted_s is None else f"{1e6 * step.predicted_s:,.0f}"
    ratios = [f"{step.ratios[name]:.2f}" for name in ("columns", "kept", "scattered")]
    return [*_size_cells(step), f"{1e6 * step.dense_s:,.0f}", f"{1e6 * step.columns_s:,.0f}", predicted, *ratios]


def _break_even_row(break_even: BreakEven) -> list[str]:
    shares = [
        "never" if share is None else f"{100 * share:.0f} %"
        for share in (break_even.columns, break_even.scattered, break_even.fastest)
    ]
    return [f"{break_even.vocab:,}", f"{break_even.width:,}", str(break_even.rows), *shares]


app = typer.Typer(help="A part of the vocabulary instead of all of it: clusters of contexts, or lists of candidate words.")
app.command("bench")(bench)


@app.command()
def build(
    model: Annotated[Path, typer.Option("--model", metavar="DIR", help="Folder that simnmt nmt train wrote.")],
    text: Annotated[
        list[str],
        typer.Option(
            "--text", metavar="[LABEL=]FILE", help="Source text, a sentence a line, plain or gzip; once for each direction."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Bundle to write.")],
    clusters: Annotated[int | None, typer.Option("--clusters", metavar="R", help="Clusters of each direction [100].")] = None,
    top: Annotated[
        int | None, typer.Option("--top", metavar="K", help="Likeliest tokens of each context that are active [5].")
    ] = None,
    pool: Annotated[
        str | None, typer.Option("--pool", metavar="LABEL", help="One set of clusters of that label, for all texts together.")
    ] = None,
    sentences: Annotated[
        int | None,
        typer.Option("--sentences", metavar="N", min=1, help="Lines taken of each text, evenly spread [30000; lists: all]."),
    ] = None,
    targets: Annotated[
        Path | None,
        typer.Option("--targets", metavar="FILE", help="Build candidate lists instead: line i translates line i of --text."),
    ] = None,
    candidates: Annotated[
        int | None, typer.Option("--candidates", metavar="N", help="Target words listed for each source word [20].")
    ] = None,
    align: Annotated[
        str | None, typer.Option("--align", metavar="ibm1|attention", help="What the lists are learnt by [ibm1].")
    ] = None,
    always: Annotated[
        int | None, typer.Option("--always", metavar="N", help="Most frequent target words that every list holds [0].")
    ] = None,
    beam: Annotated[
        int | None, typer.Option("--beam", metavar="B", min=1, help="Beam that contexts are collected with [1].")
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", metavar="N", min=1, help="Most sentences decoded together [128].")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", metavar="sklearn|faiss", help="What clusters [faiss where it is installed]."),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option("--iterations", metavar="N", help="Of k-means [20], or of ibm1 [5].")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="S", min=0, max=2**31 - 1, help="Same seed, same clusters [1].")
    ] = None,
    device: Annotated[str, typer.Option("--device", metavar="cpu|cuda", help="Where the model runs.")] = "cpu",
    threads: Annotated[int | None, typer.Option("--threads", metavar="T", min=1, help="CPU threads [torch's own].")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was built as JSON and nothing else.")] = False,
) -> None:
    """Learn from text which output columns a trained model needs; clusters need no translations, lists do."""
    from simnmt.base.files import refuse_replacing
    from simnmt.nmt.errors import need_packages

    need_packages()
    from simnmt.cli.progress import stages
    from simnmt.cli.vocab_bundles import build_cluster_bundle, build_list_bundle, texts_by_label
    from simnmt.nmt.errors import NmtError
    from simnmt.nmt.translation import Translator

    texts = texts_by_label(text)
    refuse_replacing(out, targets, *texts.values())
    if not out.absolute().parent.is_dir():  # learning may take long
        raise NmtError("no such folder", path=out.parent, remedy="make it first")
    if not os.access(out.absolute().parent, os.W_OK):
        raise NmtError("nothing may be written there", path=out.parent, remedy="choose another folder")
    if pool is not None and not pool.strip():
        raise typer.BadParameter("no label: name what all texts have in common, as in to-en", param_hint="--pool")
    lists = {"--targets": targets, "--candidates": candidates, "--align": align, "--always": always}
    decoding = {"beam": beam, "batch": batch, "seed": seed}
    shape = {"clusters": clusters, "top": top, "pool": pool, "method": method, **decoding}
    sets = {f"--{name}": value for name, value in shape.items()}
    if targets is None:
        _refuse_options(lists, "it belongs to candidate lists: name their --targets")
    else:
        _refuse_options(sets, "it belongs to clusters: leave out --targets")
        if len(texts) > 1:
            raise typer.BadParameter("lists are learnt from one text and its translation", param_hint="--text")
        if [str(path) for path in texts.values()] != [str(Path(argument)) for argument in text]:
            raise typer.BadParameter("lists have no label: name the file alone", param_hint="--text")
    translator = Translator.load(model, device=device, threads=threads)
    with stages() as progress:
        if targets is None:
            description = build_cluster_bundle(
                translator, texts, out, sentences, progress, name=model.name, iterations=iterations, **shape
            )
        else:
            source = next(iter(texts.values()))
            asked = {"count": candidates, "align": align, "always": always, "iterations": iterations}
            description = build_list_bundle(translator, source, targets, out, sentences, progress, name=model.name, **asked)
    print(_format_description(description, as_json))


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Bundle that simnmt vocab build wrote.")],
    model: Annotated[
        Path | None, typer.Option("--model", metavar="DIR", help="Model that it must belong to; refuses any other.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Tell what a bundle activates of the vocabulary, and what memory it takes."""
    from simnmt.nmt.errors import need_packages

    need_packages()
    from simnmt.cli.vocab_bundles import describe_bundle

    print(_format_description(describe_bundle(file, model), as_json))


def _refuse_options(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(why, param_hint=name)


def _format_description(description: dict[str, Any], as_json: bool) -> str:
    from simnmt.cli.vocab_bundles import format_bundle

    return json.dumps(description, indent=1, ensure_ascii=False) if as_json else format_bundle(description)
