"""The size of the house: `python -m benchmarks.house` prints the same counts, with places."""

from __future__ import annotations

import ast
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import simnmt
from benchmarks import house
from tests.test_floors import MODULES, complaints


@pytest.fixture(scope="module")
def size() -> Iterator[dict[str, Any]]:
    gc.disable()  # of a million nodes none is garbage
    try:
        counts = house.size()
    finally:
        gc.enable()
    yield counts
    house.nodes.cache_clear()
    house.module.cache_clear()


FILES, CODE_LINES = 357, 50_159
"""Of the house after its redesign."""


def test_the_number_of_files_stays_readable(size: dict[str, Any]) -> None:
    """A file that was added since then holds 150 lines of code in the mean, the least of STYLE section 3."""
    assert size["files"] <= FILES + (size["code_lines"] - CODE_LINES) / 150


@pytest.mark.usefixtures("size")
def test_nothing_is_imported_from_the_same_floor_or_above() -> None:
    breaches = {module: complaints(room, path.read_text(encoding="utf-8")) for module, (room, path) in MODULES.items()}
    assert {module: names for module, names in breaches.items() if names} == {}


def test_no_two_files_import_each_other(size: dict[str, Any]) -> None:
    assert size["import_circles"] == []
    assert house.circles({"a": "from b import x", "b": "def f():\n    import c", "c": "from a import y"}) == [["a", "b", "c"]]


def test_no_function_has_a_body_of_more_than_sixty_lines(size: dict[str, Any]) -> None:
    assert size["long_functions"] == {}


def test_no_name_says_nothing_of_its_value(size: dict[str, Any]) -> None:
    assert (size["empty_names"], size["empty_modules"]) == ({}, [])
    assert house.empty_names("def told(each):\n    for found in each:\n        its = found\n") == {
        "told": 1,
        "each": 1,
        "found": 1,
        "its": 1,
    }


def test_docstrings_of_functions_start_with_a_verb(size: dict[str, Any]) -> None:
    assert size["verbless_docstrings"] == []
    source = '''
        def f():
            """The sum."""

        def g():
            """Return the sum."""

        @property
        def h(self):
            """The sum."""
    '''
    assert list(house.verbless_docstrings(dedent(source))) == ["f"]


def test_dictionaries_of_anything_are_rare_in_signatures(size: dict[str, Any]) -> None:
    assert size["loose_dictionaries"] <= 110
    assert house.loose_dictionaries("def f(a: dict[str, Any], b: list[dict[str, Any]]) -> dict[str, Any]: ...") == 3


def test_every_handler_of_faults_of_a_users_code_describes_them_and_so_lets_signals_through() -> None:
    handlers = [
        (file.name, ast.unparse(node))
        for file in Path(simnmt.__file__).parent.rglob("*.py")
        if "except FAULTS" in (text := file.read_text(encoding="utf-8"))
        for node in house.nodes(text)
        if isinstance(node, ast.ExceptHandler) and node.type is not None and "FAULTS" in ast.unparse(node.type)
    ]
    assert len(handlers) >= 8
    assert [name for name, handler in handlers if "describe_fault(error)" not in handler] == []


def test_a_session_ends_with_the_counts_of_tests_skipped_for_each_reason(tmp_path: Path) -> None:
    code = "import pytest\n"
    for number, reason in enumerate(("no such level", "no browser", "no such level")):
        code += f"\n@pytest.mark.skipif(True, reason={reason!r})\ndef test_{number}(): pass\n"
    (tmp_path / "test_skipped.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull]
    run = subprocess.run(
        [*command, "--rootdir", tmp_path, tmp_path], cwd=Path(__file__).parents[1], capture_output=True, text=True
    )
    assert [line for line in run.stdout.splitlines() if "no browser" in line] == ["skipped: 2 no such level; 1 no browser"]
