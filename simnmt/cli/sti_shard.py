"""`simnmt sti shard`: a model cut into shards at every fidelity."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def shard(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Folder that simnmt sti train wrote, local folder of transformers, or bert-base (random weights).",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="STORE", help="Folder to write; it must not be there yet.")],
    bits: Annotated[
        str | None, typer.Option("--bits", metavar="B,B...", help="Fidelities, of 2 to 6 and 32 [2,3,4,5,6,32].")
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew where an interrupted run would be gone on with.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Cut a model into shards, one a head, and write each at every fidelity; the same command goes on after an interruption."""
    from simnmt.nmt.errors import need

    need("torch")
    from simnmt.cli.progress import stages
    from simnmt.cli.sti_told import store_tables
    from simnmt.costs.shard_geometry import BITS
    from simnmt.elastic.loading import load_encoder
    from simnmt.elastic.store import ShardStore, write_store
    from simnmt.elastic.store.account import told_of

    chosen = BITS if bits is None else _numbers(bits)
    loaded = load_encoder(model)
    if loaded.weights.random:
        print(f"simnmt: note: {model} has random weights: its shards show speed, not accuracy", file=sys.stderr)
    with stages() as tell:
        write_store(
            loaded.weights,
            out,
            bits=chosen,
            beside={} if loaded.tokenizer is None else loaded.tokenizer.files,
            label_names=loaded.label_names,
            progress=None if tell is None else lambda done, total: tell("sharding", done / total),
            resume=not restart,
        )
    with ShardStore.open(out) as store:
        said = told_of(store)
    print(json.dumps(said, indent=2) if as_json else store_tables(said))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list as in 2,6,32", param_hint="--bits") from None
