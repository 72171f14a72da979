"""What changes in the text of a page, so that the same text serves a checkout, GitHub and the site.

A link from a page to a file outside of the site (`../../CHANGELOG.md`, a script, a scenario) becomes the address of that
file at GitHub. An address on the site itself, which a page uses for pages that the
build makes, becomes a relative link: it works from disk, and the build refuses it if it leads nowhere. The mark `not-run` of
code blocks, which is for docs/run_examples.py, is left out.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "https://github.com/simnmt/simnmt"
SITE = "https://simnmt.github.io/simnmt/"
CODE = re.compile(r"(^(?P<fence>```+|~~~+).*?^(?P=fence)[^\n]*$|(?<!`)`[^`\n]+`(?!`))", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"^(```\w+) not-run$", re.MULTILINE)
LINK = re.compile(r"(?P<before>\]\(\s*<?)(?P<target>[^)\s>]+)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files, **_: Any) -> str:
    """Return the text of a page as the site needs it."""
    return rewrite_links(
        NOT_RUN.sub(r"\1", markdown), page.file.src_uri, {file.src_uri for file in files if file.inclusion.is_included()}
    )


def rewrite_links(markdown: str, page: str, site: set[str]) -> str:
    """Return the text of a page with its links rewritten, but not what stands in code.

    Args:
        markdown: the text.
        page: its path below docs/.
        site: the paths below docs/ of all files of the site.
    """
    parts = CODE.split(markdown)
    # Each match leaves itself and the fence's name between the texts.
    for place in range(0, len(parts), 3):
        parts[place] = LINK.sub(lambda link: link["before"] + _target(link["target"], page, site), parts[place])
    return "".join(part for place, part in enumerate(parts) if place % 3 != 2)


def _target(target: str, page: str, site: set[str]) -> str:
    """Return where a link leads on the site."""
    folder = posixpath.dirname(page)
    address, hash_, anchor = target.partition("#")
    if address.startswith(SITE):
        name = address.removeprefix(SITE).removesuffix(".html") or "index"
        return posixpath.relpath(f"{name}.md", folder or ".") + hash_ + anchor
    if not address or re.match(r"\w+:|/", address):
        return target
    path = posixpath.normpath(posixpath.join("docs", folder, address))
    below = path.removeprefix("docs/")
    if below in site or not (ROOT / path).exists():
        return target  # what is missing is for the strict build to report
    return f"{PROJECT}/{'tree' if (ROOT / path).is_dir() else 'blob'}/main/{path}{hash_}{anchor}"
