"""Scenarios to begin with, and the JSON Schema by which an editor checks them."""

from __future__ import annotations

import json
from pathlib import Path

from simnmt import shipped
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.model import Scenario

SCHEMA_FILE = "scenario.schema.json"
"""Where a template's first line tells the editor to look, beside the scenario."""


def schema_text() -> str:
    """The JSON Schema of scenario files."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Scenario.model_json_schema()
    return json.dumps(schema, indent=1) + "\n"


def write_template(name: str, path: Path) -> list[Path]:
    """Write a shipped scenario to `path` and the schema beside it; returns what was written.

    Nothing is overwritten: raises `ScenarioError` if `path` exists or cannot be written.
    """
    text = shipped.find("scenarios", name).read_bytes()
    written = []
    try:
        with path.open("xb") as file:
            file.write(text)
        written.append(path)
        beside = path.with_name(SCHEMA_FILE)
        if not beside.exists():
            beside.write_text(schema_text(), encoding="utf-8")
            written.append(beside)
    except FileExistsError:
        raise ScenarioError("there is a file of that name already", path=str(path), remedy="name another, or remove it") from None
    except OSError as error:
        raise ScenarioError(f"cannot be written: {error.strerror}", path=str(path), remedy="name another") from None
    return written
