"""A real headless Chromium with no network, as fixtures for tests of pages.

Run as a program, it ends with 0 if there is a browser (see .ci/find-chromium).
"""

from __future__ import annotations

import html
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Parts of the browser's window that are pages themselves, drawn anew for each page that a test opens.
    "--disable-features=InitialWebUI,WebUIReloadButton,WebUIToolbar,WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUITabStrip,"
    "PreloadTopChromeWebUI",
]


def part_of(page: str, name: str) -> str:
    """The section of a page with this id, folded or not; empty if there is none."""
    match = re.search(rf'<(section|details) id="{re.escape(name)}".*?</\1>', page, re.DOTALL)
    return match[0] if match else ""


def rows_of(part: str) -> list[list[str]]:
    """The rows of the tables in a part of a page, as the plain texts of their cells."""
    rows = re.findall(r"<tr data-row=.*?</tr>", part, re.DOTALL)
    return [
        [
            " ".join(html.unescape(re.sub("<[^>]*>", " ", cell)).split())
            for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)
        ]
        for row in rows
    ]


@dataclass
class Opened:
    """A page that was opened from disk, and everything that went wrong on it or that it asked of the network."""

    page: Any
    problems: list[str] = field(default_factory=list)

    def unfold(self) -> None:
        """Open every closed section, as a reader would; its figures are then drawn."""
        self.page.evaluate("() => document.querySelectorAll('details').forEach((part) => { part.open = true; })")


def assert_folded(page: Any) -> None:
    """Of a reproduction's page as it opens: its length on a desk and on a phone, and that it is no wider than a phone."""
    size = page.viewport_size
    for width, height, longest in ((1440, 900, 10_800), (400, 800, 9_600)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function("width => document.documentElement.scrollWidth === width", arg=width)
        assert page.evaluate("() => document.documentElement.scrollHeight") <= longest
    page.set_viewport_size(size)


def find(started: Any) -> str | None:
    """The system's browser, else the one that playwright installed for itself."""
    bundled = started.chromium.executable_path
    return next(filter(None, map(shutil.which, NAMES)), None) or (bundled if Path(bundled).exists() else None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Chromium, started once; a test that needs it is skipped where there is none, or fails if SIMNMT_BROWSER is `required`."""
    missing = pytest.fail if os.environ.get("SIMNMT_BROWSER") == "required" else pytest.skip
    try:
        from playwright import sync_api
    except ImportError:
        missing("playwright is not installed")
    with ExitStack() as stack:
        try:
            started = stack.enter_context(sync_api.sync_playwright())
        except Exception as error:  # a library of the system that its program needs is not installed
            missing(f"playwright does not start: {error}")
        path = find(started)
        if path is None:
            missing(f"no {', '.join(NAMES)} on this machine, and none of playwright's own")
        browser = started.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def open_page(chromium: Any) -> Callable[..., AbstractContextManager[Opened]]:
    """`with open_page(path, viewport=..., color_scheme=...) as opened:` opens a file in a window of its own.

    Give `wait_for_function` a function, not an expression: playwright evaluates that as text, which the page forbids.
    """
    return lambda path, **context: open_file(chromium, path, **context)


@contextmanager
def open_file(browser: Any, path: Path, **context: Any) -> Iterator[Opened]:
    """Open a file by its file:// address, offline; `context` goes to the browser (viewport, color_scheme, ...)."""
    with browser.new_context(offline=True, **context) as visit:
        opened = Opened(visit.new_page())
        note = opened.problems.append
        opened.page.on("console", lambda message: note(message.text) if message.type in ("error", "warning") else None)
        opened.page.on("pageerror", lambda error: note(str(error)))
        opened.page.on("request", lambda request: note(f"asks for {request.url}") if _leaves(request.url) else None)
        opened.page.on("dialog", lambda dialog: (note(f"dialog {dialog.message}"), dialog.dismiss()))
        opened.page.goto(path.resolve().as_uri())
        yield opened


def _leaves(url: str) -> bool:
    return not url.startswith(("file:", "data:", "blob:"))


if __name__ == "__main__":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        sys.exit(find(playwright) is None)
