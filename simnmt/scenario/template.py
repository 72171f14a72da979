"""Scenarios to begin with, and the JSON Schema by which an editor checks them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from simnmt import shipped
from simnmt.policies.configuration import KINDS
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.model import Scenario

SCHEMA_FILE = "scenario.schema.json"
"""Where a template's first line tells the editor to look, beside the scenario."""


def schema_text() -> str:
    """The JSON Schema of scenario files."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Scenario.model_json_schema()
    schema["properties"]["policies"] |= _policies_by_name(schema)
    for mapping in schema["properties"].values():
        _refuse_other_names(mapping)
    return json.dumps(schema, indent=1) + "\n"


def _refuse_other_names(mapping: dict[str, Any]) -> None:
    """State the pattern of names as one of all names: pydantic's schema lets what does not match it pass unseen."""
    if "patternProperties" in mapping:
        ((pattern, value),) = mapping.pop("patternProperties").items()
        mapping["propertyNames"] = {**mapping.get("propertyNames", {}), "pattern": pattern}
        mapping["additionalProperties"] = value


def _policies_by_name(schema: dict[str, Any]) -> dict[str, Any]:
    """A policy named after its kind need not say it, nor anything else: what the reader does before pydantic sees it."""
    policies, kinds = schema["properties"]["policies"], schema["$defs"]
    ((pattern, union),) = policies.pop("patternProperties").items()
    named = {}
    for name in KINDS:
        kind = kinds[union["discriminator"]["mapping"][name].rpartition("/")[2]]
        unsaid = kind | {"required": [key for key in kind["required"] if key != "kind"]}
        nothing = [] if unsaid["required"] else [{"type": "null"}]
        named[name] = {"anyOf": [unsaid, union, *nothing]}
    names = {**policies.get("propertyNames", {}), "pattern": pattern}
    return {"propertyNames": names, "properties": named, "additionalProperties": union}


def write_template(name: str, path: Path) -> list[Path]:
    """Write a shipped scenario to `path` and the schema beside it; returns what was written.

    Nothing is overwritten: raises `ScenarioError` if `path` exists or cannot be written.
    """
    text = shipped.find("scenarios", name).read_bytes()
    if os.path.lexists(path):
        raise ScenarioError("there is something of that name already", path=str(path), remedy="name another, or remove it")
    beside = path.with_name(SCHEMA_FILE)
    contents = {path: text} if os.path.lexists(beside) else {path: text, beside: schema_text().encode()}
    written: list[Path] = []
    try:
        for file, content in contents.items():
            with file.open("xb") as stream:
                written.append(file)
                stream.write(content)
    except BaseException as error:
        for file in written:
            file.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ScenarioError(f"cannot be written: {error.strerror}", path=str(path), remedy="name another") from None
        raise
    return written
