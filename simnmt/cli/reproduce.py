"""`simnmt reproduce`."""

from __future__ import annotations

import typer

app = typer.Typer(help="The papers' tables as published, and ours beside them.", no_args_is_help=True)


@app.command()
def cnmt() -> None:
    """C-NMT (ISCAS 2022): Table I."""
    raise typer.Exit(1)
