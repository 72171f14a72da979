"""Pages of the reference that the build makes from the code: the verbs, the keys of a scenario, the Python names.

Nothing of them is stored, so that they cannot differ from the code. Other pages link to them by their address on the site.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    for name, text in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text()))


def verbs_page() -> str:
    """Return the page of the command line: every verb with its arguments and options, as in its `--help`."""
    from typer.main import get_command

    from simnmt.cli.app import application

    command = get_command(application())
    lines = [
        "# Every verb and its options",
        "",
        "This page is made from the command line itself; `simnmt VERB --help` prints the same. What all verbs have in common",
        "(exit statuses, `-`, `--force`, messages) is on the page [The command line](command-line.md).",
    ]
    context = command.make_context("simnmt", ["--help"], resilient_parsing=True)
    for name in command.list_commands(context):
        lines += _verb(command.commands[name], f"simnmt {name}", 2)
    return "\n".join(lines) + "\n"


def _verb(command: Any, path: str, level: int) -> Iterator[str]:
    """Yield the lines of one verb and of the verbs below it."""
    context = command.make_context(path, [], resilient_parsing=True)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    text, *examples = re.split(r"^Examples?: ", command.help or "", flags=re.MULTILINE)
    yield from ("", f"{'#' * level} {path}", "", _join_lines(text), "", "```text", usage, "```")
    for example in examples:
        yield from ("", '```text title="Example"', " ".join(example.split()), "```")
    heading, groups = "Options", dict[str, list[tuple[str, str]]]()
    for parameter in command.get_params(context):
        is_argument = parameter.param_type_name == "argument"
        heading = "Options" if is_argument else getattr(parameter, "rich_help_panel", None) or heading
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            # typer adds its type to the name of an argument
            names = re.sub(r" <[\w\[\]]+>$", "", record[0]) if is_argument else record[0]
            groups.setdefault("Arguments" if is_argument else heading, []).append((names, record[1]))
    for title, records in groups.items():
        yield from ("", f"| {title} | |", "|---|---|")
        yield from (f"| {_code(names)} | {_cell(meaning)} |" for names, meaning in records)
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from _verb(below, f"{path} {name}", level + 1)


def scenario_page() -> str:
    """Return the page of the scenario's keys, from the JSON Schema that `simnmt schema` prints."""
    from simnmt.scenario.template import schema_text

    return _Keys(json.loads(schema_text())).page()


