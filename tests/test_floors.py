"""The floors of the rooms: no import upwards, none between rooms of one floor, and heavy libraries in few rooms alone."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "simnmt"

FRONT_DOOR = "__init__"
"""simnmt/__init__.py names what users import, and imports it on first use."""
FLOORS = {
    "base": 0,
    "workload": 1,
    "network": 1,
    "profile": 1,
    "policies": 2,
    "batching": 2,
    "streaming.plan": 2,
    "results": 3,
    "world": 4,
    "kernels": 4,
    "nmt": 5,
    "streaming": 6,
    "scenario": 7,
    "experiment": 8,
    "service": 9,
    "calibrate": 10,
    "live": 11,
    "report": 12,
    "papers": 13,
    "api": 14,
    "decisions": 15,
    "cli": 16,
}
"""Floor of each room; a room imports only from lower floors."""
HEAVY_ROOMS = {
    "simpy": {"world"},
    "plotly": {"report", "api"},
    "ciw": set(),
    "torch": {"kernels", "nmt", "streaming", "calibrate", "live", "papers"},
    "sklearn": {"nmt"},
    "aiohttp": {"service", "live"},
    "prometheus_client": {"service", "live"},
    "joblib": {"experiment"},
    "distributed": {"experiment"},
}
"""Libraries that no other room may import."""


def room_of(parts: Sequence[str]) -> str:
    """Return the room of a module, given the parts of its name below the package; `streaming.plan` is a room of its own."""
    return "streaming.plan" if tuple(parts[:2]) == ("streaming", "plan") else parts[0]


def imported_names(code: str) -> Iterator[str]:
    """Yield the full names of all that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "an import by dots hides the floor"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def complaints(room: str, code: str) -> list[str]:
    """What a module of `room` imports that it must not."""
    wrong = []
    for name in imported_names(code):
        top, *below = name.split(".")
        if top == "simnmt":
            other = room_of(below)
            if other == room or other.startswith("__"):
                continue
            if other not in FLOORS or FLOORS[other] >= FLOORS[room]:
                wrong.append(name)
        elif top in HEAVY_ROOMS and room not in HEAVY_ROOMS[top]:
            wrong.append(name)
    return wrong


def modules() -> dict[str, tuple[str, Path]]:
    """Every module of the package: its path for a reader -> its room and file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        if inside.name != f"{FRONT_DOOR}.py" or len(inside.parts) > 1:
            found[inside.as_posix()] = (room_of(inside.with_suffix("").parts), path)
    return found


MODULES = modules()


def test_every_room_has_its_floor() -> None:
    assert {room for room, _ in MODULES.values()} == set(FLOORS)


def test_nothing_is_imported_from_the_same_floor_or_above() -> None:
    breaches = {module: complaints(room, path.read_text(encoding="utf-8")) for module, (room, path) in MODULES.items()}
    assert {module: names for module, names in breaches.items() if names} == {}


def test_transformers_is_loaded_only_where_its_models_are_built() -> None:
    """It takes 3 s of CPU time, which engines of recurrent models do without."""
    sources = {module: path.read_text(encoding="utf-8") for module, (_, path) in MODULES.items()}
    trees = {module: ast.parse(source) for module, source in sources.items() if "transformers import" in source}
    at_once = {
        module
        for module, tree in trees.items()
        if any(isinstance(node, ast.ImportFrom) and node.module == "transformers" for node in tree.body)
    }
    assert at_once == {"nmt/multilingual_models.py"}


@pytest.mark.parametrize(
    ("room", "code"),
    [
        ("profile", "from simnmt.policies import CNmt"),
        ("profile", "import simnmt.world.simulation"),
        ("network", "from simnmt.results.result import RunResult"),
        ("report", "from simnmt import papers"),
        ("base", "from simnmt.workload.errors import CorpusError"),
        ("streaming.plan", "from simnmt.streaming.store import index_file"),
        ("world", "def later():\n    from simnmt.scenario import run"),
        ("policies", "if TYPE_CHECKING:\n    from simnmt.world.simulation import Trail"),
        ("policies", "import simpy"),
        ("scenario", "import torch.nn"),
        ("api", "from simnmt.cli.app import main"),
        ("world", "from simnmt.unheard_of import x"),
    ],
)
def test_the_check_sees_a_breach(room: str, code: str) -> None:
    assert len(complaints(room, code)) == 1


@pytest.mark.parametrize(
    ("room", "code"),
    [
        ("world", "from simnmt.policies import CNmt\nimport simpy\nfrom simnmt.world.clock import Clock"),
        ("api", "from simnmt import __version__\nfrom simnmt.experiment.run import run_plan"),
        ("profile", "import numpy as np\nfrom simnmt.base.errors import InputError"),
    ],
)
def test_the_check_lets_the_rest_pass(room: str, code: str) -> None:
    assert complaints(room, code) == []


HEAVY = {"numpy", "pandas", "simpy", "plotly", "scipy", "pyarrow", "pydantic", "torch"}


def test_importing_simnmt_loads_nothing_heavy() -> None:
    """What commands load, tests/cli/test_start_and_streams.py asserts."""
    code = "import sys, simnmt\nprint(*{name.partition('.')[0] for name in sys.modules})"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(run.stdout.split())
    assert "simnmt" in loaded
    assert loaded & HEAVY == set()
