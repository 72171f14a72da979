"""`simnmt vocab`: build and inspect vocabulary bundles, and measure the output layer with them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simnmt.base.text_tables import format_table
from simnmt.cli.options import AsJson, Device, Force, Threads, argument, check_output, chosen, option, print_result
from simnmt.cli.progress import progress_bar
from simnmt.cli.terminal import say

if TYPE_CHECKING:
    from simnmt.calibrate.projection_bench import BreakEven, ProjectionBench, StepTime
    from simnmt.cli.vocab_bundles import Description

app = typer.Typer(help="A part of the vocabulary instead of all of it: clusters of contexts, or lists of candidate words.")

CLUSTER_OPTIONS = ("clusters", "top", "pool", "beam", "batch", "seed")
LIST_OPTIONS = ("targets", "candidates", "always")


@app.command()
def bench(
    context: typer.Context,
    vocab: Annotated[list[int] | None, option("V", "Target tokens; once for each. [default: 32000, 128000, 250000]")] = None,
    width: Annotated[list[int] | None, option("D", "Width of the hidden state; repeatable. [default: 512, 1024]")] = None,
    rows: Annotated[list[int] | None, option("R", "Sentences x beam; once for each. [default: 1, 8, 40]")] = None,
    share: Annotated[
        list[float] | None, option("PERCENT", "Share of the vocabulary active in a step; repeatable. [default: 2, 6, 12, 20]")
    ] = None,
    clusters: Annotated[int | None, option("R", "Clusters of contexts. [default: 2000]")] = None,
    rounds: Annotated[int | None, option("N", "Rounds in which the contestants take turns. [default: 5]")] = None,
    threads: Annotated[int | None, option("T", "CPU threads. [default: 1]")] = None,
    device: Annotated[str | None, option("cpu|cuda", "Device. [default: cpu]")] = None,
    dtype: Annotated[str | None, option("TYPE", "Type of the weights: float32, float16, bfloat16. [default: float32]")] = None,
    out: Annotated[Path | None, option("FILE", "Write all figures to this file, as JSON.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Measure the output layer on this box with all columns and with the active ones alone; some three minutes.

    Random weights, and active sets that overlap as those of clusters do. Leave the box alone meanwhile: contestants take turns,
    so their ratios bear some noise, but their times do not.

    Example: simnmt vocab bench --vocab 32000 --rows 8
    """
    from simnmt.base.files import written_whole
    from simnmt.base.packages import named_if_missing

    with named_if_missing("models"):
        from simnmt.calibrate.projection_bench import Setting
        from simnmt.calibrate.vocabulary_bench import check, vocabulary_bench

    shares = [percent / 100 for percent in share or ()]
    setting = chosen(context, Setting, vocabs=vocab, widths=width, shares=shares)
    check(setting)
    check_output(out, force)
    with progress_bar() as bar:
        done = vocabulary_bench(setting, bar.runs)
    text = done.model_dump_json(indent=1)
    if out is not None:
        with written_whole(out) as partial:
            partial.write_text(text + "\n", encoding="utf-8")
        say(f"written to {out}")
    print(text if as_json else _format_bench(done))


def _format_bench(done: ProjectionBench) -> str:
    from simnmt.calibrate.box import describe
    from simnmt.calibrate.processor_use import is_busy

    columns = ["V", "width", "rows", "active %"]
    stages = [*columns, "way", "assign", "union", "row_wise", "gather", "scatter", "search"]
    times = [*columns, "dense us", "columns us", "predicted", "times as fast", "scattered"]
    shares = ["V", "width", "rows", "columns", "scattered", "own"]
    lines = [
        f"{done.box}, {done.date}: {done.setting.clusters:,} clusters, weights in {done.setting.dtype}, found in memory",
        "",
        "Stages in us, each by itself:",
        format_table(stages, [_stage_row(step) for step in done.steps], 0),
        "",
        "Whole steps; `columns`: straight into the search, `scattered`: as published:",
        format_table(times, [_step_row(step) for step in done.steps], 0),
        "",
        "Above which share of V all columns win; `own`: by whichever product is the faster one for all, torch's or ours:",
        format_table(shares, [_break_even_row(break_even) for break_even in done.break_even], 0),
    ]
    lines += ["", *_bench_verdicts(done)]
    if done.others_cpus is not None and is_busy(done.others_cpus, describe()):
        lines += [f"The box was not alone: others used {done.others_cpus:.1f} CPUs before or after."]
    return "\n".join(lines)


