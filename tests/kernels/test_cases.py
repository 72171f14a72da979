"""The cases of the kernels: their calls are correct within their bounds, and every kernel has its entry in the registry."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import simnmt.kernels
from simnmt.cli.kernels import app
from simnmt.kernels import registry
from simnmt.kernels.native_library import level_name
from simnmt.kernels.registry import KERNELS, kernel
from tests.kernels.implementations import each_implementation

SMALL: dict[str, dict[str, Any]] = {
    "fused_best": {"vocab": 203},
    "fused_argmax": {"vocab": 203},
    "unpack": {"weights": 480},
}


@each_implementation
@pytest.mark.parametrize("name", [registered.name for registered in KERNELS])
def test_a_kernel_keeps_its_bound_in_every_case(name: str) -> None:
    baselines = set()
    for case in kernel(name).cases(1, **SMALL.get(name, {})):
        for run_name, run in case.runs.items():
            if run_name in case.before:
                case.before[run_name]()
            run()
        for comparison in case.comparisons:
            assert comparison.ours in case.runs
            assert set(comparison.baseline_runs or [comparison.baseline]) <= set(case.runs)
            assert comparison.bytes_moved > 0
            assert 0.0 <= comparison.error <= comparison.error_bound, case.text
            baselines.add(comparison.baseline)
    assert set(kernel(name).baselines) <= baselines


def test_a_new_kernel_is_a_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = "'toy', 'meaning', 'FNI-00', 'bound', ('one', 'other')"
    code = f"from simnmt.kernels.cases import Kernel\nKERNELS = [Kernel({names}, lambda threads: iter(()))]\n"
    (tmp_path / "toy.py").write_text(code)
    monkeypatch.setattr(simnmt.kernels, "__path__", [*simnmt.kernels.__path__, str(tmp_path)])
    monkeypatch.setitem(sys.modules, "simnmt.kernels.toy", None)
    del sys.modules["simnmt.kernels.toy"]
    assert [registered.name for registered in registry._registered()] == [*(listed.name for listed in KERNELS), "toy"]


def test_the_list_names_level_and_contract() -> None:
    text, as_json = (CliRunner().invoke(app, options, catch_exceptions=False).stdout for options in ([], ["--json"]))
    assert all(f"\n{listed.name}" in text and listed.bound in text for listed in KERNELS)
    document: dict[str, Any] = json.loads(as_json)
    assert document["level"] == level_name()
    assert [kernel["name"] for kernel in document["kernels"]] == [kernel.name for kernel in KERNELS]
