"""`simnmt reproduce`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from simnmt.cli.run import progress_bar

app = typer.Typer(help="The papers' tables as published, and ours beside them.", no_args_is_help=True)


@app.callback()
def _papers() -> None:
    """One verb per paper."""


@app.command()
def cnmt(
    fit: Annotated[bool, typer.Option("--fit", help="Infer the device profiles and CP2's level anew (four minutes).")] = False,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="With --fit: where the profiles and RTT series are written.")
    ] = Path("reports/cnmt-fit"),
    requests: Annotated[int | None, typer.Option("--requests", metavar="N", help="Requests per run of the table.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", metavar="J", min=0, help="Processes; 0: one per processor.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """C-NMT (ISCAS 2022): Table I, its ratios and its claims, published and ours."""
    import simnmt.api
    from simnmt.reproduce.cnmt import replication
    from simnmt.results.run_directory import check_free, whole

    jobs = jobs or os.cpu_count() or 1
    if fit:
        check_free(out)
        with progress_bar() as progress:
            fitted, found = replication.fit_and_replay(jobs=jobs, progress=progress)
        with whole(out) as folder:
            replication.write_fit(folder, fitted, found)
        text = f"{replication.as_text(fitted, found)}\n\nprofiles and RTT series: {out}"
    else:
        with progress_bar() as progress:
            result = simnmt.api.run("@table1", requests=requests, jobs=jobs, progress=progress)
        found = replication.replicate(result.rows, [kind for cell in result.cells for kind in cell.profile_kinds])
        text = found.text()
    print(json.dumps(found.document(), indent=1, allow_nan=False) if as_json else text)
