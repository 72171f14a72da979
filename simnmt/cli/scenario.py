"""`simnmt init` and `simnmt schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def init(
    path: Annotated[Path, typer.Argument(metavar="[PATH]", help="File to write.")] = Path("scenario.yaml"),
    template: Annotated[
        str,
        typer.Option(
            "--template",
            metavar="NAME",
            help="quickstart, batched-cloud, load-sweep, locked-local, open-loop, own-data, sti-gateway, table1, "
            "table1-measured or tiers.",
        ),
    ] = "quickstart",
) -> None:
    """Write a commented scenario that runs, and the schema that editors check it with."""
    from simnmt.scenario.template import write_template

    for written in write_template(template, path):
        print(f"wrote {written}")
    print(f"run it: simnmt run {path}")


def schema() -> None:
    """Print the JSON Schema of scenario files."""
    from simnmt.scenario.template import schema_text

    print(schema_text(), end="")
