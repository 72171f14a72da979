"""`simnmt sti inspect`: what a shard store holds, and whether it is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def inspect(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder that simnmt sti shard wrote.")],
    check: Annotated[bool, typer.Option("--check", help="Read all of it, and compare every checksum.")] = False,
    layers: Annotated[bool, typer.Option("--layers", help="Also a table of the layers.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell a shard store's model, its sizes and rounding errors by bits, and its outliers."""
    from simnmt.nmt.errors import need

    need("torch")
    from simnmt.cli.progress import stages
    from simnmt.cli.sti_told import store_tables
    from simnmt.elastic.store import ShardStore
    from simnmt.elastic.store.account import told_of

    with ShardStore.open(store) as opened:
        if check:
            with stages() as tell:
                opened.check(None if tell is None else lambda done, total: tell("checking", done / total))
        said = told_of(opened) | ({"checked": True} if check else {})
    if as_json:
        print(json.dumps(said, indent=2))
        return
    print(store_tables(said, layers=layers))
    if check:
        print(f"checked: all {said['records']} records and the files beside them are what was written")
