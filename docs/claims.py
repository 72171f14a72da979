"""A hook of MkDocs: the table of claims on each paper's page, from the data of its reproduction."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = Path(__file__).parent
HERE = DOCS / "background/papers/here.toml"
"""What was found here, by paper and claim."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace `<!-- claims: NAME -->` by the table of the paper's claims."""
    return re.sub(r"<!-- claims: (\w+) -->", lambda mark: claims_table(mark[1]), markdown)


def claims_table(name: str) -> str:
    """Return the claims of a paper with its printed results and ours. Raises `KeyError` for a claim without a finding."""
    paper = tomllib.loads((DOCS.parent / f"simnmt/papers/data/{name}.toml").read_text(encoding="utf-8"))
    here = tomllib.loads(HERE.read_text(encoding="utf-8"))[name]
    claims = [(key, words[0], words[1]) for key, words in paper["claims"].items()]
    claims += [(item["id"], item["claim"], item.get("published", "")) for item in paper.get("unmeasured", [])]
    rows = [(key, _shown(claim), _shown(published), here.pop(key)) for key, claim, published in claims]
    if here:
        raise KeyError(f"{HERE}: {name} has no claim {', '.join(here)}")
    cells = [("id", "claim", "published", "here"), ("---",) * 4, *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _shown(text: str) -> str:
    """Return a claim without the bounds that only the code knows."""
    return re.sub(r"\{[^}]*\}", "…", re.sub(r" \([^)]*\{[^)]*\)", "", text)).replace("|", "/")
