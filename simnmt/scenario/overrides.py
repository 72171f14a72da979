"""Keys set from outside the file (`--set policies.cnmt.len_slope=0.8`), checked like the file's own."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from simnmt.errors import printable
from simnmt.scenario.document import Document, document_of
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.nodes import MAX_DEPTH, MAX_KEY, UNPRINTABLE, Node, node_of
from simnmt.scenario.wording import described, dotted, quoted
from simnmt.scenario.yaml_text import parse_node

_PART = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^."\'=]+)')


@dataclass(frozen=True, slots=True)
class Override:
    """A value put in place of the file's, and the words by which complaints name it."""

    location: tuple[str, ...]
    """Keys from the top; a list's index as a text of digits."""
    node: Node
    label: str
    """As the user wrote it: `--set seed=2`."""

    @staticmethod
    def parse(text: str, option: str = "--set") -> Override:
        """Read KEY=VALUE: keys joined by dots (one that holds a dot in double quotes), a YAML value on one
        line.

        A value that begins with `@` is a text without quotes too. Raises `ScenarioError`.
        """
        label = f"{option} {printable(text)}".strip()
        location, rest = _key(text, label)
        value = rest.strip()
        if not value:
            raise ScenarioError("nothing after the '='", remedy="write KEY=null for no value", override=label)
        if value.startswith("@"):
            return Override(location, node_of(value, override=label), label)
        node = parse_node(value, override=label, key=location[-1])
        if node is None or (node.text is not None and node.text != value):
            raise ScenarioError("not one YAML value", remedy=f"write KEY={quoted(value)}", override=label)
        return Override(location, node, label)

    @staticmethod
    def of(location: str | Iterable[str], value: object, label: str | None = None) -> Override:
        """An override by a value at hand: what an option such as `--seed 2` or an argument of the library
        sets."""
        parts = (location,) if isinstance(location, str) else tuple(location)
        label = f"{dotted(parts)}={value!r}" if label is None else label
        return Override(parts, node_of(value, override=printable(label)), printable(label))


def apply_overrides(document: Document | Mapping[str, object], overrides: Iterable[str | Override]) -> Document:
    """The document with every override in place, the later over the earlier; the one given stays as it is.

    Mappings that are missing on the way, or null, are made. Raises `ScenarioError` where an override is
    malformed, or leads through a text, a number or past the end of a list.
    """
    document = document if isinstance(document, Document) else document_of(document)
    root = document.root
    for given in overrides:
        override = Override.parse(given) if isinstance(given, str) else given
        root = _placed(root, override, 0)
    return dataclasses.replace(document, root=root)


def _placed(node: Node, override: Override, depth: int) -> Node:
    """`node` with the override below it; shares all that the override does not touch."""
    if depth == len(override.location):
        # The key keeps its place, so that complaints keep the order of the file.
        return dataclasses.replace(override.node, key_line=node.key_line, key_column=node.key_column)
    part = override.location[depth]
    if node.content is None:
        node = Node({}, node.line, node.column, node.key_line, node.key_column, override=override.label)
    if isinstance(node.content, dict):
        below = node.content.get(part, Node(None, override=override.label))
        return dataclasses.replace(node, content={**node.content, part: _placed(below, override, depth + 1)})
    here = dotted(override.location[:depth])
    if isinstance(node.content, list):
        if not (part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(node.content)):
            remedy = f"name an item from 0 to {len(node.content) - 1}" if node.content else "the list is empty"
            raise ScenarioError(f"{here}: a list has no {quoted(part)}", remedy=remedy, override=override.label)
        index = int(part)
        items = list(node.content)
        items[index] = _placed(items[index], override, depth + 1)
        return dataclasses.replace(node, content=items)
    what = f"{here}: is {described(node.content)} and has no keys"
    raise ScenarioError(what, remedy=f"set {here} as a whole", override=override.label)


def _key(text: str, label: str) -> tuple[tuple[str, ...], str]:
    """The parts of the key, and what stands after the `=`."""
    parts: list[str] = []
    at = 0
    while match := _PART.match(text, at):
        part = match["bare"].strip() if match["bare"] is not None else _unquoted(match[0], label)
        if not part or len(part) > MAX_KEY or UNPRINTABLE.search(part):
            break
        parts.append(part)
        at = match.end()
        if text.startswith("=", at):
            if len(parts) > MAX_DEPTH:
                raise ScenarioError(f"nested deeper than {MAX_DEPTH} levels", override=label)
            return tuple(parts), text[at + 1 :]
        if not text.startswith(".", at):
            break
        at += 1
    if "=" not in text:
        raise ScenarioError("no '='", remedy="write KEY=VALUE", override=label)
    raise ScenarioError("not a key before the '='", remedy="join keys by dots, quote one that holds a dot", override=label)


def _unquoted(text: str, label: str) -> str:
    node = parse_node(text, override=label)
    return node.content if node is not None and isinstance(node.content, str) else ""
