"""`simnmt run`, `simnmt init` and `simnmt schema`: run a scenario, write one to begin with, print the schema."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from simnmt.cli.terminal import warn


def run(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO|@NAME|RUN_DIR", help="A file, a shipped scenario, or a run to repeat.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Run directory to write; default: a new one under reports/.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override any key of the scenario.")
    ] = None,
    requests: Annotated[int | None, typer.Option("--requests", metavar="N", help="Requests per run.")] = None,
    replications: Annotated[int | None, typer.Option("--replications", metavar="R", help="Independent repeats.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="S", help="Same seed, same bytes.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", metavar="J", min=0, help="Processes; 0: one per processor.")] = 0,
    until_precision: Annotated[
        str | None,
        typer.Option(
            "--until-precision",
            metavar="P%",
            help="Add replications until the objective's intervals are that narrow, such as 2%; 100 at most.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")] = False,
) -> None:
    """Replay a workload through every policy of a scenario."""
    import simnmt.api
    from simnmt.cli.option_values import in_share
    from simnmt.cli.tables import format_result

    with progress_bar() as progress:
        result = simnmt.api.run(
            scenario,
            out=out,
            under=None if out else "reports",
            overrides=overrides or [],
            requests=requests,
            replications=replications,
            seed=seed,
            jobs=jobs or os.cpu_count() or 1,
            progress=progress,
            until_precision=None if until_precision is None else in_share("--until-precision", until_precision),
        )
    for warning in result.warnings:
        warn(warning)
    if result.precision:
        print(result.precision, file=sys.stderr)
    if as_json:
        print(json.dumps(result.document() | {"directory": str(result.directory)}, indent=1, allow_nan=False))
    else:
        print(format_result(result))
        print(f"\nrun directory: {result.directory}\npage: {result.directory}/report.html")


def progress_bar() -> Any:
    """A bar on standard error, and only on a terminal; gives the callback that moves it."""
    if not sys.stderr.isatty():
        return nullcontext()
    from simnmt.cli.progress import bar

    return bar()


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
