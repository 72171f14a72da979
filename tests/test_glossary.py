"""The glossary is in order, and the pages that it names use its words."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "background"
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in (FOLDER / "glossary.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|")
][2:]


def test_terms_are_in_alphabetical_order_and_each_stands_once() -> None:
    terms = [term.casefold() for term, *_ in ROWS]
    assert len(terms) > 100
    assert terms == sorted(set(terms))


def test_a_term_has_one_to_three_sentences_with_a_full_stop() -> None:
    assert [term for term, meaning, *_ in ROWS if not re.fullmatch(r"[^.]+(?:\.[ 0-9][^.]+){0,2}\.", meaning)] == []


def test_the_page_of_a_term_uses_its_words() -> None:
    missing = []
    for term, _, _, more in ROWS:
        link = re.fullmatch(r"\[[^]]+\]\(([^)#]+)(?:#[^)]*)?\)", more)
        assert link is not None, term
        page = (FOLDER / link.group(1)).read_text(encoding="utf-8").casefold()
        # The endings of a word may differ: `decode steps`, `mini-batches`.
        words = [re.sub(r"(ing|es|s)$", "", word) for word in re.findall(r"\w+", term.casefold())]
        if not all(word in page for word in words):
            missing.append(f"{term}: {link.group(1)}")
    assert missing == []
