"""Write the table of claims into each paper's page: `python docs/claims.py`.

A table stands between `<!-- claims: NAME -->` and `<!-- end of claims -->`. Claims and published results come from
`simnmt/papers/data/NAME.toml`, what was found from `background/papers/here.toml`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = Path(__file__).resolve().parent
PAPERS = DOCS / "background" / "papers"
HERE = PAPERS / "here.toml"
"""What was found here, by paper and claim."""
MARKED = re.compile(r"<!-- claims: (\w+) -->\n.*?<!-- end of claims -->", re.DOTALL)


def with_tables(markdown: str) -> str:
    """Return the page with each table of claims written anew."""
    return MARKED.sub(
        lambda mark: f"<!-- claims: {mark[1]} -->\n\n{claims_table(mark[1])}\n\n<!-- end of claims -->",
        markdown,
    )


def claims_table(name: str) -> str:
    """Return the claims of a paper with its printed results and ours. Raises `KeyError` for a claim without a finding."""
    paper = tomllib.loads((DOCS.parent / f"simnmt/papers/data/{name}.toml").read_text(encoding="utf-8"))
    here = tomllib.loads(HERE.read_text(encoding="utf-8"))[name]
    claims = [(key, words[0], words[1] or "no figure") for key, words in paper["claims"].items()]
    claims += [(item["id"], item["claim"], item.get("published", "so in the text")) for item in paper.get("unmeasured", [])]
    rows = [(key, _shown(claim), _shown(published), here.pop(key)) for key, claim, published in claims]
    if here:
        raise KeyError(f"{HERE}: {name} has no claim {', '.join(here)}")
    cells = [("id", "claim", "published", "here"), ("---",) * 4, *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _shown(text: str) -> str:
    """Return a claim without the bounds that only the code knows."""
    return re.sub(r"\{[^}]*\}", "…", re.sub(r" \([^)]*\{[^)]*\)", "", text)).replace("|", "/")


if __name__ == "__main__":
    for page in sorted(PAPERS.glob("*.md")):
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
