"""The base class of every configuration model: refuse unknown keys and silent conversions, freeze what was read.

Each room owns the models of what it builds; `simnmt.scenario` composes them and maps their errors to lines of the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from simnmt.base import shipped_files
from simnmt.base.errors import InputError

EndOfSentence = Literal["none", "source", "target", "both"]
"""Lengths that count the end-of-sentence token. Texts, tables and tokenisers count none. A model reads one more source token
than the text has and takes one more decode step than it emits tokens of text, so measured costs count both."""


def end_tokens(counted: EndOfSentence) -> tuple[int, int]:
    """Return how many end-of-sentence tokens a source and a target length count, 0 or 1 each."""
    return int(counted in ("source", "both")), int(counted in ("target", "both"))


def misfit(key: str | tuple[str, ...], what: str) -> PydanticCustomError:
    """Return the fault of the value under a key, which does not fit others; without a key, of all of them.

    A tuple is the path to a key that does not fit, whatever its value.
    """
    location = key if isinstance(key, tuple) else (key,) if key else ()
    return PydanticCustomError("misfit", "{what}", {"what": what, "location": location, "at_key": isinstance(key, tuple)})


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


def literal_kind(model: Any) -> str | None:
    """Return the word that a model requires as its `kind`; None for another type, or if it has none."""
    fields = getattr(model, "model_fields", {})
    annotation: Any = fields["kind"].annotation if "kind" in fields else None
    return get_args(annotation)[0] if get_origin(annotation) is Literal else None


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
    """Return a discriminator between forms of a value, whose tags are the names of the classes: one form alone reports errors.

    A mapping has the form of the first key of `kinds` that it has, else the form `otherwise`.
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


@dataclass(frozen=True, slots=True)
class InputFile:
    """Mark of a key whose value names an input file, such as `csv: Annotated[str, InputFile("traces/rtt")]`.

    The mark may stand anywhere in the annotation; it holds for each text in the value, such as those of a list.
    """

    shipped: shipped_files.Kind | None = None
    """The kind of the shipped files that an `@name` stands for; None: every name is a path."""
    files_of: Callable[[Path], list[Path]] = field(default=lambda path: [path])
    """Returns the files that are read of a folder."""

    def path(self, name: str, base: Path) -> Path:
        """Return the path of a file; a relative one starts at `base`. Raises `InputError` for an unknown `@name`."""
        if self.shipped is None or self.is_path(name):
            return (base / name).absolute()
        return shipped_files.find(self.shipped, name)

    def is_path(self, name: str) -> bool:
        """Return whether a name is a path rather than the `@name` of a shipped file."""
        return self.shipped is None or not name.startswith("@")


def input_files(value: Any, base: Path) -> dict[str, Path]:
    """Return the files that the marked keys of a configuration name, by `@name` or path. Raises `InputError`."""
    files: dict[str, Path] = {}

    def add(mark: InputFile, name: str) -> str:
        paths = mark.files_of(mark.path(name, base))
        files.update({str(path): path for path in paths} if mark.is_path(name) else {name: paths[0]})
        return name

    _map_input_files(value, add)
    return files


def with_absolute_paths(value: Content, base: Path) -> Content:
    """Return a configuration with absolute paths in its marked keys; an `@name` stays, since it means the same everywhere.

    Raises `InputError` for a pipe: inputs are read once for their content and once for their digest.
    """

    def absolute(mark: InputFile, name: str) -> str:
        if not mark.is_path(name):
            return name
        path = mark.path(name, base)
        if os.path.exists(path) and path.is_fifo():  # noqa: PTH110 - Path.exists raises where the name is too long
            raise InputError("a pipe can be read only once", path=path, remedy="write its content to a file first")
        return str(path)

    resolved: Content = _map_input_files(value, absolute)
    return resolved


def _map_input_files(value: Any, change: Callable[[InputFile, str], str], mark: InputFile | None = None) -> Any:
    if isinstance(value, str):
        return value if mark is None else change(mark, value)
    if isinstance(value, dict):
        return {key: _map_input_files(part, change, mark) for key, part in value.items()}
    if isinstance(value, list):
        return [_map_input_files(part, change, mark) for part in value]
    if not isinstance(value, BaseModel):
        return value
    changed = {}
    for name, below in _marked_fields(type(value)).items():
        before = getattr(value, name)
        after = _map_input_files(before, change, below)
        if after != before:
            changed[name] = after
    return value.model_copy(update=changed) if changed else value


@cache
def _marked_fields(model: type[BaseModel]) -> dict[str, InputFile | None]:
    """Return the mark of each field of a model."""
    return {name: next(_marks(part.metadata, part.annotation), None) for name, part in model.model_fields.items()}


def _marks(metadata: Iterable[Any], annotation: Any) -> Iterator[InputFile]:
    for part in (*metadata, *get_args(annotation)):
        if isinstance(part, InputFile):
            yield part
        else:
            yield from _marks((), part)
