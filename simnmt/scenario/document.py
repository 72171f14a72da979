"""A scenario as it was written: plain data that remembers where every key and value stands."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simnmt.errors import printable
from simnmt.files import read_bounded
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.nodes import Node, node_of
from simnmt.scenario.wording import Location, described, dotted
from simnmt.scenario.yaml_text import parse_node, place_of

MAX_BYTES = 1 << 18
"""A scenario has a few thousand; the parser takes some seconds for this many."""


@dataclass(frozen=True, slots=True)
class Document:
    """A scenario as it was written, before anything but its form is checked."""

    root: Node
    path: str | None = None
    """The file, as the user named it; None for data that comes from no file."""

    @property
    def data(self) -> dict[str, Any]:
        """The whole as plain data; a fresh copy."""
        plain: dict[str, Any] = self.root.plain()
        return plain

    def nearest(self, location: Location) -> tuple[Node, int]:
        """The deepest node on the way to `location`, and how many of its parts lead there."""
        node = self.root
        for depth, part in enumerate(location):
            below = node.child(part)
            if below is None:
                return node, depth
            node = below
        return node, len(location)

    def position(self, location: Location, *, key: bool = False) -> tuple[int, int] | None:
        """(line, column), from 1, of the value at `location`, or of its key.

        Where nothing stands there: of the key of the nearest mapping around it. None where no file says so.
        """
        node, depth = self.nearest(location)
        if (key or depth < len(location)) and node.key_line is not None and node.key_column is not None:
            return node.key_line, node.key_column
        return None if node.line is None or node.column is None else (node.line, node.column)

    def error(self, location: Location, what: str, *, remedy: str | None = None, key: bool = False) -> ScenarioError:
        """A complaint about `location`, with its place in the file or the option that set it."""
        override = self.nearest(location)[0].override
        where = None if override else self.position(location, key=key)
        line, column = where or (None, None)
        text = f"{dotted(location)}: {what}" if location else what
        path = None if override else self.path
        return ScenarioError(text, path=path, line=line, column=column, remedy=remedy, override=override)


def read_document(path: str | os.PathLike[str]) -> Document:
    """Read a scenario file.

    Raises `ScenarioError` with file, line and column where it is missing, unreadable or not of the form
    above.
    """
    name = os.fspath(path)
    try:
        raw = read_bounded(path, MAX_BYTES, pipes=True)
    except FileNotFoundError:
        raise ScenarioError("no such file", path=name, remedy="`simnmt init` writes a scenario to begin with") from None
    except IsADirectoryError:
        raise ScenarioError("is a folder, not a scenario file", path=name, remedy="name the YAML file in it") from None
    except PermissionError:
        raise ScenarioError("may not be read", path=name, remedy="check the file's permissions") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            what = f"larger than {MAX_BYTES:,} bytes, so no scenario"
            raise ScenarioError(what, path=name, remedy="name a scenario file") from None
        raise ScenarioError(f"cannot be read: {error.strerror}", path=printable(name)) from None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        line, column = place_of(before, len(before))
        what = f"byte 0x{raw[error.start]:02x} is no UTF-8 text"
        raise ScenarioError(what, path=name, line=line, column=column, remedy="save the file as UTF-8") from None
    return parse_document(text, name)


def parse_document(text: str, path: str | None = None) -> Document:
    """Read a scenario from its text; `path` is what complaints call it. Raises `ScenarioError`."""
    root = parse_node(text, path)
    if root is None:
        raise ScenarioError(
            "says nothing",
            path=path,
            line=1,
            column=1,
            remedy="`simnmt init` writes a scenario to begin with",
        )
    if not isinstance(root.content, dict):
        what = f"expected keys and values, got {described(root.content)}"
        raise ScenarioError(what, path=path, line=root.line, column=root.column, remedy="write lines such as `seed: 1`")
    return Document(root, path)


def document_of(data: Mapping[str, object]) -> Document:
    """A document of data that comes from no file, for instance a notebook's dict.

    Tuples become lists, paths texts, and numbers of other libraries plain numbers. Raises `ScenarioError`
    for what no file could say.
    """
    return Document(node_of(data))
