"""The gallery: each picture has code, and the code makes it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "gallery" / "index.md"
MOST_LINES = 10
MOST_BYTES = 100_000


@pytest.fixture(scope="module")
def gallery(docs_script: Callable[[str], Any]) -> Any:
    """The script that makes the gallery."""
    return docs_script("make_gallery")


@pytest.fixture(scope="module")
def pictures(gallery: Any) -> Any:
    return gallery.read_pictures(INDEX.read_text(encoding="utf-8"))


def size(png: bytes) -> tuple[int, int]:
    """Width and height of a PNG."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_the_gallery_has_24_pictures_or_more_and_each_is_made_by_at_most_ten_lines(pictures: Any) -> None:
    assert len(pictures) >= 24
    assert INDEX.read_text(encoding="utf-8").count("![") == len(pictures), "each picture has a line of its own"
    assert len({picture.file for picture in pictures}) == len(pictures)
    for picture in pictures:
        lines = [line for line in picture.code.splitlines() if line.strip()]
        assert 1 <= len(lines) <= MOST_LINES, picture.file
        assert picture.language == "python" or (picture.page and picture.part and picture.commands), picture.file


def test_every_picture_exists_is_small_and_is_described(pictures: Any) -> None:
    sizes = {}
    for picture in pictures:
        png = (INDEX.parent / picture.file).read_bytes()
        width, height = size(png)
        assert width >= 700 and height >= 200, picture.file
        assert len(png) < MOST_BYTES, picture.file
        assert len(picture.alt) >= 30, f"{picture.file}: the text for those who do not see it is too short"
        sizes[picture.file] = len(png)
    assert sum(sizes.values()) < 2_500_000
    assert {path.name for path in INDEX.parent.glob("*.png")} == set(sizes)


def test_pages_of_the_gallery_are_read_as_they_are_shown(gallery: Any) -> None:
    blocks = "```python\n1\n```\n", "<!-- photograph x.html top #id -->\n\n```console not-run\n$ x\n```\n"
    text = f"![one](a.png)\n\ntext\n\n{blocks[0]}\n![two](b.png)\n\n{blocks[1]}\n![three](c.png)\n"
    one, two, three = gallery.read_pictures(text)
    assert (one.alt, one.language, one.code) == ("one", "python", "1\n")
    assert (two.page, two.part, two.commands) == ("x.html", "top #id", ["x"])
    assert three.code == ""


@pytest.mark.deep
def test_pictures_are_made_anew_by_the_code_on_the_page(gallery: Any, pictures: Any, chromium: Any) -> None:
    from pictures import Photographer

    camera = Photographer(chromium)
    for name in ("intervals.png", "streaming-plan.png"):
        picture = next(picture for picture in pictures if picture.file == name)
        made, stored = gallery.make_picture(picture, camera), (INDEX.parent / name).read_bytes()
        assert size(made)[0] == size(stored)[0] and abs(size(made)[1] - size(stored)[1]) <= 40
        assert len(made) == pytest.approx(len(stored), rel=0.5)
