"""Photograph figures and pages for the documentation, as small PNG files of few colours.

Needs what the tests need: playwright, and a Chromium on the PATH. `make_gallery.py` uses it.
"""

from __future__ import annotations

import base64
import shutil
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
FIGURE_WIDTH, FIGURE_HEIGHT = 720, 400
PART_WIDTH, TOP_WIDTH, PAGE_HEIGHT = 800, 1140, 800
SCALE = 1.5
"""Pixels of a picture for each pixel of a figure or of a part of a page: lines stay sharp on dense screens."""
COLOURS = 80
MARGIN = 12
TOP = "top"
"""First word of a part that begins at the top of the page."""
DRAWN = "selector => [...document.querySelectorAll(selector)].every(figure => figure.dataset.drawn)"
UNFOLD = "() => document.querySelectorAll('details').forEach(part => { part.open = true; })"
PIXELS = """async png => {
    const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    const bytes = context.getImageData(0, 0, image.width, image.height).data;
    const part = 30000, texts = [];
    for (let at = 0; at < bytes.length; at += part) texts.push(btoa(String.fromCharCode(...bytes.subarray(at, at + part))));
    return [image.height, texts];
}"""
BLANK = "<!doctype html><style>body { margin: 0; background: white; font-family: sans-serif; }</style><div id='chart'></div>"


class Photographer:
    """Makes pictures in one browser window, without a network."""

    def __init__(self, browser: Any) -> None:
        def window(width: int, scale: float) -> Any:
            size = {"width": width, "height": PAGE_HEIGHT}
            return browser.new_page(viewport=size, offline=True, color_scheme="light", device_scale_factor=scale)

        self._canvas, self._parts, self._tops = window(FIGURE_WIDTH, SCALE), window(PART_WIDTH, SCALE), window(TOP_WIDTH, 1.0)
        self._plotly_loaded = False

    def figure(self, figure: Any, width: int = FIGURE_WIDTH, height: int = FIGURE_HEIGHT) -> bytes:
        """Return the picture of a plotly figure; its own width and height win."""
        if not self._plotly_loaded:
            from plotly.offline import get_plotlyjs

            self._canvas.set_content(BLANK)
            self._canvas.add_script_tag(content=get_plotlyjs())
            self._plotly_loaded = True
        size = [figure.layout.width or width, figure.layout.height or height]
        self._canvas.set_viewport_size({"width": size[0], "height": size[1]})
        draw = """async ([text, width, height]) => {
            const figure = JSON.parse(text);
            Plotly.purge("chart");
            await Plotly.newPlot("chart", figure.data, {...figure.layout, width, height}, {staticPlot: true});
        }"""
        self._canvas.evaluate(draw, [figure.to_json(), *size])
        return self._reduced(self._canvas.screenshot())

    def page(self, path: Path, part: str) -> bytes:
        """Return the picture of an element of a page, or of all from its top to the element (`top #ID`)."""
        *words, selector = part.split()
        from_top = words == [TOP]
        window = self._tops if from_top else self._parts
        window.goto(path.resolve().as_uri())
        if not from_top:
            window.evaluate(UNFOLD)
        element = window.locator(selector).first
        element.scroll_into_view_if_needed()
        window.wait_for_function(DRAWN, arg=f"details[open] figure[data-figure], {selector}:is([data-figure])")
        clip = rectangle_of(window, [element], MARGIN)
        if from_top:
            clip = {"x": 0, "y": 0, "width": TOP_WIDTH, "height": clip["y"] + clip["height"]}
        return self._reduced(window.screenshot(full_page=True, clip=clip))

    def _reduced(self, png: bytes) -> bytes:
        """Return a picture in its commonest colours. A page of its own decodes it: others forbid scripts to fetch."""
        return reduce_colours(*self._canvas.evaluate(PIXELS, base64.b64encode(png).decode()))


def rectangle_of(window: Any, elements: Sequence[Any], margin: int) -> dict[str, float]:
    """Return the least rectangle of a page that holds the elements, with a margin where the page has room."""
    width, scrolled = window.evaluate("() => [document.documentElement.clientWidth, window.scrollY]")
    boxes = [element.bounding_box() for element in elements]
    left = max(min(box["x"] for box in boxes) - margin, 0)
    right = min(max(box["x"] + box["width"] for box in boxes) + margin, width)
    top = min(box["y"] for box in boxes) + scrolled - margin
    bottom = max(box["y"] + box["height"] for box in boxes) + scrolled + margin
    return {"x": left, "y": top, "width": right - left, "height": bottom - top}


@contextmanager
def photographer() -> Iterator[Photographer]:
    """Yield a photographer with a browser of its own."""
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield Photographer(browser)
        browser.close()


def reduce_colours(height: int, texts: list[str]) -> bytes:
    """Return a picture as PNG in its commonest colours, others by the nearest of them: less than half the bytes."""
    pixels = np.frombuffer(b"".join(map(base64.b64decode, texts)), np.uint8).reshape(-1, 4)[:, :3]
    packed = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    values, number, count = np.unique(packed, return_inverse=True, return_counts=True)
    colours = np.stack([values >> 16, values >> 8 & 255, values & 255], axis=1).astype(np.int64)
    kept = colours[np.argsort(-count, kind="stable")[:COLOURS]]
    # |a - b|^2 is least where |b|^2 - 2 a.b is.
    nearest = ((kept**2).sum(axis=1) - 2 * colours @ kept.T).argmin(axis=1).astype(np.uint8)
    rows = np.pad(nearest[number.ravel()].reshape(height, -1), ((0, 0), (1, 0)))  # each row begins with its filter: none
    header = struct.pack(">IIBBBBB", rows.shape[1] - 1, height, 8, 3, 0, 0, 0)
    chunks = [
        (b"IHDR", header),
        (b"PLTE", kept.astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )
