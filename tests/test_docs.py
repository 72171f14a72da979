"""What the documentation points to is there: files, headings, verbs and options. `make docs` checks the links of the site."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from simnmt.cli.app import application

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)[^)]*\)|<img src=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CHECKOUT = re.compile(r"https://(?:github\.com/simnmt/simnmt/(?:blob|tree)|raw\.githubusercontent\.com/simnmt/simnmt)/main/")
"""Addresses that stand for a file of the checkout: the site and PyPI show pages beside no other file."""
COMMANDS = [
    pytest.param(command, id=f"{page.relative_to(ROOT).as_posix()}:{place}")
    for page in PAGES
    for place, command in enumerate(
        line.removeprefix("$ ").split(" # ")[0].strip()
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8").replace("\\\n", " "), re.M | re.S)
        for line in block.splitlines()
        if line.removeprefix("$ ").startswith("simnmt ")
    )
]


def anchors(text: str) -> set[str]:
    """Return what a `#` can name in a page: its headings in small letters, blanks as hyphens, other signs left out."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(FENCE.sub("", text))}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    wrong = []
    for inline, image in LINK.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))):
        link = inline or image
        in_checkout = CHECKOUT.match(link)
        if in_checkout is None and link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = CHECKOUT.sub("", link).partition("#")
        target = ((ROOT if in_checkout else page.parent) / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            wrong.append(link)
    assert wrong == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs/background/papers").glob("*.md")), ids=lambda path: path.stem)
def test_the_table_of_claims_is_what_the_data_of_the_paper_say(page: Path) -> None:
    """`python docs/claims.py` writes it."""
    spec = importlib.util.spec_from_file_location("claims", ROOT / "docs" / "claims.py")
    assert spec is not None and spec.loader is not None
    claims = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(claims)
    text = page.read_text(encoding="utf-8")
    assert claims.MARKED.search(text) and claims.with_tables(text) == text, "run: python docs/claims.py"


@functools.cache
def command_line() -> Any:
    """Return the command with all its verbs."""
    return typer.main.get_command(application())


def test_the_table_of_verbs_names_every_verb_of_the_command_line() -> None:
    text = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    table = text.partition("\n## Verbs\n")[2].partition("\n## ")[0]
    firsts = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `simnmt ")]
    for name, command in command_line().commands.items():
        rows = [first for first in firsts if f"`simnmt {name}" in first]
        named = set(re.findall(r"[a-z-]+", " ".join(rows)))
        assert rows and set(getattr(command, "commands", ())) <= named, name


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_only_read_names_a_verb_and_its_options(command: str) -> None:
    """Commands that need models, another box or minutes; their values are not checked."""
    words = shlex.split(command.split(" | ")[0].split(" > ")[0].removesuffix("&").strip())[1:]
    verb = command_line()
    known = {name for option in verb.params for name in (*option.opts, *option.secondary_opts)}
    while words and hasattr(verb, "commands") and words[0] in verb.commands:
        verb = verb.commands[words.pop(0)]
        options = verb.get_params(typer.Context(verb))
        known |= {name for option in options for name in (*option.opts, *option.secondary_opts)}
    assert not hasattr(verb, "commands") or not words or words[0].startswith("-"), f"no verb: {command}"
    assert {word.split("=")[0] for word in words if word.startswith("--") and word != "--"} <= known | {"--help"}
