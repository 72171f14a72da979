"""Draw `docs/page.png`, the top of the quickstart's page: `python docs/make_page_picture.py [PICTURE]`, a minute.

Needs what the tests need: playwright, and a Chromium on the PATH. The picture is 1280 pixels wide, in the light scheme.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import simnmt

WIDTH, HEIGHT = 1280, 2460
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRAWN = "() => document.querySelectorAll('#cell-0 figure[data-drawn]').length === 4"


def main() -> None:
    """Run the quickstart in a folder that is thrown away, and keep the picture of its page."""
    picture = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("page.png")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        run = Path(folder) / "run"
        simnmt.run("@quickstart", out=run)
        path = next(filter(None, map(shutil.which, BROWSERS)))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto((run / "report.html").as_uri())
        page.wait_for_function(DRAWN)
        page.screenshot(path=picture, clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT})
        browser.close()


if __name__ == "__main__":
    main()
