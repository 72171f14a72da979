"""What the documentation points to is there."""

from __future__ import annotations

import functools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from simnmt.cli.app import application

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(path for room in ("docs", "traces") for path in (ROOT / room).rglob("*.md"))])
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)[^)]*\)|<img src=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ELSEWHERE = ("http://", "https://", "mailto:")
CHECKOUT = ("https://github.com/simnmt/simnmt/blob/main/", "https://raw.githubusercontent.com/simnmt/simnmt/main/")
"""Addresses that stand for a file of the checkout: the README uses them, since PyPI shows it beside no other file."""


@functools.cache
def command_line() -> Any:
    """Return the command with all its verbs."""
    return typer.main.get_command(application())


def links(text: str) -> list[str]:
    """Where a page's links and pictures go, code aside."""
    return [inline or image for inline, image in LINK.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", text)))]


def anchors(text: str) -> set[str]:
    """What a `#` can name in a page: its headings in small letters, blanks as hyphens, other signs left out."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(FENCE.sub("", text))}


def broken(page: Path) -> list[str]:
    """Return the links of a page that lead to no file of the checkout, or to no heading of it."""
    wrong = []
    for link in links(page.read_text(encoding="utf-8")):
        address = next((address for address in CHECKOUT if link.startswith(address)), None)
        if address is None and link.startswith(ELSEWHERE):
            continue
        path, _, anchor = link.removeprefix(address or "").partition("#")
        folder = page.parent if address is None else ROOT
        target = (folder / path).resolve() if path else page
        exists = target.exists() and target.is_relative_to(ROOT)
        if not exists or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_relative_links_lead_to_files_that_exist(page: Path) -> None:
    assert broken(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_prose_is_wrapped_at_100_columns(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    assert [line for line in prose.splitlines() if len(line) > 100 and " " in line.strip("- ") and line[0] not in "|!#<"] == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path.resolve() / "root")
    page = tmp_path / "root" / "page.md"
    page.parent.mkdir()
    (tmp_path / "outside.md").touch()
    page.write_text(
        "# What it is, then\n[good](page.md) [good](#what-it-is-then) ![good](https://example.org/x.png) `[code](none)`\n"
        "```text\n[code](none)\n```\n[a](none.md) ![b](none.png 'title') [c](#nothing) [d](../outside.md)\n"
    )
    assert broken(page) == ["none.md", "none.png", "#nothing", "../outside.md"]


def test_absolute_links_to_the_checkout_that_lead_nowhere_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path.resolve())
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# A heading\n")
    page = tmp_path / "README.md"
    blob, raw = CHECKOUT
    good = [f"{blob}docs/page.md", f"{blob}docs/page.md#a-heading", f"{blob}README.md", f"{raw}docs/page.md"]
    bad = [f"{blob}page.md", f"{blob}docs/page.md#another", f"{raw}docs/page.png", f"{blob}../README.md"]
    page.write_text("".join(f'[it]({link})\n<img src="{link}" alt="it">\n' for link in good + bad))
    assert broken(page) == [link for link in bad for _ in ("inline", "image")]


def test_every_link_of_the_readme_is_absolute_so_that_it_works_on_pypi() -> None:
    readme = links((ROOT / "README.md").read_text(encoding="utf-8"))
    assert [link for link in readme if not link.startswith("https://")] == []
    assert {f"{CHECKOUT[0]}docs/reference/scenario.md", f"{CHECKOUT[1]}docs/page.png"} <= set(readme)


def test_the_readme_is_short_enough_for_a_stranger() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_address_of_the_project_is_that_of_its_metadata() -> None:
    source = re.search(r'^Source = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert source and CHECKOUT[0] == f"{source.group(1)}/blob/main/"


def test_there_is_something_to_check() -> None:
    assert {"README.md", "invariants.md", "scenario.md"} <= {page.name for page in PAGES}
    assert "reference/scenario.md" in links((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))


def test_every_invariant_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "reference" / "invariants.md").read_text(encoding="utf-8")
    table = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert len(table) > 10
    for line in table:
        _, _, where, _ = line.split("|")
        named = re.findall(r"`([^`]+)`", where)
        assert named, f"no test named in: {line}"
        assert [name for name in named if not (ROOT / "tests" / name).is_file()] == []


def test_the_table_of_verbs_names_every_verb_of_the_command_line() -> None:
    text = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    table = text.partition("\n## Verbs\n")[2].partition("\n## ")[0]
    firsts = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `simnmt ")]
    for name, command in command_line().commands.items():
        rows = [first for first in firsts if f"`simnmt {name}" in first]
        assert rows, f"no row for simnmt {name}"
        named = set(re.findall(r"[a-z-]+", " ".join(rows)))
        assert set(getattr(command, "commands", ())) <= named, f"no row names all verbs of simnmt {name}"


def test_the_runner_of_examples_refuses_a_scenario_that_a_run_would_refuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import run_examples

    blocks = {
        "yaml": "arrivals: {kind: poisson, rate_rps: 2.5}\n",
        "yaml ": "networks:\n  office: {rtt: office.csv}\n",
        "yaml not-run": "networks: none\n",
        "yaml  ": "arrivals: {kind: poison}\n",
    }
    page = tmp_path / "page.md"
    page.write_text("".join(f"```{marker.rstrip()}\n{text}```\n" for marker, text in blocks.items()))
    assert run_examples.run(page) == (2, 1)
    assert "page.md:12: arrivals: {kind: poison}" in capsys.readouterr().err


def test_a_scenario_block_with_a_name_is_a_file_of_the_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import run_examples

    scenario = "".join(f"{key}: {value}\n" for key, value in run_examples.BASE.items()).replace("'", '"')
    page, kept = tmp_path / "page.md", tmp_path / "kept"
    kept.mkdir()
    blocks = {
        "console": "$ printf 'time_s,rtt_ms\\n0,50\\n' > line.csv\n",
        "yaml": f"# mine.yaml\n{scenario.replace('@cp1', 'line.csv')}",
        "console ": "$ head -1 mine.yaml\n# mine.yaml\n",
        "yaml ": f"# lost.yaml\n{scenario.replace('@cp1', 'lost.csv')}",
    }
    page.write_text("".join(f"```{language.rstrip()}\n{text}```\n" for language, text in blocks.items()))
    assert run_examples.run(page, kept) == (3, 1)
    assert "lost.csv" in capsys.readouterr().err
    assert (kept / "mine.yaml").is_file()


def test_pictures_of_the_tutorial_are_small_and_all_made_by_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("playwright")
    monkeypatch.syspath_prepend(ROOT / "docs")
    import make_pictures

    made = {picture for pictures in make_pictures.PICTURES.values() for picture, _, _ in pictures}
    stored = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / "tutorial").rglob("*.png")}
    assert made == stored | {"page.png"}
    assert all((ROOT / "docs" / picture).stat().st_size < 120_000 for picture in made)
    assert all((ROOT / "docs" / "tutorial" / page).is_file() for page in make_pictures.PICTURES)


def title(page: Path) -> str:
    heading = HEADING.search(page.read_text(encoding="utf-8"))
    assert heading is not None, page
    return heading[1]


@pytest.mark.parametrize("folder", ["tutorial", "how-to", "background", "background/papers", "gallery"])
def test_the_home_page_lists_every_page_by_its_title(folder: str) -> None:
    listed = (ROOT / "docs" / "index.md").read_text(encoding="utf-8").splitlines()
    pages = [page for page in sorted((ROOT / "docs" / folder).iterdir()) if page.suffix == ".md"]
    assert pages
    assert [line for page in pages if (line := f"- [{title(page)}]({folder}/{page.name})") not in listed] == []


UNRUN = re.compile(r"^```(?:console not-run|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = [
    pytest.param(command, id=f"{page.relative_to(ROOT).as_posix()}:{place}")
    for page in PAGES
    for place, command in enumerate(
        line.removeprefix("$ ").split(" # ")[0].strip()
        for block in UNRUN.findall(page.read_text(encoding="utf-8").replace("\\\n", " "))
        for line in block.splitlines()
        if line.removeprefix("$ ").startswith("simnmt ")
    )
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_only_read_names_a_verb_and_its_options(command: str) -> None:
    """Commands that need models, another box or minutes; their values are not checked."""
    words = shlex.split(command.split(" | ")[0].split(" > ")[0].removesuffix("&").strip())[1:]
    verb = command_line()
    known = {name for option in verb.params for name in (*option.opts, *option.secondary_opts)}
    while words and hasattr(verb, "commands") and words[0] in verb.commands:
        verb = verb.commands[words.pop(0)]
        known |= {name for option in verb.params for name in (*option.opts, *option.secondary_opts)}
    assert not hasattr(verb, "commands") or not words or words[0].startswith("-"), f"no verb: {command}"
    assert {word.split("=")[0] for word in words if word.startswith("--") and word != "--"} <= known | {"--help"}
