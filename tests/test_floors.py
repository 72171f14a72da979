"""The plan of the house: no import upwards, none between rooms of one floor, and nothing heavy where nobody needs it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "simnmt"

FLOORS = {
    "errors": -2,
    "names": -2,
    "files": -1,
    "streams": -1,
    "shipped": -1,
    "configuration": -1,
    "columns": -1,
    "workload": 0,
    "network": 0,
    "costs": 0,
    "results": 0,
    "batching": 1,
    "policies": 1,
    "kernels": 1,
    "sti": 1,
    "world": 2,
    "nmt": 2,
    "scenario": 3,
    "elastic": 3,
    "calibrate": 4,
    "report": 5,
    "reproduce": 5,
    "api": 6,
    "cli": 7,
}
FRONT_DOOR = "__init__"
"""simnmt/__init__.py names what users import, and imports it on first use."""
HEAVY_ROOMS = {
    "simpy": {"world"},
    "plotly": {"report"},
    "ciw": set(),
    "torch": {"kernels", "nmt", "elastic", "calibrate"},
    "sklearn": {"nmt"},
    "faiss": {"nmt"},
}
"""Libraries that no other room may import."""


def imported(code: str) -> Iterator[str]:
    """Full names of all that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "an import by dots hides the floor"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def complaints(room: str, code: str) -> list[str]:
    """What a module of `room` imports that it must not."""
    wrong = []
    for name in imported(code):
        top, *below = name.split(".")
        if top == "simnmt":
            other = below[0]
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
            found[inside.as_posix()] = (inside.parts[0].removesuffix(".py"), path)
    return found


MODULES = modules()


def test_every_room_has_its_floor() -> None:
    assert {room for room, _ in MODULES.values()} == set(FLOORS)


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_imported_from_the_same_floor_or_above(module: str) -> None:
    room, path = MODULES[module]
    assert complaints(room, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("room", "code"),
    [
        ("costs", "from simnmt.policies import CNmt"),
        ("costs", "import simnmt.world.simulate"),
        ("results", "from simnmt.network.rtt_series import RttSeries"),
        ("report", "from simnmt import reproduce"),
        ("streams", "from simnmt.shipped import find"),
        ("world", "def later():\n    from simnmt.scenario import run"),
        ("policies", "if TYPE_CHECKING:\n    from simnmt.world.simulate import Trail"),
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
        ("api", "from simnmt import __version__\nfrom simnmt.scenario.run import run_plan"),
        ("costs", "import numpy as np\nfrom simnmt.errors import InputError"),
    ],
)
def test_the_check_lets_the_rest_pass(room: str, code: str) -> None:
    assert complaints(room, code) == []


RECORD = """
import json, sys
from simnmt.cli import main
sys.argv = ["simnmt", *json.loads(sys.argv[1])]
try:
    main()
finally:
    print("\\n" + json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


def loaded_by(arguments: list[str], folder: Path, code: str = RECORD) -> set[str]:
    """Top-level modules that a whole process has loaded when it ends; a library that is not installed is made up."""
    made_up = folder / "made_up"
    for library in ("torch", "transformers"):
        (made_up / library).mkdir(parents=True)
        (made_up / library / "__init__.py").write_text("__version__ = '0'\n")
    run = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), str(made_up)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stderr.splitlines()[-1]))


HEAVY = {"numpy", "pandas", "simpy", "plotly", "scipy", "pyarrow", "pydantic", "torch"}


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]], ids=" ".join)
def test_help_loads_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    loaded = loaded_by(arguments, tmp_path)
    assert "typer" in loaded
    assert loaded & {"numpy", "pandas", "simpy", "plotly", "torch"} == set()


def test_importing_simnmt_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import json, sys, simnmt\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    loaded = loaded_by([], tmp_path, code)
    assert "simnmt" in loaded
    assert loaded & HEAVY == set()


def test_the_record_sees_what_is_loaded(tmp_path: Path) -> None:
    code = "import torch\n" + RECORD
    assert "torch" in loaded_by(["--help"], tmp_path, code)


def test_a_run_never_loads_torch(tmp_path: Path, make_scenario: Callable[..., dict[str, object]]) -> None:
    """The whole of it: run directory, page and table."""
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(json.dumps(make_scenario(requests=300)), encoding="utf-8")
    loaded = loaded_by(["run", str(scenario), "--out", str(tmp_path / "run"), "--jobs", "1"], tmp_path)
    assert (tmp_path / "run" / "report.html").is_file()
    assert {"numpy", "simpy", "pyarrow"} <= loaded
    assert loaded & {"torch", "transformers", "ciw"} == set()
