"""`simnmt validate`: hold a simulation against a live testbed on this box."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from typing import Annotated

import typer

from simnmt.cli.options import AllowCode, AsJson, Overrides, argument, flag, option, print_result, prints_of_users
from simnmt.cli.terminal import say, warn

SMOKE_LOADS = "0.4"
SMOKE_SECONDS, SMOKE_CALIBRATION = 6.0, 60


def validate(
    scenario: Annotated[str, argument("SCENARIO|@NAME", "A scenario of a gateway and one server.")],
    loads: Annotated[
        str | None, option("LIST", "Requests a second over the gateway's measured capacity. [default: 0.2,0.5,0.8]")
    ] = None,
    policies: Annotated[str | None, option("LIST", "Policies of the scenario. [default: all that can be deployed]")] = None,
    batching: Annotated[
        list[str] | None,
        option("YAML", "Batching of the server, such as '{kind: mini, size: 8}', or alone; repeatable. [default: alone]"),
    ] = None,
    engine: Annotated[
        list[str] | None,
        option(
            "DEVICE=MODEL[:BACKEND[:TYPE]]",
            "Calibrate this engine, quickly and on one thread, and use it instead of the scenario's profile; repeatable.",
        ),
    ] = None,
    repeats: Annotated[int | None, option("R", "Live runs of each cell, interleaved. [default: 5, with --smoke 1]")] = None,
    seconds: Annotated[float | None, option("S", "Length of a live run. [default: 12, with --smoke 6]")] = None,
    requests: Annotated[int | None, option("N", "Requests of each live run. [default: as --seconds gives, 40 to 600]")] = None,
    seed: Annotated[int, option("S", "Seed of requests and order.")] = 1,
    text: Annotated[
        Path | None,
        option("FILE", "Sentences that trained engines decode freely, one a line. [default: the workload's lengths, forced]"),
    ] = None,
    overrides: Overrides = None,
    allow_code: AllowCode = False,
    smoke: Annotated[bool, flag("--smoke", "One load, short runs, one repeat: about three minutes for six cells.")] = False,
    out: Annotated[Path | None, option("DIR", "Folder of logs and results. [default: a new one under reports/]")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a scenario live on this box, simulate the same requests, and compare; ends with status 3 if a gated bar is missed.

    Example: simnmt validate @live-smoke --engine cloud=gru:torch:float16_weights --smoke
    """
    from simnmt.live.protocol import Protocol
    from simnmt.live.validation import validate as run_validation
    from simnmt.live.validation_text import format_validation
    from simnmt.results.run_directory import check_free, reserved

    protocol = Protocol(
        loads=_loads(loads or (SMOKE_LOADS if smoke else "0.2,0.5,0.8")),
        policies=tuple(policies.split(",")) if policies else (),
        batchings=tuple(batching or ("alone",)),
        repeats=repeats if repeats is not None else 1 if smoke else 5,
        seconds=seconds if seconds is not None else SMOKE_SECONDS if smoke else 12.0,
        requests=(40, 600) if requests is None else (requests, requests),
        calibration=SMOKE_CALIBRATION if smoke else 120,
        seed=seed,
        text="" if text is None else str(text),
    )

    def measure(folder: Path) -> bool:
        try:
            with prints_of_users():
                validation = run_validation(
                    scenario,
                    protocol,
                    folder,
                    overrides=overrides or [],
                    engines=engine or [],
                    allow_code=allow_code,
                    progress=say,
                )
        except BaseException:
            rmtree(folder, ignore_errors=True)
            raise
        print_result(as_json, validation.document, lambda: format_validation(validation))
        missed = [result.bar.name for result in validation.bars if result.bar.gated and result.met is False]
        if missed:
            warn(f"missed: {'; '.join(missed)}")
        return bool(missed)

    if out is not None:
        check_free(out)
        missed = measure(out)
    else:
        with reserved(Path("reports"), "validation") as folder:
            missed = measure(folder)
    if missed:
        raise typer.Exit(3)


def _loads(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text} is not a list of loads; write it as 0.2,0.5,0.8", param_hint="--loads") from None
