"""Rebuild the pictures of the gallery: `python docs/make_gallery.py [PICTURE.png ...]`; without a name, all of them.

`docs/gallery/index.md` is the only source. The block of code below a picture is what makes it:

- `python`: the value of its last line is the figure;
- `console`: its commands, which begin with `$ `, write a page. The comment above the block, `<!-- photograph FILE PART -->`,
  names the page and the part shown: a selector of CSS, or `top` and a selector for all from the top of the page.

Each block runs in an empty folder of its own.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INDEX = Path(__file__).resolve().parent / "gallery" / "index.md"
IMAGE = re.compile(r"^!\[(?P<alt>[^\]\n]*)\]\((?P<file>[^)\n]+\.png)\)$", re.MULTILINE)
BLOCK = re.compile(
    r"(?:^<!-- photograph (?P<page>\S+) (?P<part>[^\n]+) -->\n+)?"
    r"^```(?P<language>python|console)(?: not-run)?\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of the gallery and the block that makes it; `code` is empty if there is none below it."""

    file: str
    alt: str
    language: str = ""
    code: str = ""
    page: str = ""
    part: str = ""

    @property
    def commands(self) -> list[str]:
        """The shell commands of a block `console`."""
        return [line[2:] for line in self.code.splitlines() if line.startswith("$ ")]


def read_pictures(text: str) -> list[Picture]:
    """Return the pictures of a gallery's page, each with the first block of code between it and the next picture."""
    images = [*IMAGE.finditer(text)]
    ends = [*(image.start() for image in images[1:]), len(text)]
    pictures = []
    for image, end in zip(images, ends, strict=True):
        block = BLOCK.search(text, image.end(), end)
        made_by = {key: value or "" for key, value in block.groupdict().items()} if block else {}
        pictures.append(Picture(**image.groupdict(), **made_by))
    return pictures


def make_figure(code: str) -> Any:
    """Run a block of Python in the current folder; return the value of its last line."""
    tree = ast.parse(code)
    last = tree.body.pop()
    if not isinstance(last, ast.Expr):
        raise SystemExit(f"the last line of a block is no figure: {ast.unparse(last)}")
    namespace: dict[str, Any] = {"__name__": "gallery"}
    exec(compile(tree, "<gallery>", "exec"), namespace)
    return eval(compile(ast.Expression(last.value), "<gallery>", "eval"), namespace)


def make_picture(picture: Picture, camera: Any) -> bytes:
    """Return the picture that a block makes, in a folder that is thrown away."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        if picture.language == "console":
            environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
            for command in picture.commands:
                done = subprocess.run(command, shell=True, cwd=folder, env=environment, text=True, capture_output=True)
                if done.returncode != 0:
                    raise SystemExit(f"{picture.file}: {command}\n{done.stdout}{done.stderr}")
            return bytes(camera.page(Path(folder) / picture.page, picture.part))
        os.chdir(folder)
        try:
            return bytes(camera.figure(make_figure(picture.code)))
        finally:
            os.chdir(here)


def main() -> None:
    """Make the pictures named on the command line, or all, beside the page."""
    from pictures import photographer

    pictures = read_pictures(INDEX.read_text(encoding="utf-8"))
    names = sys.argv[1:] or [picture.file for picture in pictures]
    unknown = set(names) - {picture.file for picture in pictures}
    if unknown:
        raise SystemExit(f"{INDEX} has no picture {', '.join(sorted(unknown))}")
    with photographer() as camera:
        for picture in pictures:
            if picture.file in names:
                begin_s = time.perf_counter()
                png = make_picture(picture, camera)
                (INDEX.parent / picture.file).write_bytes(png)
                print(f"{picture.file}: {len(png) / 1000:.0f} kB, {time.perf_counter() - begin_s:.1f} s", flush=True)


if __name__ == "__main__":
    main()
