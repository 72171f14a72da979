"""`simnmt doctor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    folder: Annotated[Path, typer.Option("--disk", metavar="FOLDER", help="Where disk reads would be measured.")] = Path(),
) -> None:
    """Say what this box can measure, what it cannot, and why."""
    from simnmt.calibrate.doctor import examine

    examination = examine(folder=folder)
    if as_json:
        print(json.dumps(examination.as_json(), indent=1, allow_nan=False))
        return
    for finding in examination.findings:
        print(finding)
