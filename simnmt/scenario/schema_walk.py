"""What a model allows, looked up by the user's keys in the JSON Schema that pydantic writes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

Schema = Mapping[str, Any]


class SchemaWalk:
    """The JSON Schema of a model, to be walked from key to key."""

    def __init__(self, model: type[BaseModel]) -> None:
        self.top: Schema = model.model_json_schema()

    def bare(self, schema: Schema) -> Schema:
        """The schema that a reference leads to, and without a null that is allowed beside it."""
        while True:
            others = [form for form in schema.get("anyOf", ()) if form.get("type") != "null"]
            if "$ref" in schema:
                schema = self.top["$defs"][schema["$ref"].rpartition("/")[2]]
            elif len(others) == 1:
                schema = others[0]
            else:
                return schema

    def forms(self, schema: Schema) -> list[Schema]:
        """The branches of a union, bare; else the schema alone."""
        schema = self.bare(schema)
        parts = schema.get("oneOf") or schema.get("anyOf")
        return [form for part in parts for form in self.forms(part) if form.get("type") != "null"] if parts else [schema]

    def below(self, schema: Schema, part: str | int) -> Schema:
        """What is allowed under a key or an index; {} where the schema does not say."""
        found = []
        for form in self.forms(schema):
            properties, others = form.get("properties", {}), form.get("additionalProperties")
            if isinstance(part, int):
                found.append(form.get("items"))
            elif part in properties:
                found.append(properties[part])
            else:
                found += form["patternProperties"].values() if "patternProperties" in form else [others]
        return {"anyOf": [schema for schema in found if isinstance(schema, dict)]}

    def is_tagged(self, schema: Schema) -> bool:
        """Whether something in the value picks the branch of a union, so that pydantic's `loc` names it."""
        return "oneOf" in self.bare(schema)

    def tags(self, schema: Schema) -> dict[str, Schema]:
        """The branches of a union by the word that picks them; empty where a function picks."""
        schema = self.bare(schema)
        words = schema.get("discriminator", {}).get("mapping", {})
        return {word: form for form in schema.get("oneOf", ()) for word, ref in words.items() if form.get("$ref") == ref}

    def branch(self, schema: Schema, tag: str | int) -> Schema:
        """The branch that a tag picks; where no schema says which, any."""
        return self.tags(schema).get(str(tag), {"anyOf": self.bare(schema)["oneOf"]})
