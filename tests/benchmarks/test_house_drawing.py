"""The drawing of the house: it is stored as the code makes it, and the path of a request names files that exist."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks.house import FLOORS, PACKAGE, trace
from benchmarks.house_drawing import DRAWING, PAGE, drawing, request_path, room_imports

TEXT = PAGE.read_text(encoding="utf-8")
MOST_BYTES = 60_000


def test_the_stored_drawing_is_what_the_code_makes() -> None:
    """If not: `python -m benchmarks.house_drawing`."""
    assert DRAWING.read_text(encoding="utf-8") == drawing(TEXT)


def test_the_drawing_is_a_small_picture_that_loads_nothing_and_knows_both_colour_schemes() -> None:
    content = DRAWING.read_text(encoding="utf-8")
    root = ElementTree.fromstring(content)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags == {"svg", "style", "rect", "text", "polygon", "path", "polyline", "circle"}
    assert re.findall(r"https?://[^\"]+", content) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme: dark" in content
    assert len(content.encode()) < MOST_BYTES


def test_every_room_and_every_import_between_rooms_is_drawn() -> None:
    root = ElementTree.fromstring(DRAWING.read_text(encoding="utf-8"))
    names = [element.text for element in root.iter() if element.get("class") == "room"]
    assert names == sorted(FLOORS, key=lambda room: -FLOORS[room])
    dots = sum(element.get("class") == "import" for element in root.iter())
    assert dots == sum(map(len, room_imports().values())) > 100


def test_a_new_import_between_rooms_changes_the_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    imports = room_imports()
    assert "network" not in imports["policies"]
    imports["policies"].add("network")
    monkeypatch.setattr("benchmarks.house_drawing.room_imports", lambda: imports)
    assert drawing(TEXT) != DRAWING.read_text(encoding="utf-8")


def test_the_path_has_the_steps_of_the_page_and_each_names_files_that_exist() -> None:
    steps = request_path(TEXT)
    assert [title for title, _ in steps] == [
        *("Read", "Inputs", "Draw", "Set up", "Decide and serve", "Record", "Summarise", "Write"),
    ]
    assert steps[0][1] == ["cli", "api", "scenario"]
    assert all(rooms for _, rooms in steps)
    section = TEXT.partition("## The way of a request\n")[2].partition("\n## ")[0]
    files = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py|[a-z]+\.py)`", section)
    beside = {"fifo_server.py", "batch_server.py", "batch_pool.py", "streaming_server.py", "traffic.py"}
    assert len(files) > 20
    assert [name for name in files if name not in beside and not (PACKAGE / name).is_file()] == []


@pytest.mark.deep
def test_a_run_passes_through_every_room_of_the_path() -> None:
    path = {room for _, rooms in request_path(TEXT) for room in rooms}
    entered = {room for scenario in ("@quickstart", "@batched-cloud") for room in trace(scenario, "simpy")["rooms"]}
    assert path - {"cli"} <= entered
