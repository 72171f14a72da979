"""Read a scenario as it was written, with the place of every key and value, and apply overrides from outside the file.

An override (`--set policies.cnmt.len_slope=0.8`, or an argument of the library) is checked like the file's own keys, and errors
name the option, or the argument, that set it.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simnmt.base.errors import InputError, printable
from simnmt.base.files import read_bounded
from simnmt.scenario.errors import Location, ScenarioError, describe_value, format_location, quote_text
from simnmt.scenario.yaml_text import MAX_DEPTH, Holds, Node, Place, node_of, parse_node, place_of

MAX_BYTES = 1 << 18
"""A scenario has a few thousand bytes; the parser takes some seconds for this many."""


@dataclass(frozen=True, slots=True)
class Document:
    """A scenario as it was written; only its form has been checked."""

    root: Node
    path: str | None = None
    """The file, as the user named it; None for data that comes from no file."""
    around: Location = ()
    """Where this document is a part of another one; errors begin with it."""

    @property
    def data(self) -> dict[str, Any]:
        """The whole as plain data; a fresh copy."""
        plain: dict[str, Any] = self.root.plain()
        return plain

    def nearest(self, location: Location) -> tuple[Node, int]:
        """Return the deepest node on the path to `location`, and the number of its parts that lead there."""
        node = self.root
        for depth, part in enumerate(location):
            below = node.child(part)
            if below is None:
                return node, depth
            node = below
        return node, len(location)

    def position(self, location: Location, *, key: bool = False) -> Place | None:
        """Return the place of the value at `location`, or of its key; None if it comes from no file.

        Without a value there, return the place of the key of the nearest mapping around it.
        """
        node, depth = self.nearest(location)
        return node.key_place if (key or depth < len(location)) and node.key_place is not None else node.place

    def error(self, location: Location, what: str, *, remedy: str | None = None, key: bool = False) -> ScenarioError:
        """Return an error about `location`, with its place in the file or the option that set it."""
        override = self.nearest(location)[0].override
        line, column = (None if override else self.position(location, key=key)) or (None, None)
        text = f"{format_location((*self.around, *location))}: {what}".removeprefix(": ")
        path = None if override else self.path
        return ScenarioError(text, path=path, line=line, column=column, remedy=remedy, override=override)


def read_document(path: str | os.PathLike[str]) -> Document:
    """Read a scenario file.

    Raises `ScenarioError` with file, line and column if it is missing, unreadable or not YAML of the form of `yaml_text`.
    """
    name = os.fspath(path)
    try:
        raw = read_bounded(path, MAX_BYTES, pipes=True)
        return parse_document(raw.decode("utf-8"), name)
    except FileNotFoundError:
        raise ScenarioError("no such file", path=name, remedy="`simnmt init` writes a scenario to begin with") from None
    except OSError as error:
        raise ScenarioError(f"cannot be read: {error.strerror or error}", path=printable(name)) from None
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        line, column = place_of(before, len(before))
        what = f"byte 0x{raw[error.start]:02x} is no UTF-8 text"
        raise ScenarioError(what, path=name, line=line, column=column) from None
    except ScenarioError:
        raise
    except InputError as error:  # another file in its place: packed, or a pointer of Git LFS
        raise ScenarioError(error.what, path=name, remedy=error.remedy) from None


def parse_document(text: str, path: str | None = None) -> Document:
    """Read a scenario from its text; `path`: its name in errors. Raises `ScenarioError`."""
    document = Document(parse_node(text, path) or Node(None, (1, 1)), path)
    if not isinstance(document.root.content, dict):
        what = f"expected keys and values, got {describe_value(document.root.plain())}"
        raise document.error((), what, remedy="`simnmt init` writes a scenario to begin with")
    return document


def document_of(data: Mapping[str, object], holds: Holds | None = None) -> Document:
    """Return a document of data that comes from no file, for instance a notebook's dict.

    Tuples become lists, keys and paths texts, and numbers of other libraries plain numbers. Values that no file can express are
    kept where `holds` returns True, and raise `ScenarioError` elsewhere.
    """
    return Document(node_of(data, holds=holds))


_PART = re.compile(r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^."\'=]+?))\s*(?P<end>[.=])')


@dataclass(frozen=True, slots=True)
class Override:
    """A value put in place of the file's, and its name in errors."""

    location: tuple[str, ...]
    """Keys from the top; a list's index as a text of digits."""
    node: Node
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
            raise ScenarioError("nothing after the '='", remedy="write KEY=null for no value", override=label)
        node = parse_node(value, override=label)
        if node is None or (node.text is not None and node.text != value):
            raise ScenarioError("not one YAML value", remedy=f"write KEY={quote_text(value)}", override=label)
        return Override(location, node, label)

    @staticmethod
    def of(location: str | Iterable[str], value: object, label: str | None = None) -> Override:
        """Return an override by a given value, such as that of an option `--seed 2` or of an argument of the library."""
        parts = (location,) if isinstance(location, str) else tuple(location)
        label = printable(f"{format_location(parts)}={value!r}" if label is None else label)
        return Override(parts, node_of(value, override=label), label)


