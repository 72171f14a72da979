"""Lists of pages: a folder in `nav` stands for all of its pages that `nav` does not name itself.

In a page, the line `<!-- pages of how-to/ -->` becomes a list of links to the pages of that folder.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PAGES_OF = re.compile(r"^<!-- pages of (\S+/) -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Put the pages of each folder into the navigation, those of other hooks too."""
    config.nav = listed(config.nav or [], [page.src_uri for page in files.documentation_pages()])


# After the hooks that add pages.
on_files.mkdocs_priority = -100  # type: ignore[attr-defined]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill the lists of pages in a page."""
    if not PAGES_OF.search(markdown):
        return markdown
    return with_lists(markdown, page.file.src_uri, {one.src_uri: one.content_string for one in files.documentation_pages()})


def with_lists(markdown: str, page: str, texts: Mapping[str, str]) -> str:
    """Return the text of a page with its lists of pages, each named by its heading; `texts` are those of all pages by path."""

    def links(folder: re.Match[str]) -> str:
        found = sorted(path for path in texts if posixpath.dirname(path) + "/" == folder[1])
        titles = {path: re.search(r"^# (.+)$", texts[path], re.MULTILINE) for path in found}
        start = posixpath.dirname(page) or "."
        return "\n".join(f"- [{title[1]}]({posixpath.relpath(path, start)})" for path, title in titles.items() if title)

    return PAGES_OF.sub(links, markdown)


def listed(nav: list[Any], pages: Iterable[str]) -> list[Any]:
    """Return `nav` with each folder replaced by its pages by name, `index.md` first; sections without a page are left out.

    Pages of a folder below it belong to that one, if `nav` names it too.
    """
    named = set(_names(nav))
    folders = sorted((name for name in named if name.endswith("/")), key=len, reverse=True)
    by_folder: dict[str, list[str]] = {}
    for page in sorted(pages, key=lambda page: (not page.endswith("/index.md"), page)):
        folder = next((name for name in folders if page.startswith(name)), "")
        if page not in named:
            by_folder.setdefault(folder, []).append(page)
    return [entry for part in nav for entry in _expanded(part, by_folder)]


def _names(nav: Any) -> Iterable[str]:
    """Yield the pages and folders that a navigation names."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _names(part)


def _expanded(entry: Any, by_folder: dict[str, list[str]]) -> list[Any]:
    if isinstance(entry, str):
        return by_folder.get(entry, []) if entry.endswith("/") else [entry]
    ((title, parts),) = entry.items()
    if isinstance(parts, str):
        return [entry]
    pages = [page for part in parts for page in _expanded(part, by_folder)]
    return [{title: pages}] if pages else []
