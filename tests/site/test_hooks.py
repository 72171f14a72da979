"""What the hooks of the site make of pages, folders and code, without a build."""

from __future__ import annotations

import html
import re
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from typer.main import get_command

import simnmt
from simnmt.cli.app import application
from simnmt.scenario.configuration import Scenario

SITE = {"index.md", "reference/scenario.md", "reference/verbs.md", "page.png"}


@pytest.mark.parametrize(
    ("link", "on_the_site"),
    [
        ("../../CHANGELOG.md", "https://github.com/simnmt/simnmt/blob/main/CHANGELOG.md"),
        ("../../scenarios", "https://github.com/simnmt/simnmt/tree/main/scenarios"),
        ("../run_examples.py#L3", "https://github.com/simnmt/simnmt/blob/main/docs/run_examples.py#L3"),
        ("https://simnmt.github.io/simnmt/reference/verbs.html#simnmt-run", "verbs.md#simnmt-run"),
        ("https://simnmt.github.io/simnmt/", "../index.md"),
        ("scenario.md#service-level", "scenario.md#service-level"),
        ("../page.png", "../page.png"),
        ("#here", "#here"),
        ("mailto:a@example.org", "mailto:a@example.org"),
        ("https://example.org/CHANGELOG.md", "https://example.org/CHANGELOG.md"),
    ],
)
def test_a_link_that_leads_somewhere_in_a_checkout_leads_there_on_the_site(
    pages: ModuleType, link: str, on_the_site: str
) -> None:
    assert pages.rewrite_links(f"a [text]({link}) here", "reference/page.md", SITE) == f"a [text]({on_the_site}) here"


def test_a_missing_target_is_left_for_the_strict_build_to_refuse(pages: ModuleType) -> None:
    assert pages.rewrite_links("[a](../../none.md)", "reference/page.md", SITE) == "[a](../../none.md)"


def test_code_keeps_what_looks_like_a_link(pages: ModuleType) -> None:
    text = "`[a](../../LICENSE)`\n\n```text\n[a](../../LICENSE)\n```\n"
    assert pages.rewrite_links(text + "[a](../../LICENSE)", "reference/page.md", SITE).count(pages.PROJECT) == 1


def test_the_mark_for_the_runner_of_examples_does_not_reach_the_site(pages: ModuleType) -> None:
    page: Any = SimpleNamespace(file=SimpleNamespace(src_uri="a.md"))
    assert pages.on_page_markdown("```console not-run\n$ make\n```\n", page, None, []) == "```console\n$ make\n```\n"


def test_a_folder_stands_for_its_pages_that_are_not_named(navigation: ModuleType) -> None:
    nav = [
        {"Home": "index.md"},
        {"How-to": ["how-to/last.md", "how-to/", {"More": ["how-to/more/"]}]},
        {"Gallery": ["gallery/"]},
    ]
    pages = ["index.md", "how-to/b.md", "how-to/last.md", "how-to/a.md", "how-to/index.md", "how-to/more/c.md", "other/d.md"]
    assert navigation.expand_folders(nav, pages) == [
        {"Home": "index.md"},
        {"How-to": ["how-to/last.md", "how-to/index.md", "how-to/a.md", "how-to/b.md", {"More": ["how-to/more/c.md"]}]},
    ]


@pytest.fixture(scope="module")
def verbs(reference: ModuleType) -> str:
    return str(reference.verbs_page())


def leaves(command: Any, path: str) -> list[tuple[str, Any]]:
    below = getattr(command, "commands", {})
    return [(path, command), *(leaf for name in below for leaf in leaves(below[name], f"{path} {name}"))]


def test_every_verb_is_on_its_page_with_every_option(verbs: str) -> None:
    sections = dict(re.findall(r"^#+ (simnmt .*)\n((?:(?!^#+ ).*\n)*)", verbs, re.MULTILINE))
    commands = [(path, command) for path, command in leaves(get_command(application()), "simnmt") if path != "simnmt"]
    assert len(commands) > 40 and sections.keys() == {path for path, _ in commands}
    for path, command in commands:
        options = {name for parameter in command.params for name in parameter.opts if name.startswith("--")} - {"--help"}
        assert {name for name in options if name not in sections[path]} == set(), path
        assert not command.help or " ".join(command.help.split()[:4]) in sections[path], path


def test_every_key_of_a_scenario_is_on_its_page(reference: ModuleType) -> None:
    page = html.unescape(reference.scenario_page())
    top, _, rest = page.partition("\n## slo")
    assert set(re.findall(r"^\| <code>(\w+)</code>", top, re.MULTILINE)) == Scenario.model_fields.keys()
    for kind in ("policies: cnmt", "arrivals: poisson", "batching: top_up", "lengths: jsonl", "hops"):
        assert f"\n### {kind} {{#" in rest
    anchors = re.findall(r"\{#(\w+)\}", page)
    assert len(anchors) == len(set(anchors)) > 50
    assert set(re.findall(r"\]\(#(\w+)\)", page)) <= set(anchors)


def test_every_public_name_is_on_the_page_of_python(reference: ModuleType) -> None:
    named = re.findall(r"^::: simnmt\.(\w+)$", reference.python_page(), re.MULTILINE)
    assert {*named, "__version__"} == set(simnmt.__all__)