class _Keys:
    """The schema of scenario files as tables: one for the file, then one for each block of keys, in the order of the file."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.places: dict[str, list[str]] = {}
        """Where each block may stand, such as `workloads.NAME.arrivals`."""
        self._visit(schema, "")
        self.titles = {name: self._title(name) for name in self.places}

    def page(self) -> str:
        """Return the Markdown of the page."""
        lines = [
            "# Every key of a scenario file",
            "",
            "This page is made from the models that check a scenario file; `simnmt schema` prints the same as JSON Schema.",
            "[The scenario file](scenario.md) explains the keys and shows examples. The end of a key's name is its unit: `_ms`",
            "milliseconds, `_s` seconds, `_mbps` megabits a second, `_rps` requests a second. `NAME` is a name that you",
            "choose, `[]` stands for the entries of a list. *Left out* in a meaning says what holds without the key.",
            "",
            "## The file",
            "",
            *self._table(self.schema),
        ]
        section = ""
        for name, places in self.places.items():
            block = self.schema["$defs"][name]
            top = places[0].partition(".")[0]
            title = self.titles[name]
            if top not in (section, title):
                lines += ["", f"## {top}"]
            section = top
            lines += ["", f"{'##' if title == top else '###'} {title} {{#{name.lower()}}}"]
            lines += ["", f"At {', '.join(map(_code, places))}."]
            lines += ["", _join_lines(block["description"])] if "description" in block else []
            lines += ["", *self._table(block)]
        return "\n".join(lines) + "\n"

    def _title(self, name: str) -> str:
        """Return the key that holds a block, with its kind, or with the required key that tells it from others."""
        block, place = self.schema["$defs"][name], self.places[name][0]
        key = [part for part in place.replace("[]", "").split(".") if part != "NAME"][-1]
        rivals = [other for other, places in self.places.items() if place in places]
        if "const" in (kind := block["properties"].get("kind", {})):
            return f"{key}: {kind['const']}"
        common = {required for other in rivals if other != name for required in self._required(other)}
        return f"{key}: {next(part for part in self._required(name) if part not in common)}" if len(rivals) > 1 else key

    def _required(self, name: str) -> list[str]:
        """Return the keys that a block must have; all of its keys if it must have none."""
        block = self.schema["$defs"][name]
        return block.get("required") or list(block["properties"])

    def _table(self, block: dict[str, Any]) -> Iterator[str]:
        required = block.get("required", ())
        yield from ("| key | value | default | meaning |", "|---|---|---|---|")
        for key, entry in block.get("properties", {}).items():
            default = _literal(entry["default"]) if "default" in entry else "required" if key in required else ""
            yield f"| {_code(key)} | {self._value(entry)} | {default} | {_cell(entry.get('description', ''))} |"

    def _visit(self, entry: Any, place: str) -> None:
        """Note the places of all blocks that an entry of the schema names, in the order of the file."""
        if "$ref" in entry:
            name = entry["$ref"].rpartition("/")[2]
            is_new = name not in self.places
            places = self.places.setdefault(name, [])
            if place not in places:
                places.append(place)
            if is_new:
                self._visit(self.schema["$defs"][name], place)
        for alternative in (*entry.get("anyOf", ()), *entry.get("oneOf", ())):
            self._visit(alternative, place)
        if isinstance(entry.get("additionalProperties"), dict):
            self._visit(entry["additionalProperties"], f"{place}.NAME")
        else:
            for key, below in entry.get("properties", {}).items():
                self._visit(below, f"{place}.{key}".lstrip("."))
        if "items" in entry:
            self._visit(entry["items"], f"{place}[]")

    def _value(self, entry: dict[str, Any]) -> str:
        """Return what a key may hold: a type with its limits, a choice, or a link to a block."""
        if "$ref" in entry:
            name = entry["$ref"].rpartition("/")[2]
            return f"[{self.titles[name]}](#{name.lower()})"
        if "const" in entry or "enum" in entry:
            return " or ".join(map(_literal, entry.get("enum", [entry.get("const")])))
        for form in ("anyOf", "oneOf"):
            if form in entry:
                return " or ".join(dict.fromkeys(self._value(one) for one in entry[form]))
        kind = entry.get("type", "any")
        if kind == "array":
            return f"list: {self._value(entry['items'])}"
        if kind == "object" and isinstance(entry.get("additionalProperties"), dict):
            return f"by name: {self._value(entry['additionalProperties'])}"
        if kind == "object":
            return "a class of yours" if entry.get("required") == ["kind"] else "mapping"
        signs = {"minimum": "≥", "exclusiveMinimum": "&gt;", "maximum": "≤", "exclusiveMaximum": "&lt;"}
        limits = [f"{sign} {_number(entry[name])}" for name, sign in signs.items() if name in entry]
        return " ".join([kind, ", ".join(limits)]).strip()


def _number(value: float) -> str:
    """Return a limit in digits, or as a power if they would be many."""
    if value == 2**63:
        return "2^63"
    return f"{value:,.0f}" if 1e3 <= value < 1e9 else f"{value:g}"


def _literal(value: Any) -> str:
    """Return a value as a scenario file has it."""
    return _code(value if isinstance(value, str) and value else json.dumps(value))


def python_page() -> str:
    """Return the page of the public names, which mkdocstrings fills from their docstrings."""
    import simnmt

    lines = [
        "# Every public name",
        "",
        "This page is made from the docstrings; `help(simnmt.run)` prints the same. [The Python interface](python.md) shows",
        "how the names work together, and says which attributes are stable by promise.",
    ]
    for name in sorted(simnmt._HOMES, key=lambda name: (not name.islower(), name)):
        lines += ["", f"::: simnmt.{name}"]
    return "\n".join(lines) + "\n"


def _join_lines(text: str) -> str:
    """Return paragraphs, each in one line."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


def _cell(text: str) -> str:
    """Return a text for a cell of a table, its `code` as such, and no other sign as one of Markdown."""
    parts = re.split(r"`([^`]*)`", " ".join(text.split()))
    return "".join(_code(part) if place % 2 else _plain(part) for place, part in enumerate(parts))


def _code(text: str) -> str:
    return f"<code>{_plain(text)}</code>"


def _plain(text: str) -> str:
    """Return text in which Markdown and HTML find no sign of theirs."""
    return re.sub(r"[<>&|*_`\\\[\]]", lambda sign: f"&#{ord(sign[0])};", text)


PAGES: dict[str, Callable[[], str]] = {"verbs": verbs_page, "scenario-keys": scenario_page, "python-names": python_page}
"""The generated pages below reference/, by name."""
