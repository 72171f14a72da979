"""Draw the pictures of the README and of the tutorial: `python docs/make_pictures.py`, two minutes.

The commands of each page of the tutorial run first, as `run_examples.py` runs them. `PICTURES` names the parts of the pages
that they write. Needs what the tests need: playwright, and a Chromium on the PATH. Pictures are in the light scheme.
"""

from __future__ import annotations

import base64
import shutil
import struct
import sys
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import run_examples
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).resolve().parent
WIDTH, MARGIN = 1100, 16
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
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
PIXELS = """async png => {
    const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    const bytes = context.getImageData(0, 0, image.width, image.height).data;
    const part = 30000, texts = [];
    for (let at = 0; at < bytes.length; at += part) texts.push(btoa(String.fromCharCode(...bytes.subarray(at, at + part))));
    return [image.height, texts];
}"""


def main() -> None:
    """Run the tutorial in folders that are thrown away, and keep the pictures of its pages."""
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        for name, pictures in PICTURES.items():
            with tempfile.TemporaryDirectory() as folder:
                _, failed = run_examples.run(DOCS / "tutorial" / name, Path(folder))
                if failed:
                    sys.exit(f"{name}: {failed} of its examples fail, so that its pictures stay as they are")
                for picture, page, elements in pictures:
                    (DOCS / picture).write_bytes(photograph(window, Path(folder) / page, elements))
                    print(f"{picture}: {(DOCS / picture).stat().st_size / 1e3:.0f} kB")
        browser.close()


def photograph(window: Any, page: Path, elements: Sequence[str]) -> bytes:
    """Return the picture of the least rectangle of a page that holds the elements, as PNG."""
    window.goto(page.as_uri())
    window.wait_for_function(DRAWN)
    window.evaluate(HIDE_BUTTONS)
    boxes = []
    for element in elements:
        window.locator(element).scroll_into_view_if_needed()
        window.wait_for_function("element => document.querySelector(element).dataset.drawn", arg=element)
    scrolled = window.evaluate("() => window.scrollY")
    for element in elements:
        box = window.locator(element).bounding_box()
        assert box is not None
        boxes.append((box["x"], box["y"] + scrolled, box["x"] + box["width"], box["y"] + scrolled + box["height"]))
    left, top, right, bottom = (pick(ends) for pick, ends in zip((min, min, max, max), zip(*boxes, strict=True), strict=True))
    left, right = max(left - MARGIN, 0), min(right + MARGIN, WIDTH)
    clip = {"x": left, "y": top - MARGIN, "width": right - left, "height": bottom - top + 2 * MARGIN}
    png = window.screenshot(full_page=True, clip=clip)
    window.goto("about:blank")
    return of_few_colours(*window.evaluate(PIXELS, base64.b64encode(png).decode()))


def of_few_colours(height: int, texts: list[str]) -> bytes:
    """The same picture as PNG in its 256 commonest colours, others by the nearest of them: 150 kB, not 360."""
    pixels = np.frombuffer(b"".join(map(base64.b64decode, texts)), np.uint8).reshape(-1, 4)[:, :3]
    colours, number, count = np.unique(pixels, axis=0, return_inverse=True, return_counts=True)
    kept = colours[np.argsort(-count, kind="stable")[:256]]
    nearest = np.array([((kept.astype(int) - colour) ** 2).sum(axis=1).argmin() for colour in colours.astype(int)], np.uint8)
    rows = np.pad(nearest[number.ravel()].reshape(height, -1), ((0, 0), (1, 0)))  # each row begins with its filter: none
    header = struct.pack(">IIBBBBB", rows.shape[1] - 1, height, 8, 3, 0, 0, 0)
    chunks: list[tuple[bytes, Any]] = [
        (b"IHDR", header),
        (b"PLTE", kept.tobytes()),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


if __name__ == "__main__":
    main()
