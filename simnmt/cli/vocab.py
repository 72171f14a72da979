"""`simnmt vocab`: build and inspect vocabulary bundles, and measure the output layer with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.base.errors import InputError
from simnmt.cli.options import (
    AsJson,
    Device,
    Force,
    Threads,
    argument,
    check_output,
    chosen,
    option,
    print_result,
    refuse_given,
)
from simnmt.cli.terminal import format_record, note, progress_bar, say

if TYPE_CHECKING:
    from simnmt.calibrate.projection_bench import ProjectionBench
    from simnmt.nmt.step_model import StepModel
    from simnmt.nmt.vocabulary.bundle_file import BundleFile

app = typer.Typer(help="A part of the vocabulary instead of all of it: clusters of contexts, or lists of candidate words.")

SENTENCES = 30_000
"""Lines taken of each text by default."""
OF_CLUSTERS, OF_LISTS = ("clusters", "top", "beam", "batch", "seed"), ("candidates", "always")
"""Options of one kind of bundle alone."""
RUNS = ("columns", "scattered")
"""Steps with active columns: straight into the search, and as published."""


@app.command()
def bench(
    context: typer.Context,
    vocab: Annotated[list[int] | None, option("V", "Target tokens; once for each. [default: 32000, 128000, 250000]")] = None,
    width: Annotated[list[int] | None, option("D", "Width of the hidden state; repeatable. [default: 512, 1024]")] = None,
    rows: Annotated[list[int] | None, option("R", "Sentences x beam; once for each. [default: 1, 8, 40]")] = None,
    share: Annotated[list[float] | None, option("PERCENT", "Active share; repeatable. [default: 2, 6, 12, 20]")] = None,
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
    from pydantic import ValidationError

    from simnmt.base.configuration import describe_validation_error
    from simnmt.base.files import written_whole
    from simnmt.calibrate.projection_bench import Setting
    from simnmt.calibrate.vocabulary_bench import vocabulary_bench

    try:
        setting = chosen(context, Setting, vocabs=vocab, widths=width, shares=[percent / 100 for percent in share or ()])
    except ValidationError as error:
        raise InputError(describe_validation_error(error)) from None
    check_output(out, force)
    with progress_bar() as bar:
        done = vocabulary_bench(setting, bar.runs)
    if out is not None:
        with written_whole(out) as partial:
            partial.write_text(done.model_dump_json(indent=1) + "\n", encoding="utf-8")
        say(f"written to {out}")
    print_result(as_json, lambda: done.model_dump(mode="json"), lambda: format_record(_bench_record(done)))


def _bench_record(done: ProjectionBench) -> dict[str, Any]:
    """Return what the text shows of a bench: steps, shares above which dense is faster, and the error of the fitted costs."""
    errors = [abs(step.error) for step in done.steps if not step.fitted]
    limits = [
        {"vocab": cost.vocab, "width": cost.width, "rows": rows}
        | {f"{run}_share": cost.break_even(rows, done.setting.clusters, scatter=run == "scattered") for run in RUNS}
        for cost in done.costs
        for rows in done.setting.rows
    ]
    record = done.model_dump(include={"box", "date", "others_cpus"}) | done.setting.model_dump(include={"clusters", "dtype"})
    record["error_of_predictions_share"] = sum(errors) / len(errors) if errors else None
    steps = [{"active_share": step.share, **step.model_dump(exclude={"columns"})} for step in done.steps]
    return record | {"steps": steps, "dense_is_faster_above": limits}


@app.command()
def build(
    context: typer.Context,
    model: Annotated[Path, option("DIR", "Folder that simnmt nmt train wrote.")],
    text: Annotated[list[Path], option("FILE", "Source text, a sentence a line; repeatable for one set of several languages.")],
    out: Annotated[Path, option("FILE", "Bundle to write.")],
    clusters: Annotated[int | None, option("R", "Clusters of contexts. [default: 100]")] = None,
    top: Annotated[int | None, option("K", "Likeliest tokens of each context that are active. [default: 5]")] = None,
    sentences: Annotated[int | None, option("N", "Lines of each text. [default: 30000; lists: all]", min=1)] = None,
    targets: Annotated[Path | None, option("FILE", "Build candidate lists: line i translates line i of --text.")] = None,
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
    from simnmt.calibrate.calibration import refuse_unwritable
    from simnmt.nmt.translation import Translator
    from simnmt.nmt.vocabulary.candidate_lists import build_candidates
    from simnmt.nmt.vocabulary.cluster_bundle import build_clusters, save_clusters
    from simnmt.workload.text_lines import read_lines

    check_output(out, force, targets, *text)
    refuse_unwritable(out, "--out")  # learning may take long
    if targets is None:
        refuse_given(context, OF_LISTS, "it belongs to candidate lists: name their --targets")
    else:
        refuse_given(context, OF_CLUSTERS, "it belongs to clusters: leave out --targets")
        if len(text) > 1:
            raise typer.BadParameter("lists are learnt from one text", param_hint="--text")
    translator = Translator.load(model, device=device, threads=threads)
    names = (*(OF_CLUSTERS if targets is None else OF_LISTS), "iterations")
    options = {name: context.params[name] for name in names if context.params[name] is not None}
    with progress_bar() as bar:
        if targets is None:
            taken = [_sample(path, read_lines(path), sentences or SENTENCES) for path in text]
            defaults = {"clusters": 100, "top": 5, "label": "+".join(path.stem for path in text)}
            clustered = build_clusters(translator, taken, progress=bar.stage, **(defaults | options))
            save_clusters(clustered, out, translator.model, model.name)
        else:
            source_lines, target_lines = read_lines(text[0]), read_lines(targets)
            if len(source_lines) != len(target_lines):
                raise InputError(
                    f"{len(source_lines):,} sources but {len(target_lines):,} targets", remedy="line i must translate line i"
                )
            count = min(len(source_lines), sentences or len(source_lines))
            if candidates is not None:
                options["count"] = options.pop("candidates")
            pairs = _sample(text[0], source_lines, count), _sample(targets, target_lines, count)
            options["progress"] = lambda done: bar.stage("aligning", done / count)
            lists = build_candidates(translator, *pairs, **options)
            if lists.pairs != count:
                note(f"{count - (lists.pairs or 0):,} of {count:,} pairs left out: a side is empty")
            lists.save(out, translator.model, {"model": model.name})
    _show(out, None, as_json)


def _sample(path: Path, lines: list[str], count: int) -> list[str]:
    """Return `count` lines, evenly spread over all and in their order; all lines if they are no more."""
    if count >= len(lines):
        return lines
    note(f"{path}: {count:,} of {len(lines):,} lines, evenly spread; --sentences takes more")
    return [lines[at * len(lines) // count] for at in range(count)]


@app.command()
def inspect(
    file: Annotated[Path, argument("FILE", "Bundle that simnmt vocab build wrote.")],
    model: Annotated[Path | None, option("DIR", "Model that it must belong to; refuses any other.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the share of the vocabulary that a bundle activates, and the memory that it takes.

    Example: simnmt vocab inspect clusters.safetensors
    """
    from simnmt.nmt.models import load_model

    _show(file, None if model is None else load_model(str(model)).model, as_json)


