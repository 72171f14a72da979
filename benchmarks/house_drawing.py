"""Draw the house and the path of a request: `python -m benchmarks.house_drawing` writes docs/background/architecture.svg.

Each row is a room, the top floor first. The middle shows the path of a request, step by step: the rooms whose files each step
of docs/background/architecture.md names. The right shows which rooms a room imports, found in the code. A test compares the
stored drawing with what this makes, so that a new import between rooms asks for a new drawing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from benchmarks.house import FLOORS, PACKAGE, imported_names, room_of

BACKGROUND = PACKAGE.parent / "docs" / "background"
PAGE, DRAWING = BACKGROUND / "architecture.md", BACKGROUND / "architecture.svg"

ROW, TOP, LEFT, NAMES = 24, 122, 14, 140
"""Height of a row, first row's top, left edge, and width of the rooms' names, in pixels."""
STEP, DOT, GAP = 56, 13, 14
"""Width of a step, width of a column of imports, and space between the parts."""
STYLE = """
  .paper { fill: #fbfaf7 } .floor { fill: #eceae3 } .room, .title { fill: #1f2328 } .note { fill: #57606a }
  .line { stroke: #c9c5b9 } .path { stroke: #b3470f } .stop { fill: #b3470f } .import { fill: #2c6e9e } .roof { fill: #ddd9cd }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #1b1f24 } .floor { fill: #262c33 } .room, .title { fill: #e6e8eb } .note { fill: #a6aeb8 }
    .line { stroke: #454d57 } .path { stroke: #f0965a } .stop { fill: #f0965a } .import { fill: #7cbce8 }
    .roof { fill: #343b44 }
  }
  text { font: 13.5px system-ui, sans-serif } .title { font-weight: 600 } .note { font-size: 11px }
"""

_STEP = re.compile(r"^(\d+)\. \*\*([^*]+)\.\*\*(.*?)(?=^\d+\. |^## )", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+)(?:\.py|\.run|/)`")


def room_imports() -> dict[str, set[str]]:
    """Return the rooms that each room imports, from the top floor down."""
    imports: dict[str, set[str]] = {room: set() for room in sorted(FLOORS, key=lambda room: -FLOORS[room])}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts == ("__init__",):
            continue
        room = room_of(parts)
        for name in imported_names(path.read_text(encoding="utf-8")):
            top, *below = name.split(".")
            other = room_of(below) if top == "simnmt" and below else room
            if other != room and other in FLOORS:
                imports[room].add(other)
    return imports


def request_path(page: str) -> list[tuple[str, list[str]]]:
    """Return the title of each step of "The way of a request", and the rooms of the files that it names, in their order."""
    section = page.partition("## The way of a request\n")[2].partition("\n## ")[0] + "\n## "
    steps = []
    for _, title, text in _STEP.findall(section):
        rooms = [room_of(name.split("/")) for name in _FILE.findall(text)]
        steps.append((title, list(dict.fromkeys(room for room in rooms if room in FLOORS))))
    return steps


def _text(x: float, y: float, content: str, kind: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}"{more}>{content}</text>'


def _rooms(rows: Mapping[str, int], width: float) -> list[str]:
    right = LEFT + NAMES
    parts = [f'<polygon points="{LEFT},{TOP} {(LEFT + right) / 2:g},{TOP - 34} {right},{TOP}" class="roof"/>']
    for room, row in rows.items():
        y = TOP + row * ROW
        if FLOORS[room] % 2 == 0:
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{width - 2 * LEFT:g}" height="{ROW}" class="floor"/>')
        parts.append(_text(LEFT + 30, y + 16, room, "room"))
        parts.append(_text(LEFT + 18, y + 16, str(FLOORS[room]), "note", ' text-anchor="end"'))
    return parts


def _path(rows: Mapping[str, int], steps: Sequence[tuple[str, list[str]]], left: float) -> list[str]:
    points, parts = [], []
    for number, (title, rooms) in enumerate(steps):
        x = left + number * STEP
        parts.append(_text(x + STEP / 2, TOP - 24, str(number + 1), "title", ' text-anchor="middle"'))
        parts.append(
            _text(
                x + STEP / 2, TOP - 9, title.partition(" ")[0] if " and " in title else title, "note", ' text-anchor="middle"'
            )
        )
        parts.append(f'<path d="M{x:g} {TOP}v{len(rows) * ROW}" class="line" fill="none"/>')
        points += [(x + STEP * (at + 1) / (len(rooms) + 1), TOP + rows[room] * ROW + ROW / 2) for at, room in enumerate(rooms)]
    line = " ".join(f"{x:.0f},{y:g}" for x, y in points)
    parts.append(f'<polyline points="{line}" class="path" fill="none" stroke-width="2" stroke-linejoin="round"/>')
    parts += [f'<circle cx="{x:.0f}" cy="{y:g}" r="4" class="stop"/>' for x, y in points]
    return parts


def _imports(rows: Mapping[str, int], imports: Mapping[str, set[str]], left: float) -> list[str]:
    parts = []
    for room, column in rows.items():
        x = left + column * DOT + DOT / 2
        parts.append(_text(x + 4, TOP - 6, room, "note", f' transform="rotate(-60 {x + 4:g} {TOP - 6})"'))
        parts.append(f'<path d="M{x:g} {TOP}v{column * ROW + ROW / 2:g}" class="line" fill="none" stroke-dasharray="1 5"/>')
    for room, others in imports.items():
        y = TOP + rows[room] * ROW + ROW / 2
        columns = sorted(rows[other] for other in others)
        parts += [f'<circle cx="{left + column * DOT + DOT / 2:g}" cy="{y:g}" r="4" class="import"/>' for column in columns]
    return parts


def drawing(page: str) -> str:
    """Return the drawing as SVG, given the text of the architecture page."""
    imports, steps = room_imports(), request_path(page)
    rows = {room: row for row, room in enumerate(imports)}
    path_left = LEFT + NAMES + 4
    imports_left = path_left + len(steps) * STEP + GAP
    width, height = imports_left + len(rows) * DOT + 38, TOP + len(rows) * ROW + 46
    foot = TOP + len(rows) * ROW + 26
    parts = [
        f'<rect width="{width}" height="{height}" rx="10" class="paper"/>',
        _text(LEFT, 26, "The house", "title"),
        _text(path_left, 26, "The path of a request through the rooms", "title"),
        _text(imports_left, 26, "What each room imports", "title"),
        *_rooms(rows, width),
        *_path(rows, steps, path_left),
        *_imports(rows, imports, imports_left),
        _text(LEFT, foot, "A room imports only rooms on lower floors: all dots lie right of the diagonal.", "note"),
    ]
    label = f"Rooms by floor, the path of a request through them in {len(steps)} steps, and the imports between rooms"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
    )
    return "\n".join([f'{head} aria-label="{label}">', f"<style>{STYLE}</style>", *parts, "</svg>", ""])


if __name__ == "__main__":
    DRAWING.write_text(drawing(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {DRAWING}")
