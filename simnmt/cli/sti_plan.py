"""`simnmt sti plan`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from simnmt.cli.terminal import warn


def plan(
    profile: Annotated[
        str,
        typer.Option("--profile", metavar="FILE", help="Profile with a block sti, an @name, @odroid-sti or @jetson-sti."),
    ],
    deadline_ms: Annotated[float, typer.Option("--deadline-ms", metavar="T", help="Within which a request is to be done.")],
    preload_mb: Annotated[
        float, typer.Option("--preload-mb", metavar="S", help="What may be kept in memory between requests; 0 for nothing.")
    ],
    length: Annotated[
        int | None, typer.Option("--length", metavar="L", min=1, help="Padded tokens [the greatest length measured].")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="M", min=1, help="Decoder steps within the deadline [1].")
    ] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="The buffer is empty: what a request meets after the system took the memory.")
    ] = False,
    similar: Annotated[
        float,
        typer.Option("--similar", metavar="PERCENT", min=0.0, max=100.0, help="Shards a deeper submodel may lack [0]."),
    ] = 0.0,
    fill: Annotated[
        bool, typer.Option("--fill", help="Beyond the paper: let the pipeline wait as long as the deadline allows.")
    ] = False,
    compare: Annotated[bool, typer.Option("--compare", help="Set the plan beside Load&Exec, StdPL and PreloadModel.")] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Look for the best bits by integer programming; some 20 s at most.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in SI units and nothing else.")] = False,
    page: Annotated[Path | None, typer.Option("--page", metavar="FILE", help="Write an HTML page with the pipelines.")] = None,
) -> None:
    """Plan a streamed model for a deadline and a preload buffer: layers, slices, bits, and what stays in memory."""
    from simnmt.cli.amounts import in_bytes, in_seconds
    from simnmt.cli.sti_plan_told import format_plan, read_source
    from simnmt.errors import InputError
    from simnmt.files import refuse_replacing, written_whole
    from simnmt.sti.outlook import outlook

    refuse_replacing(page, None if profile.startswith("@") else profile)
    if page is not None and not page.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {page.absolute().parent}", param_hint="--page")
    if page is not None and page.is_dir():
        raise typer.BadParameter(f"{page} is a folder: name a file", param_hint="--page")
    source = read_source(profile)
    for warning in source.warnings:
        warn(warning)
    planned = outlook(
        source.cost,
        in_seconds("--deadline-ms", deadline_ms),
        in_bytes("--preload-mb", preload_mb),
        length=length,
        steps=steps,
        cold=cold,
        similar=similar / 100,
        fills_deadline=fill,
        compares=compare,
        exactly=exact,
    )
    if page is not None:
        from simnmt.report.plan_page import render_plan

        try:
            with written_whole(page) as partial:
                text = render_plan(planned, source.name, source.kind, source.model, source.warnings)
                partial.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"--page: cannot be written: {error.strerror}", path=page, remedy="name another file") from None
        print(f"written to {page}", file=sys.stderr)
    if as_json:
        about = {"profile": source.name, "kind": source.kind, "model": source.model, "warnings": source.warnings}
        document = {**about, **planned.as_json()}
        print(json.dumps(document, indent=1, allow_nan=False))
    else:
        print(format_plan(planned, source))
