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
    yield from ("", f"{'#' * level} {path}", "", _unfolded(text), "", "```text", usage, "```")
    for example in examples:
        yield from ("", '```text title="Example"', " ".join(example.split()), "```")
    heading, groups = "Options", dict[str, list[tuple[str, str]]]()
    for parameter in command.get_params(context):
        is_argument = parameter.param_type_name == "argument"
        heading = "Options" if is_argument else getattr(parameter, "rich_help_panel", None) or heading
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            groups.setdefault("Arguments" if is_argument else heading, []).append(record)
    for title, records in groups.items():
        yield from ("", f"| {title} | |", "|---|---|")
        yield from (f"| {_code(re.sub(r' <[a-z]+>$', '', names))} | {_cell(help_text)} |" for names, help_text in records)
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from _verb(below, f"{path} {name}", level + 1)


def scenario_page() -> str:
    """Return the page of the scenario's keys, from the JSON Schema that `simnmt schema` prints."""
    from simnmt.scenario.template import schema_text

    return _Keys(json.loads(schema_text())).page()


class _Keys:
    """The schema of scenario files as tables: one for the file, then one for each block of keys, in the order of their places."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.places: dict[str, list[str]] = {}
        """Where a block may stand, such as `workloads.NAME.arrivals`."""
        self._visit(schema, "")

    def page(self) -> str:
        """Return the Markdown of the page."""
        lines = [
            "# Every key of a scenario file",
            "",
            "This page is made from the models that check a scenario file; `simnmt schema` prints the same as JSON Schema.",
            "[The scenario file](scenario.md) explains the keys and shows examples. Units are part of the names: `_ms` are",
            "milliseconds, `_s` seconds, `_mbps` megabits a second, `_rps` requests a second. `NAME` stands for a name that",
            "you choose.",
            "",
            "## The file",
            "",
            *self._table(self.schema),
        ]
        for name, places in self.places.items():
            block = self.schema["$defs"][name]
            lines += ["", f"## {name}", "", f"At {', '.join(map(_code, places))}."]
            lines += ["", _unfolded(block["description"])] if "description" in block else []
            lines += ["", *self._table(block)]
        return "\n".join(lines) + "\n"

    def _table(self, block: dict[str, Any]) -> Iterator[str]:
        required = block.get("required", ())
        yield from ("| key | value | default | meaning |", "|---|---|---|---|")
        for key, entry in block.get("properties", {}).items():
            default = "required" if key in required else _code(json.dumps(entry["default"])) if "default" in entry else ""
            yield f"| `{key}` | {self._value(entry)} | {default} | {_cell(entry.get('description', ''))} |"

    def _visit(self, entry: Any, place: str) -> None:
        """Note the places of all blocks that an entry of the schema names, in the order of the file."""
        if "$ref" in entry:
            name = entry["$ref"].rpartition("/")[2]
            known = name in self.places
            noted = self.places.setdefault(name, [])
            if place not in noted:
                noted.append(place)
            if not known:
                self._visit(self.schema["$defs"][name], place)
        for key, below in entry.get("properties", {}).items():
            self._visit(below, f"{place}.{key}".lstrip("."))
        for alternative in (*entry.get("anyOf", ()), *entry.get("oneOf", ())):
            self._visit(alternative, place)
        if isinstance(entry.get("additionalProperties"), dict):
            self._visit(entry["additionalProperties"], f"{place}.NAME")
        if "items" in entry:
            self._visit(entry["items"], f"{place}[]")

    def _value(self, entry: dict[str, Any]) -> str:
        """Return what a key may hold: a type with its limits, a choice, or a link to a block."""
        if "$ref" in entry:
            name = entry["$ref"].rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        if "const" in entry:
            return _code(json.dumps(entry["const"]))
        if "enum" in entry:
            return " or ".join(_code(json.dumps(value)) for value in entry["enum"])
        for form in ("anyOf", "oneOf"):
            if form in entry:
                return " or ".join(dict.fromkeys(self._value(one) for one in entry[form]))
        kind = {"null": "null", "array": "list", "object": "mapping"}.get(entry.get("type", ""), entry.get("type", "any"))
        if kind == "list" and "items" in entry:
            return f"list of {self._value(entry['items'])}"
        if kind == "mapping" and isinstance(entry.get("additionalProperties"), dict):
            return f"by name: {self._value(entry['additionalProperties'])}"
        signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
        limits = [f"{sign} {entry[name]:g}" for name, sign in signs.items() if name in entry]
        return " ".join([kind, ", ".join(limits)]).strip()


def python_page() -> str:
    """Return the page of the public names, which mkdocstrings fills from their docstrings."""
    import simnmt

    lines = [
        "# Every public name",
        "",
        "This page is made from the docstrings; `help(simnmt.run)` prints the same. [The Python interface](python.md) shows how",
        "the names work together.",
    ]
    names = [name for name in simnmt.__all__ if not name.startswith("_")]
    for name in sorted(names, key=lambda name: (not name.islower(), name)):
        lines += ["", f"::: {simnmt._HOMES[name]}.{name}"]
    return "\n".join(lines) + "\n"


def _unfolded(text: str) -> str:
    """Return paragraphs, each in one line."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


def _cell(text: str) -> str:
    """Return a text for a cell of a table, without signs that Markdown would take for its own."""
    signs = re.compile(r"[<>\[\]|*]")
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part.replace("|", "\\|") if part[:1] == "`" else signs.sub(_entity, part) for part in parts)


def _entity(sign: re.Match[str]) -> str:
    return f"&#{ord(sign[0])};"


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


PAGES: dict[str, Callable[[], str]] = {"verbs": verbs_page, "scenario-keys": scenario_page, "python-names": python_page}
"""The generated pages below reference/, by name."""
