"""The base class of every configuration model: refuse unknown keys and silent conversions, freeze what was read.

Each room owns the models of what it builds; `simnmt.scenario` composes them and maps their errors to lines of the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticKnownError

from simnmt.base import shipped_files

EndOfSentence = Literal["none", "source", "target", "both"]
"""Lengths that count the end-of-sentence token. Texts, tables and tokenisers count none. A model reads one more source token
than the text has and takes one more decode step than it emits tokens of text, so measured costs count both."""


def end_tokens(counted: EndOfSentence) -> tuple[int, int]:
    """Return how many end-of-sentence tokens a source and a target length count, 0 or 1 each."""
    return int(counted in ("source", "both")), int(counted in ("target", "both"))


def _refuse_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticKnownError("literal_error", {"expected": "a number"})
    return value


NO_TRUTH_VALUE = BeforeValidator(_refuse_truth_value)
"""Validator of a literal 1, such as the version of a document, for which pydantic would take True, since True equals 1."""


def message_of(fault: Mapping[str, Any]) -> str:
    """Return the message of one fault of a validation, without the prefix that pydantic gives a validator's own words."""
    return str(fault["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")


def describe_validation_error(error: ValidationError) -> str:
    """Return the first fault of a validation as `key: message`, the message beginning in lower case.

    A fault of several keys together has no key.
    """
    first = error.errors(include_url=False, include_context=False)[0]
    message = message_of(first)
    return ": ".join([".".join(map(str, first["loc"])), message[:1].lower() + message[1:]]).removeprefix(": ")


Content = TypeVar("Content")


def checked_dataclass(kind: type[Content], content: Any) -> Content:
    """Return plain content as the dataclass `kind` after checks of the types and limits of its fields.

    Raises `ValueError`, a line that begins with the key, for content of another type, unknown keys, numbers that are not
    finite, and values out of limits.
    """
    kind.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)  # type: ignore[attr-defined]
    try:
        # As JSON, since strict validation of Python objects takes only instances of the dataclass.
        TypeAdapter(kind).validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        shown = first["type"] != "missing" and first["loc"]  # without a place, `__post_init__` names the fields
        value = f", got {json.dumps(first['input'])[:40]}" if shown else ""
        raise ValueError(f"{describe_validation_error(error)}{value}") from None
    return kind(**content)  # not pydantic's copy, in which whole numbers among reals have become reals


def form_by_key(otherwise: type[Configuration] | None = None, **kinds: type[Configuration]) -> Callable[[Any], str | None]:
    """Return a discriminator between forms of a value, whose tags are the names of the classes.

    A mapping has the form of the first key of `kinds` that it has, else the form `otherwise`. So only the form that was meant
    reports errors.
    """

    def tag(value: Any) -> str | None:
        if isinstance(value, Configuration):
            return type(value).__name__
        kind = next((kind for key, kind in kinds.items() if key in value), otherwise) if isinstance(value, dict) else None
        return None if kind is None else kind.__name__

    return tag


class Configuration(BaseModel):
    """Configuration of a part of a scenario file. The unit of a number is part of the key's name."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)


_Form = TypeVar("_Form", bound="FileForm")


class FileForm(Configuration):
    """A configuration with a file that is given as the `@name` of a shipped one or as a path."""

    file_key: ClassVar[str]
    """The key of the file."""
    shipped: ClassVar[shipped_files.Kind]
    """The kind of the shipped files."""

    @property
    def file(self) -> str:
        """The `@name` or path."""
        return str(getattr(self, self.file_key))

    def path(self, base: Path) -> Path:
        """Return the path of the file; a relative one starts at `base`. Raises `InputError` for an unknown `@name`."""
        return shipped_files.find(self.shipped, self.file) if self.file.startswith("@") else (base / self.file).absolute()

    def named_inputs(self, base: Path) -> dict[str, Path]:
        """Return the path of the file by its `@name` or itself."""
        return {self.file if self.file.startswith("@") else str(self.path(base)): self.path(base)}

    def resolved(self: _Form, base: Path) -> _Form:
        """Return the configuration with an absolute path; an `@name` stays, since it means the same everywhere."""
        absolute = {} if self.file.startswith("@") else {self.file_key: str(self.path(base))}
        return self.model_copy(update=absolute)
