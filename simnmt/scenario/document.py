"""Read a scenario as it was written, with the place of every key and value, and apply overrides from outside the file.

An override (`--set policies.cnmt.len_slope=0.8`, or an argument of the library) is checked like the file's own keys, and errors
name the option, or the argument, that set it.
"""

from __future__ import annotations

import dataclasses
import json
import numbers
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simnmt.base.errors import InputError, printable
from simnmt.base.extension import OBJECT, ListOfPython, of_object
from simnmt.base.files import read_bounded
from simnmt.base.suggestions import did_you_mean
from simnmt.scenario.errors import Location, ScenarioError, describe_value, format_location, quote_text
from simnmt.scenario.yaml_text import MAX_DEPTH, UNPRINTABLE, Mark, Marks, Place, parse_yaml, place_of

MAX_BYTES = 1 << 18
"""A scenario has a few thousand bytes; the parser takes some seconds for this many."""


@dataclass(frozen=True, slots=True)
class Document:
    """A scenario as it was written; only its form has been checked."""

    content: Any
    marks: Marks = field(default_factory=dict)
    """Where values come from; none for data that comes from no file."""
    path: str | None = None
    """The file, as the user named it; None for data that comes from no file."""

    @property
    def data(self) -> dict[str, Any]:
        """A copy of the content, in which an object is the name of its class."""
        text = json.dumps(self.content, default=lambda value: {OBJECT: of_object(value).label})
        data: dict[str, Any] = json.loads(text)
        return data

    def value(self, location: Location) -> Any:
        """Return the value at a location; None if there is none."""
        value = self.content
        for part in location:
            value = child(value, part)
        return value

    def mark(self, location: Location) -> tuple[Mark, bool]:
        """Return the mark of the value at a location or of the nearest one around it, and whether it is of the value itself."""
        nearest = next((location[:end] for end in range(len(location), -1, -1) if location[:end] in self.marks), ())
        return self.marks.get(nearest, Mark()), nearest == location

    def position(self, location: Location, *, key: bool = False) -> Place | None:
        """Return the place of the value at `location`, or of its key; None if it comes from no file.

        Without a value there, return the place of the key of the nearest mapping around it.
        """
        mark, is_exact = self.mark(location)
        return mark.key_place if (key or not is_exact) and mark.key_place is not None else mark.place

    def error(self, location: Location, what: str, *, remedy: str | None = None, key: bool = False) -> ScenarioError:
        """Return an error about `location`, with its place in the file or the option that set it."""
        override = self.mark(location)[0].override
        line, column = (None if override else self.position(location, key=key)) or (None, None)
        text = f"{format_location(location)}: {what}".removeprefix(": ")
        return ScenarioError(text, path=override or self.path, line=line, column=column, remedy=remedy)


def child(value: Any, part: str | int) -> Any:
    """Return the value under a key or an index; None if there is none."""
    if isinstance(value, dict):
        return value.get(part)
    return value[part] if isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value) else None


