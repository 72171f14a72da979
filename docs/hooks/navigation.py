"""The navigation: a folder in `nav` stands for all of its pages that `nav` does not name itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Put the pages of each folder into the navigation, those of other hooks too."""
    config.nav = expand_folders(config.nav or [], [page.src_uri for page in files.documentation_pages()])


# After the hooks that add pages.
on_files.mkdocs_priority = -100  # type: ignore[attr-defined]


def expand_folders(nav: list[Any], pages: Iterable[str]) -> list[Any]:
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
    return [entry for part in nav for entry in _expand(part, by_folder)]


def _names(nav: Any) -> Iterable[str]:
    """Yield the pages and folders that a navigation names."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _names(part)


def _expand(entry: Any, by_folder: dict[str, list[str]]) -> list[Any]:
    if isinstance(entry, str):
        return by_folder.get(entry, []) if entry.endswith("/") else [entry]
    ((title, parts),) = entry.items()
    if isinstance(parts, str):
        return [entry]
    pages = [page for part in parts for page in _expand(part, by_folder)]
    return [{title: pages}] if pages else []