def _bench_verdicts(done: ProjectionBench) -> Iterator[str]:
    from simnmt.calibrate.projection_bench import FIT_WITHIN

    error, most, knowing = done.heldout_error, done.most_heldout_error, done.heldout_error_knowing
    if error is not None and most is not None and knowing is not None:
        asked = f"{'within' if error <= FIT_WITHIN else 'beyond'} the {100 * FIT_WITHIN:.0f} % that are asked"
        yield (
            f"Predicted from their sizes alone, {len(done.heldout)} steps that were not fitted (*) are off by "
            f"{100 * error:.1f} % on average, {asked}, and {100 * most:.1f} % at most; with the method of multiplying "
            f"and the indices in the sets known, by {100 * knowing:.1f} % on average."
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
    names = ("assign", "union", "row_wise", "gather", "scatter", "search")
    return [*_size_cells(step), step.method, *(f"{1e6 * step.stages_s[name]:,.0f}" for name in names)]


def _step_row(step: StepTime) -> list[str]:
    predicted = "" if step.predicted_s is None else f"{1e6 * step.predicted_s:,.0f}"
    ratios = [f"{step.ratios[name]:.2f}" for name in ("columns", "scattered")]
    return [*_size_cells(step), f"{1e6 * step.dense_s:,.0f}", f"{1e6 * step.columns_s:,.0f}", predicted, *ratios]


def _break_even_row(break_even: BreakEven) -> list[str]:
    shares = [
        "never" if share is None else f"{100 * share:.0f} %"
        for share in (break_even.columns, break_even.scattered, break_even.fastest)
    ]
    return [f"{break_even.vocab:,}", f"{break_even.width:,}", str(break_even.rows), *shares]


@app.command()
def build(
    context: typer.Context,
    model: Annotated[Path, option("DIR", "Folder that simnmt nmt train wrote.")],
    text: Annotated[
        list[str], option("[LABEL=]FILE", "Source text, a sentence a line, plain or gzip; once for each direction.")
    ],
    out: Annotated[Path, option("FILE", "Bundle to write.")],
    clusters: Annotated[int | None, option("R", "Clusters of each direction. [default: 100]")] = None,
    top: Annotated[int | None, option("K", "Likeliest tokens of each context that are active. [default: 5]")] = None,
    pool: Annotated[str | None, option("LABEL", "One set of clusters of that label, for all texts together.")] = None,
    sentences: Annotated[
        int | None, option("N", "Lines taken of each text, evenly spread. [default: 30000; lists: all]", min=1)
    ] = None,
    targets: Annotated[
        Path | None, option("FILE", "Build candidate lists instead: line i translates line i of --text.")
    ] = None,
    candidates: Annotated[int | None, option("N", "Target words listed for each source word. [default: 20]")] = None,
    always: Annotated[int | None, option("N", "Most frequent target words that every list holds. [default: 0]")] = None,
    beam: Annotated[int | None, option("B", "Beam that contexts are collected with. [default: 1]", min=1)] = None,
    batch: Annotated[int | None, option("N", "Most sentences decoded together. [default: 128]", min=1)] = None,
    iterations: Annotated[int | None, option("N", "Iterations of k-means or ibm1. [default: 20; ibm1 5]")] = None,
    seed: Annotated[int | None, option("S", "Same seed, same clusters. [default: 1]", min=0, max=2**31 - 1)] = None,
    device: Device = "cpu",
    threads: Threads = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Learn from text which output columns a trained model needs; clusters need no translations, lists do.

    Example: simnmt vocab build --model model --text news.de --out clusters.safetensors
    """
    from simnmt.nmt.errors import need_packages

    need_packages()
    from simnmt.cli.vocab_bundles import build_cluster_bundle, build_list_bundle, texts_by_label
    from simnmt.nmt.errors import NmtError
    from simnmt.nmt.translation import Translator

    texts = texts_by_label(text)
    check_output(out, force, targets, *texts.values())
    if not out.absolute().parent.is_dir():  # learning may take long
        raise NmtError("no such folder", path=out.parent, remedy="make it first")
    if not os.access(out.absolute().parent, os.W_OK):
        raise NmtError("nothing may be written there", path=out.parent, remedy="choose another folder")
    if pool is not None and not pool.strip():
        raise typer.BadParameter("no label: name what all texts have in common, as in to-en", param_hint="--pool")
    if targets is None:
        _refuse_options(context, LIST_OPTIONS, "it belongs to candidate lists: name their --targets")
    else:
        _refuse_options(context, CLUSTER_OPTIONS, "it belongs to clusters: leave out --targets")
        if len(texts) > 1:
            raise typer.BadParameter("lists are learnt from one text and its translation", param_hint="--text")
        if [str(path) for path in texts.values()] != [str(Path(named)) for named in text]:
            raise typer.BadParameter("lists have no label: name the file alone", param_hint="--text")
    translator = Translator.load(model, device=device, threads=threads)
    description: Description
    with progress_bar() as bar:
        if targets is None:
            options = {name: context.params[name] for name in (*CLUSTER_OPTIONS, "iterations")}
            description = build_cluster_bundle(translator, texts, out, sentences, bar.stage, name=model.name, **options)
        else:
            source = next(iter(texts.values()))
            options = {"count": candidates, "always": always, "iterations": iterations}
            description = build_list_bundle(translator, source, targets, out, sentences, bar.stage, name=model.name, **options)
    print_result(as_json, description.as_json, description.text)


@app.command()
def inspect(
    file: Annotated[Path, argument("FILE", "Bundle that simnmt vocab build wrote.")],
    model: Annotated[Path | None, option("DIR", "Model that it must belong to; refuses any other.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the share of the vocabulary that a bundle activates, and the memory that it takes.

    Example: simnmt vocab inspect clusters.safetensors
    """
    from simnmt.nmt.errors import need_packages

    need_packages()
    from simnmt.cli.vocab_bundles import describe_bundle

    description = describe_bundle(file, model)
    print_result(as_json, description.as_json, description.text)


def _refuse_options(context: typer.Context, names: Sequence[str], why: str) -> None:
    for name in names:
        if context.params[name] is not None:
            raise typer.BadParameter(why, param_hint=f"--{name}")
