"""`simnmt vocab`: build and inspect vocabulary bundles, and measure the output layer with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from simnmt.base.errors import InputError
from simnmt.base.text_tables import format_table
from simnmt.cli.options import AsJson, Device, Force, Threads, argument, check_output, chosen, option, print_result
from simnmt.cli.terminal import progress_bar, say

if TYPE_CHECKING:
    from simnmt.calibrate.projection_bench import ProjectionBench
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
        from pydantic import ValidationError

        from simnmt.base.configuration import describe_validation_error
        from simnmt.calibrate.projection_bench import Setting
        from simnmt.calibrate.vocabulary_bench import vocabulary_bench

    shares = [percent / 100 for percent in share or ()]
    try:
        setting = chosen(context, Setting, vocabs=vocab, widths=width, shares=shares)
    except ValidationError as error:
        raise InputError(describe_validation_error(error)) from None
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
    from simnmt.calibrate.projection_bench import FIT_WITHIN, StageName

    names = get_args(StageName)
    stages, times = list[list[str]](), list[list[str]]()
    for step in done.steps:
        star = "" if step.fitted else "*"
        size = [f"{step.vocab:,}", f"{step.width:,}", str(step.rows), f"{100 * step.share:.1f}{star}"]
        stages.append([*size, *(f"{1e6 * step.stages_s[name]:,.0f}" for name in names)])
        seconds = [f"{1e6 * seconds:,.0f}" for seconds in (step.dense_s, step.columns_s, step.predicted_s)]
        times.append([*size, *seconds, f"{step.ratio:.2f}", f"{step.scattered_ratio:.2f}"])
    limits = [
        [f"{cost.vocab:,}", f"{cost.width:,}", str(rows)]
        + [_share(cost.break_even(rows, done.setting.clusters, scatter=scatter)) for scatter in (False, True)]
        for cost in done.costs
        for rows in done.setting.rows
    ]
    head = ["V", "width", "rows"]
    lines = [
        f"{done.box}, {done.date}: {done.setting.clusters:,} clusters, weights in {done.setting.dtype}, found in memory",
        "",
        "Stages in us, each by itself:",
        format_table([*head, "active %", *names], stages, 0),
        "",
        "Whole steps; `columns`: straight into the search, `scattered`: as published:",
        format_table([*head, "active %", "dense us", "columns us", "predicted", "times as fast", "scattered"], times, 0),
        "",
        "Above which share of V all columns win:",
        format_table([*head, "columns", "scattered"], limits, 0),
        "",
    ]
    if errors := done.errors:
        mean, most = 100 * sum(errors) / len(errors), 100 * max(errors)
        lines.append(
            f"Predicted from their sizes alone, {len(errors)} steps that were not fitted (*) are off by {mean:.1f} % on "
            f"average (at most {100 * FIT_WITHIN:.0f} % is asked) and {most:.1f} % at most."
        )
    for share, asked, step in done.bars:
        verdict = "reached" if step.ratio >= asked else "missed"
        lines.append(
            f"V {step.vocab:,} x {step.width:,}, one row, {100 * share:.0f} % active: {step.ratio:.1f} times as fast as dense; "
            f"{asked:g} times are asked: {verdict}."
        )
    if done.others_cpus is not None and is_busy(done.others_cpus, describe()):
        lines.append(f"The box was not alone: others used {done.others_cpus:.1f} CPUs before or after.")
    return "\n".join(lines)


def _share(share: float | None) -> str:
    return "never" if share is None else f"{100 * share:.0f} %"


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
