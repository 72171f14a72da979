"""`simnmt vocab`: build and inspect bundles, and the bench."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from simnmt.cli import vocab_bench

app = typer.Typer(help="A part of the vocabulary instead of all of it: clusters of contexts, or lists of candidate words.")
app.command("bench")(vocab_bench.bench)


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
    from simnmt.files import refuse_replacing
    from simnmt.nmt.training.errors import need_all

    need_all()
    from simnmt.cli.progress import stages
    from simnmt.cli.vocab_build import build_lists, build_sets, told_apart
    from simnmt.nmt.errors import NmtError
    from simnmt.nmt.translation import Translator

    texts = told_apart(text)
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
        _refuse(lists, "it belongs to candidate lists: name their --targets")
    else:
        _refuse(sets, "it belongs to clusters: leave out --targets")
        if len(texts) > 1:
            raise typer.BadParameter("lists are learnt from one text and its translation", param_hint="--text")
        if [str(path) for path in texts.values()] != [str(Path(each)) for each in text]:
            raise typer.BadParameter("lists have no label: name the file alone", param_hint="--text")
    translator = Translator.load(model, device=device, threads=threads)
    with stages() as progress:
        if targets is None:
            told = build_sets(translator, texts, out, sentences, progress, name=model.name, iterations=iterations, **shape)
        else:
            source = next(iter(texts.values()))
            asked = {"count": candidates, "align": align, "always": always, "iterations": iterations}
            told = build_lists(translator, source, targets, out, sentences, progress, name=model.name, **asked)
    print(_shown(told, as_json))


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Bundle that simnmt vocab build wrote.")],
    model: Annotated[
        Path | None, typer.Option("--model", metavar="DIR", help="Model that it must belong to; refuses any other.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Tell what a bundle activates of the vocabulary, and what memory it takes."""
    from simnmt.nmt.training.errors import need_all

    need_all()
    from simnmt.cli.vocab_told import told_of

    print(_shown(told_of(file, model), as_json))


def _refuse(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(why, param_hint=name)


def _shown(told: dict[str, Any], as_json: bool) -> str:
    from simnmt.cli.vocab_told import text_of

    return json.dumps(told, indent=1, ensure_ascii=False) if as_json else text_of(told)
