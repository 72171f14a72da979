"""A real headless Chromium with no network, as fixtures for tests of pages.

A conftest takes them by path (see tests/report/conftest.py): some packages install a top-level `tests`, which hides ours.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Opened:
    """A page that was opened from disk, and everything that went wrong on it or that it asked of the network."""

    page: Any
    problems: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The system's Chromium, started once; a test that needs it is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no {', '.join(NAMES)} on this machine")
    with playwright.sync_playwright() as started:
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
