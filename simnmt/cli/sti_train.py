"""`simnmt sti train`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from simnmt.cli.terminal import warn


def train(
    task: Annotated[Path, typer.Option("--task", metavar="FILE.tsv", help="Examples: sentence<TAB>label, with that header.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write, or to go on with.")],
    dev: Annotated[
        Path | None, typer.Option("--dev", metavar="FILE.tsv", help="Looked at after each epoch; it chooses nothing.")
    ] = None,
    epochs: Annotated[float | None, typer.Option("--epochs", metavar="E", help="Passes over the task [7].")] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="M", help="Ends after M minutes, all sittings together, instead.")
    ] = None,
    layers: Annotated[int | None, typer.Option("--layers", metavar="N", help="Layers [12].")] = None,
    slices: Annotated[int | None, typer.Option("--slices", metavar="M", help="Heads, and shards of a layer [12].")] = None,
    width: Annotated[int | None, typer.Option("--width", metavar="D", help="Of the token vectors [96].")] = None,
    ffn: Annotated[int | None, typer.Option("--ffn", metavar="F", help="Feed-forward neurons of a layer [192].")] = None,
    vocab: Annotated[int | None, typer.Option("--vocab", metavar="V", help="Most subwords [4000].")] = None,
    positions: Annotated[
        int | None, typer.Option("--positions", metavar="L", help="Most tokens of a text; longer ones are cut [64].")
    ] = None,
    pooling: Annotated[
        str | None, typer.Option("--pooling", metavar="mean|first", help="Token vectors that the classifier reads [mean].")
    ] = None,
    batch_tokens: Annotated[
        int | None, typer.Option("--batch-tokens", metavar="N", help="Most tokens of a batch [700].")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", metavar="R", help="Greatest learning rate [0.0007].")] = None,
    embedding_rate: Annotated[
        float | None,
        typer.Option("--embedding-rate", metavar="K", help="By how much more word vectors and classifier learn [5]."),
    ] = None,
    dropout: Annotated[float | None, typer.Option("--dropout", metavar="P", help="Of what each layer adds [0.1].")] = None,
    embedding_dropout: Annotated[
        float | None, typer.Option("--embedding-dropout", metavar="P", help="Of word vectors and the classifier's input [0.3].")
    ] = None,
    word_dropout: Annotated[
        float | None, typer.Option("--word-dropout", metavar="P", help="Share of subwords that are hidden [0.1].")
    ] = None,
    smoothing: Annotated[float | None, typer.Option("--smoothing", metavar="P", help="Of the labels [0.1].")] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="S", help="Same seed, same weights [1].")] = None,
    device: Annotated[str, typer.Option("--device", metavar="cpu|cuda", help="Where it is trained.")] = "cpu",
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="T", min=1, help="CPU threads; default: torch's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print training.json and nothing else.")] = False,
) -> None:
    """Train a classifier that can be cut: any bottom layers with any slices of them answer; the same command goes on."""
    from simnmt.nmt.errors import need

    for package in ("torch", "sentencepiece"):
        need(package)
    from simnmt.cli.progress import stages
    from simnmt.elastic.task import read_task
    from simnmt.elastic.training.folder import STATE_FILE
    from simnmt.elastic.training.recipe import recipe_with
    from simnmt.elastic.training.train import chance_level
    from simnmt.elastic.training.train import train as train_encoder

    given = {
        "epochs": epochs,
        "minutes": minutes,
        "layers": layers,
        "slices": slices,
        "width": width,
        "ffn": ffn,
        "vocab": vocab,
        "positions": positions,
        "pooling": pooling,
        "batch_tokens": batch_tokens,
        "rate": rate,
        "embedding_rate": embedding_rate,
        "dropout": dropout,
        "embedding_dropout": embedding_dropout,
        "word_dropout": word_dropout,
        "smoothing": smoothing,
        "seed": seed,
    }
    recipe = recipe_with(**given)
    examples = read_task(task)
    looked = None if dev is None else read_task(dev, label_names=examples.label_names)
    try:
        with stages() as tell:
            account = train_encoder(examples, out, recipe, dev=looked, device=device, threads=threads, progress=tell)
    except BaseException as ended:
        if not isinstance(ended, Exception) and (out / STATE_FILE).is_file():
            print("simnmt: note: kept up to the last whole step; the same command goes on from there", file=sys.stderr)
        raise
    if (warning := chance_level(account)) is not None:
        warn(warning)
    if as_json:
        print(json.dumps(account, indent=1, ensure_ascii=False))
        return
    done = account["training"]
    print(
        f"{out}: {recipe.layers} x {recipe.slices} elastic encoder of width {recipe.width}, {account['parameters']:,} numbers"
    )
    spent = f"{done['epochs']} epochs, {done['steps']:,} steps, {done['seconds']:.0f} s"
    print(f"trained on {account['examples']:,} examples, {spent}")
    if "dev" in account:
        told = account["dev"]
        seen = f", {told['trained_on']:,} of them trained on too" if told["trained_on"] else ""
        right = f"{told['accuracy']:.1%} of {told['examples']:,}{seen}"
        print(f"right on {told['path']}: {right} (commonest class {told['majority']:.1%})")
