"""Draw the pictures of the README and of the tutorial: `python docs/make_pictures.py [PAGE.md ...]`, two minutes.

The commands of each page of the tutorial run first, as `run_examples.py` runs them. `PICTURES` names the parts of the pages
that they write. Needs what the tests need: playwright, and a Chromium on the PATH. Pictures are in the light scheme.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import run_examples
from pictures import BROWSERS, FLAGS, PIXELS, rectangle_of, reduce_colours
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).resolve().parent
WIDTH, MARGIN = 1100, 16
PICTURES = {
    "1-first-run.md": [
        ("page.png", "first/report.html", ["#cell-0-latency", "#cell-0-parts"]),
        ("tutorial/pictures/first-run.png", "first/report.html", ["#cell-0-share", "#cell-0-rtt"]),
    ],
    "2-your-corpus-and-ping-log.md": [("tutorial/pictures/ping-log.png", "rtt.html", ["#series-0-0"])],
    "3-your-box.md": [("tutorial/pictures/your-box.png", "slow-box.html", ["#profile-0-0", "#profile-0-1"])],
    "4-your-decision.md": [("tutorial/pictures/your-decision.png", "rates/sweep.html", ["#response-response-0"])],
}
"""(picture, page, elements of the page that it shows) by the page of the tutorial whose commands write the page."""
DRAWN = "() => [...document.querySelectorAll('[data-figures] figure')].slice(0, 2).every(figure => figure.dataset.drawn)"
HIDE_BUTTONS = "() => document.querySelectorAll('.controls').forEach(buttons => { buttons.style.display = 'none'; })"


def main() -> None:
    """Run the tutorial's pages named on the command line, or all, in folders that are thrown away, and keep their pictures."""
    names = sys.argv[1:] or PICTURES
    if unknown := set(names) - set(PICTURES):
        sys.exit(f"no pictures of {', '.join(sorted(unknown))} (pages with pictures: {', '.join(PICTURES)})")
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        window = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                _, failed = run_examples.run(DOCS / "tutorial" / name, Path(folder))
                if failed:
                    sys.exit(f"{name}: {failed} of its examples fail, so that its pictures stay as they are")
                for picture, page, elements in PICTURES[name]:
                    (DOCS / picture).write_bytes(photograph(window, Path(folder) / page, elements))
                    print(f"{picture}: {(DOCS / picture).stat().st_size / 1e3:.0f} kB")
        browser.close()


def photograph(window: Any, page: Path, elements: Sequence[str]) -> bytes:
    """Return the picture of the least rectangle of a page that holds the elements, as PNG."""
    window.goto(page.as_uri())
    window.wait_for_function(DRAWN)
    window.evaluate(HIDE_BUTTONS)
    for element in elements:
        window.locator(element).scroll_into_view_if_needed()
        window.wait_for_function("element => document.querySelector(element).dataset.drawn", arg=element)
    png = window.screenshot(full_page=True, clip=rectangle_of(window, [window.locator(name) for name in elements], MARGIN))
    window.goto("about:blank")
    return reduce_colours(*window.evaluate(PIXELS, base64.b64encode(png).decode()))


if __name__ == "__main__":
    main()