def plain_data(value: object, *, option: str | None = None, location: Location = (), objects: bool = False) -> Any:
    """Return data of a notebook as lists, texts, numbers, and mappings with texts as keys.

    Values that no file can express stay with `objects`, where the schema accepts them or not; else they raise `ScenarioError`,
    which names the `option`.
    """
    if len(location) > MAX_DEPTH:
        raise ScenarioError(f"nested deeper than {MAX_DEPTH} levels", path=option)

    def below(key: Any, part: object) -> Any:
        return plain_data(part, option=option, location=(*location, key), objects=objects)

    if isinstance(value, Mapping):
        return {str(key): below(key, part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        listed = ListOfPython(below(at, part) for at, part in enumerate(value))
        listed.original = value
        return listed
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, str) and UNPRINTABLE.search(value):
        what = "holds a control character, which is no part of a text"
        raise ScenarioError(f"{format_location(location)}: {what}".removeprefix(": "), path=option)
    if objects or value is None or isinstance(value, (str, bool)):
        return value
    what = f"a {type(value).__name__} is no text, number, mapping or list"
    raise ScenarioError(f"{format_location(location)}: {what}".removeprefix(": "), path=option)


def read_document(path: str | os.PathLike[str], remedy: str = "`simnmt init` writes a scenario to begin with") -> Document:
    """Read a scenario file; `remedy`: what to do if it is missing.

    Raises `ScenarioError` with file, line and column if it is missing, unreadable or not YAML of the form of `yaml_text`.
    """
    name = os.fspath(path)
    try:
        raw = read_bounded(path, MAX_BYTES, pipes=True)
        return parse_document(raw.decode("utf-8"), name)
    except FileNotFoundError:
        raise ScenarioError("no such file", path=name, remedy=remedy) from None
    except OSError as error:
        raise ScenarioError(f"cannot be read: {error.strerror or error}", path=printable(name)) from None
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        line, column = place_of(before, len(before))
        what = f"byte 0x{raw[error.start]:02x} is no UTF-8 text"
        remedy = "unpack it with gunzip" if raw.startswith(b"\x1f\x8b") else "save the file as UTF-8 text"
        raise ScenarioError(what, path=name, line=line, column=column, remedy=remedy) from None
    except ScenarioError:
        raise
    except InputError as error:  # another file in its place: packed, or a pointer of Git LFS
        raise ScenarioError(error.what, path=name, remedy=error.remedy) from None


def parse_document(text: str, path: str | None = None) -> Document:
    """Read a scenario from its text; `path`: its name in errors."""
    content, marks = parse_yaml(text, path)
    document = Document(content, marks or {(): Mark((1, 1))}, path)
    if not isinstance(content, dict):
        what = f"expected keys and values, got {describe_value(content)}"
        raise document.error((), what, remedy="`simnmt init` writes a scenario to begin with")
    return document


def document_of(data: Mapping[str, object]) -> Document:
    """Return a document of data that comes from no file, for instance a notebook's dict, which may hold objects."""
    return Document(plain_data(data, objects=True))


_PART = re.compile(r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^."\'=]+?))\s*(?P<end>[.=])')


@dataclass(frozen=True, slots=True)
class Override:
    """A value put in place of the file's, and its name in errors."""

    location: tuple[str, ...]
    """Keys from the top; a list's index as a text of digits."""
    value: Any
    label: str
    """The option as the user wrote it, `--set seed=2`, or the argument of Python, `seed=2`."""

    @staticmethod
    def parse(text: str, option: str = "--set") -> Override:
        """Read KEY=VALUE: keys joined by dots (one that holds a dot in double quotes), and a YAML value on one line.

        An `@name` needs no quotes. Raises `ScenarioError`.
        """
        label = f"{option} {printable(text)}".strip()
        location, rest = parse_key(text, label)
        value = quote_shipped_names(rest.strip())
        if not value:
            raise ScenarioError("nothing after the '='", remedy="write KEY=null for no value", path=label)
        content, marks = parse_yaml(value, option=label)
        if not marks or marks[()].text not in (None, value):
            raise ScenarioError("not one YAML value", remedy=f"write KEY={quote_text(value)}", path=label)
        return Override(location, content, label)

    @staticmethod
    def of(location: str | Iterable[str], value: object, label: str | None = None) -> Override:
        """Return an override by a given value, such as that of an option `--seed 2` or of an argument of the library."""
        parts = (location,) if isinstance(location, str) else tuple(location)
        label = printable(f"{format_location(parts)}={value!r}" if label is None else label)
        return Override(parts, plain_data(value, option=label), label)


def quote_shipped_names(value: str) -> str:
    """Return a YAML value with each `@name` in quotes, without which it cannot begin a text."""
    quoted_or_name = r"""("[^"]*"|'[^']*')|(?<![^\s,:\[{])(@[^\s,\]}]+)"""
    return re.sub(quoted_or_name, lambda match: match[1] or f'"{match[2]}"', value)


def overrides_of_call(texts: Iterable[str | Override], *, as_options: bool = False, **values: object) -> list[Override]:
    """Return the overrides of one call: texts KEY=VALUE, then each of `values` that is not None.

    Args:
        texts: such as `"policies.cnmt.len_slope=0.8"`.
        as_options: whether errors name options of the command line (`--set`, `--seed 2`), else arguments of Python (`seed=2`).
        values: of keys that have an argument of their own.

    Raises `ScenarioError`.
    """
    given: list[Override] = []
    for text in [None] if isinstance(texts, (str, Mapping)) else texts:
        if not isinstance(text, (str, Override)):
            remedy = 'such as ["policies.cnmt.len_slope=0.8"]; put objects into the mapping of the scenario'
            raise ScenarioError(f"overrides: expected a list of texts KEY=VALUE, got {describe_value(texts)}", remedy=remedy)
        given.append(Override.parse(text, "--set" if as_options else "") if isinstance(text, str) else text)
    for name, value in values.items():
        if value is not None:
            location = (name, "profiles") if name == "profile_uncertainty" else (name,)
            label = f"--{name.replace('_', '-')} {value}" if as_options else f"{name}={value!r}"
            given.append(Override.of(location, value, label))
    return given


def apply_overrides(document: Document, overrides: Iterable[str | Override]) -> Document:
    """Return the document with every override applied in order; the given document is unchanged.

    Mappings that are missing on the path, or null, are created. A key of a part that a site inherits is changed in a copy of
    the part at the site. `sites.*.KEY` is the key at all sites. Raises `ScenarioError` if an override is malformed, or leads
    through a text, a number or past the end of a list, or if no site has the key.
    """
    for given in overrides:
        override = Override.parse(given) if isinstance(given, str) else given
        content, marks = document.content, dict(document.marks)
        for location in _locations(content, override):
            content = _with_inherited_part(content, location, marks)
            content = _replaced(content, (), dataclasses.replace(override, location=location), marks)
        document = dataclasses.replace(document, content=content, marks=marks)
    return document


PARTS_OF_SITES = ("networks", "devices", "policies")
"""Keys of a scenario whose parts, by name, a site replaces by its own or else inherits."""


def _mapping_at(content: Any, *path: str) -> dict[str, Any]:
    """Return the mapping at a path; an empty one if something else, or nothing, is there."""
    for part in path:
        content = child(content, part)
    return content if isinstance(content, dict) else {}


def _locations(content: Any, override: Override) -> list[tuple[str, ...]]:
    """Return where an override holds: for `sites.*`, at every site that has the part, and in the part that others inherit.

    Raises `ScenarioError` for a key of a site that is not there, which would otherwise become a site with the rest inherited.
    """
    if override.location[:1] != ("sites",) or len(override.location) < 3:
        return [override.location]
    (_, site, *key), sites = override.location, _mapping_at(content, "sites")
    if site in sites or (site != "*" and not sites):
        return [override.location]
    if site != "*":
        what = f"{format_location(override.location[:2])}: no such site"
        raise ScenarioError(what, path=override.label, remedy=did_you_mean(site, sites))
    locations: list[tuple[str, ...]] = [("sites", name, *key) for name in sites]
    if len(key) > 2 and key[0] in PARTS_OF_SITES:
        stated = {name: _mapping_at(content, "sites", name, key[0]) for name in sites}
        stated = {name: parts for name, parts in stated.items() if key[1] in parts}
        locations = [
            ("sites", name, *key) for name, parts in stated.items() if key[0] != "devices" or parts[key[1]] is not None
        ]
        if key[1] in _mapping_at(content, key[0]) and len(stated) < len(sites):
            locations.append(tuple(key))
    if not locations:
        what = f"no site has {format_location(tuple(key[:2]))}" if sites else "the scenario has no sites"
        raise ScenarioError(f"{format_location(override.location)}: {what}", path=override.label)
    return locations


def _with_inherited_part(content: Any, location: tuple[str, ...], marks: dict[Location, Mark]) -> Any:
    """Return the content with a copy of the part below which a location lies, if the site of the location inherits the part."""
    if len(location) < 5 or location[0] != "sites" or location[2] not in PARTS_OF_SITES:
        return content
    _, site, *part = location[:4]
    inherited = child(child(content, part[0]), part[1])
    if inherited is None or part[1] in _mapping_at(content, "sites", site, part[0]):
        return content
    content = _replaced(content, (), Override(location[:4], inherited, ""), marks)
    marks |= {("sites", site, *place): mark for place, mark in marks.items() if place[:2] == tuple(part)}
    return content


def _replaced(content: Any, location: Location, override: Override, marks: dict[Location, Mark]) -> Any:
    """Return the content of a location with the override below it; unchanged parts are shared."""
    depth = len(location)
    if depth == len(override.location) or content is None:
        # The key keeps its place, so that errors keep the order of the file.
        key_place = marks[location].key_place if location in marks else None
        for below in [below for below in marks if below[:depth] == location]:
            del marks[below]
        marks[location] = Mark(key_place=key_place, override=override.label)
        content = {}
    if depth == len(override.location):
        return override.value
    part = override.location[depth]
    if isinstance(content, dict):
        return {**content, part: _replaced(content.get(part), (*location, part), override, marks)}
    if isinstance(content, list) and part in map(str, range(len(content))):
        index = int(part)
        below = _replaced(content[index], (*location, index), override, marks)
        return [*content[:index], below, *content[index + 1 :]]
    here = format_location(location)
    raise ScenarioError(f"{here}: {describe_value(content)} has no {quote_text(part)}", path=override.label)


def parse_key(text: str, label: str) -> tuple[tuple[str, ...], str]:
    """Return the parts of the key of KEY=VALUE, and the text after the `=`. Raises `ScenarioError`, which names `label`."""
    parts: list[str] = []
    at = 0
    while len(parts) < MAX_DEPTH and (match := _PART.match(text, at)):
        quoted = match["quoted"]
        parts.append(match["bare"] if quoted is None else parse_yaml(f'"{quoted}"', option=label)[0])
        at = match.end()
        if match["end"] == "=":
            return tuple(parts), text[at:]
    raise ScenarioError("not KEY=VALUE", remedy="join keys by dots, quote one that holds a dot", path=label)