def quote_shipped_names(value: str) -> str:
    """Return a YAML value with each `@name` in quotes, without which it cannot begin a text."""
    quoted_or_name = r"""("[^"]*"|'[^']*')|(?<![^\s,:\[{])(@[^\s,\]}]+)"""
    return re.sub(quoted_or_name, lambda match: match[1] or f'"{match[2]}"', value)


_KEYS = {"profile_uncertainty": ("profile_uncertainty", "profiles")}
"""Keys of the scenario that have an argument, or an option, of another name."""


def overrides_of_call(texts: Iterable[str | Override], *, as_options: bool = False, **values: object) -> list[Override]:
    """Return the overrides of one call: texts KEY=VALUE, then each of `values` that is not None.

    Args:
        texts: such as `"policies.cnmt.len_slope=0.8"`.
        as_options: whether errors name options of the command line (`--set`, `--seed 2`), else arguments of Python (`seed=2`).
        values: of keys that have an argument of their own.

    Raises `ScenarioError`.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        remedy = 'give a list of texts, such as ["policies.cnmt.len_slope=0.8"]'
        raise ScenarioError(f"overrides: expected a list, got {describe_value(texts)}", remedy=remedy)
    given = []
    for text in texts:
        if not isinstance(text, (str, Override)):
            raise ScenarioError(f"overrides: expected a text, got {describe_value(text)}", remedy="write KEY=VALUE")
        given.append(Override.parse(text, "--set" if as_options else "") if isinstance(text, str) else text)
    for name, value in values.items():
        if value is not None:
            label = f"--{name.replace('_', '-')} {value}" if as_options else f"{name}={value!r}"
            given.append(Override.of(_KEYS.get(name, name), value, label))
    return given


def apply_overrides(document: Document | Mapping[str, object], overrides: Iterable[str | Override]) -> Document:
    """Return the document with every override applied in order; the given document is unchanged.

    Mappings that are missing on the path, or null, are created. Raises `ScenarioError` if an override is malformed, or leads
    through a text, a number or past the end of a list.
    """
    document = document if isinstance(document, Document) else document_of(document)
    root = document.root
    for given in overrides:
        override = Override.parse(given) if isinstance(given, str) else given
        root = _replaced(root, override, 0)
    return dataclasses.replace(document, root=root)


def _replaced(node: Node, override: Override, depth: int) -> Node:
    """Return `node` with the override below it; unchanged parts are shared."""
    if depth == len(override.location):
        # The key keeps its place, so that errors keep the order of the file.
        return dataclasses.replace(override.node, key_place=node.key_place)
    part, content = override.location[depth], node.content
    if content is None:
        node, content = Node({}, node.place, node.key_place, override=override.label), {}
    if isinstance(content, dict):
        below = content.get(part, Node(None, override=override.label))
        return dataclasses.replace(node, content={**content, part: _replaced(below, override, depth + 1)})
    if isinstance(content, list) and part in map(str, range(len(content))):
        index = int(part)
        items = [*content[:index], _replaced(content[index], override, depth + 1), *content[index + 1 :]]
        return dataclasses.replace(node, content=items)
    here = format_location(override.location[:depth])
    raise ScenarioError(f"{here}: {describe_value(node.plain())} has no {quote_text(part)}", override=override.label)


def parse_key(text: str, label: str) -> tuple[tuple[str, ...], str]:
    """Return the parts of the key of KEY=VALUE, and the text after the `=`. Raises `ScenarioError`, which names `label`."""
    parts: list[str] = []
    at = 0
    while len(parts) < MAX_DEPTH and (match := _PART.match(text, at)):
        quoted = None if match["quoted"] is None else parse_node(f'"{match["quoted"]}"', override=label)
        parts.append(match["bare"] if quoted is None else str(quoted.content))
        at = match.end()
        if match["end"] == "=":
            return tuple(parts), text[at:]
    raise ScenarioError("not KEY=VALUE", remedy="join keys by dots, quote one that holds a dot", override=label)
