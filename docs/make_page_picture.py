"""Draw `docs/page.png`, the top of the quickstart's page: `python docs/make_page_picture.py [PICTURE]`, a minute.

Needs what the tests need: playwright, and a Chromium on the PATH. The picture is 1280 pixels wide, in the light scheme, and
ends with the second row of figures.
"""

from __future__ import annotations

import base64
import shutil
import struct
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

import simnmt

WIDTH, MARGIN = 1280, 16
LAST = "#cell-0-share"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRAWN = "() => [...document.querySelectorAll('#cell-0 figure')].every(figure => figure.dataset.drawn)"
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
    """Run the quickstart in a folder that is thrown away, and keep the picture of its page."""
    picture = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("page.png")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        run = Path(folder) / "run"
        simnmt.run("@quickstart", out=run)
        path = next(filter(None, map(shutil.which, BROWSERS)))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        page.goto((run / "report.html").as_uri())
        page.wait_for_function(DRAWN)
        last = page.locator(LAST).bounding_box()
        assert last is not None
        height = round(last["y"] + last["height"]) + MARGIN
        png = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
        page.goto("about:blank")
        picture.write_bytes(of_few_colours(*page.evaluate(PIXELS, base64.b64encode(png).decode())))
        browser.close()


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
