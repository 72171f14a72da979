"""Any error of an input is one printable line that begins with its place."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import simnmt
from simnmt.base.errors import InputError, Interrupted
from tests.command_line import assert_one_line

ROOMS = ("base", "batching", "devices", "experiment", "network", "policies", "profile", "results", "scenario", "workload")


def error_classes() -> list[type[InputError]]:
    names = [
        f"simnmt.{name}"
        for room in ROOMS
        for module in pkgutil.walk_packages([str(Path(simnmt.__file__).parent / room)], f"{room}.")
        if not module.ispkg and (name := module.name)
    ]
    members = [kind for name in names for _, kind in inspect.getmembers(importlib.import_module(name), inspect.isclass)]
    return sorted({kind for kind in members if issubclass(kind, InputError)}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_an_error_of_an_input_is_one_line_with_its_place(kind: type[InputError]) -> None:
    error = kind("a key\nwith\x1b[1m a fault", path="folder/s.yaml", line=3, column=5, remedy="write\ranother")
    assert (error.exit_status, error.path, error.line, error.column) == (2, "folder/s.yaml", 3, 5)
    assert str(error).startswith("folder/s.yaml:3:5: ")
    assert_one_line(f"simnmt: {error}\n")


def test_an_address_given_as_a_path_keeps_both_slashes_in_the_message() -> None:
    assert str(InputError("no such file", path=Path("hf://x/y"))) == "hf://x/y: no such file"
    assert str(InputError("no such file", path="hf://x/y")) == "hf://x/y: no such file"
    assert str(InputError("no such file", path=Path("folder/name:/x"))) == "folder/name:/x: no such file"


def test_a_copy_of_an_interrupt_ends_with_the_same_status() -> None:
    """SimPy makes one of what a process raises."""
    stopped = Interrupted(2)
    assert type(stopped)(*stopped.args).code == stopped.code == 130