def _show(file: Path, model: StepModel | None, as_json: bool) -> None:
    from simnmt.nmt.vocabulary import candidate_lists, cluster_bundle
    from simnmt.nmt.vocabulary.bundle_file import read_bundle

    parsers = {cluster_bundle.KIND: _record_of_clusters, candidate_lists.KIND: _record_of_lists}
    record = read_bundle(file, parsers, model)
    print_result(as_json, lambda: record, lambda: format_record(record))


def _record_of_clusters(file: BundleFile) -> dict[str, Any]:
    """Return active shares at batch 1, each cluster as often as training met it, and the memory."""
    from simnmt.nmt.vocabulary.cluster_bundle import active_shares, clusters_in

    clusters, note = clusters_in(file), file.note
    memory, total = clusters.memory, sum(clusters.memory.values())
    return {
        "kind": file.kind,
        **{name: note[name] for name in ("model", "vocab", "width", "sha256")},
        **active_shares(clusters),
        "memory_bytes": memory | {"total": total, "model": note["model_bytes"]},
        "memory_share": total / note["model_bytes"],
    }


def _record_of_lists(file: BundleFile) -> dict[str, Any]:
    """Return the numbers of candidates of a source token, and the memory of candidate lists."""
    from simnmt.nmt.vocabulary.candidate_lists import CandidateLists

    lists = CandidateLists.of_file(file)
    sizes = lists.starts[1:] - lists.starts[:-1]
    return {
        "kind": file.kind,
        "model": file.note.get("model"),
        "pairs": lists.pairs,
        "vocab": lists.vocab,
        "src_vocab": len(sizes),
        "most": int(sizes.max()),
        "mean": float(sizes.mean()),
        "without": int((sizes == 0).sum()),
        "always": len(lists.always),
        "memory_bytes": {"total": sum(array.nbytes for array in (lists.starts, lists.columns, lists.always))},
    }
