"""Write scenarios to begin with, and the JSON Schema by which an editor checks them."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import textwrap
from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import DictSchema, ModelSchema

from simnmt.base import shipped_files
from simnmt.base.configuration import Configuration
from simnmt.base.extension import installed_kinds
from simnmt.base.files import is_standard, written_whole
from simnmt.policies import KINDS
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.errors import ScenarioError

SCHEMA_FILE = "scenario.schema.json"
"""Name of the schema beside the scenario, which a template's first line gives to the editor."""


class DescribedSchema(GenerateJsonSchema):
    """The JSON Schema of a `Configuration` with the docstring below each field as its description.

    pydantic can do so itself (`use_attribute_docstrings`), but parses the source of every class at import: a quarter of what a
    process of a run takes to start. Here sources are read when a schema is asked for.
    """

    def dict_schema(self, schema: DictSchema) -> JsonSchemaValue:
        """State the pattern of names as one of all names: in pydantic's schema, other names pass unchecked."""
        mapping = super().dict_schema(schema)
        for pattern, value in mapping.pop("patternProperties", {}).items():
            mapping["propertyNames"] = {**mapping.get("propertyNames", {}), "pattern": pattern}
            mapping["additionalProperties"] = value
        return mapping

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        """Return the schema of one class, described."""
        described = super().model_schema(schema)
        fields = schema["cls"].model_fields
        for name, text in _field_docstrings(schema["cls"]).items():
            key = fields[name].alias or name if name in fields else name
            if key in described.get("properties", {}):
                described["properties"][key].setdefault("description", text)
        return described


def _field_docstrings(model: type) -> dict[str, str]:
    docstrings = dict[str, str]()
    for base in reversed(model.__mro__):
        if issubclass(base, Configuration) and base is not Configuration:
            body = cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]).body
            for field, below in itertools.pairwise(body):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    match below:
                        case ast.Expr(value=ast.Constant(value=str(text))):
                            docstrings[field.target.id] = inspect.cleandoc(text)
    return docstrings


@cache
def schema_text() -> str:
    """Return the JSON Schema of scenario files."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | ScenarioConfiguration.model_json_schema(
        schema_generator=DescribedSchema
    )
    schema["title"] = "Scenario"
    for part in (schema, schema["$defs"]["SiteConfiguration"]):
        _accept_policies_by_name(part["properties"]["policies"], schema["$defs"])
    return json.dumps(schema, indent=1) + "\n"


def _accept_policies_by_name(policies: JsonSchemaValue, definitions: dict[str, Any]) -> None:
    """Need no `kind` of a policy that is named after its kind, as a scenario does."""
    union = policies["additionalProperties"]
    policies["properties"] = {name: {"type": ["object", "null"]} for name in installed_kinds("simnmt.policies")}
    for name in KINDS:
        kind = definitions[union["anyOf"][0]["discriminator"]["mapping"][name].rpartition("/")[2]]
        required = [key for key in kind["required"] if key != "kind"]
        nothing = [] if required else [{"type": "null"}]
        policies["properties"][name] = {"anyOf": [kind | {"required": required}, union, *nothing]}


def write_template(name: str, path: Path) -> list[Path]:
    """Write a shipped scenario to `path` and, unless there is one, the schema beside it; return the paths written.

    For `-`, the scenario alone is written to standard output. Raises `ScenarioError` if `path` cannot be written.
    """
    text, beside = shipped_files.find("scenarios", name).read_bytes(), path.with_name(SCHEMA_FILE)
    written = [path]
    try:
        with written_whole(path) as partial:
            partial.write_bytes(text)
            if not is_standard(path) and not beside.exists():
                with written_whole(beside) as partial_schema:
                    partial_schema.write_bytes(schema_text().encode())
                written.append(beside)
    except OSError as error:
        raise ScenarioError(f"cannot be written: {error.strerror}", path=str(path)) from None
    return written
