"""The cases of the kernels: their calls are correct within their bounds, and every kernel has its entry in the registry."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import simnmt.kernels
from simnmt.base.compile import KERNEL_LIBRARY
from simnmt.cli.kernels import app
from simnmt.kernels import registry
from simnmt.kernels.native_library import level_name
from simnmt.kernels.registry import KERNELS, kernel
from tests.kernels.implementations import each_implementation, needs_compiled

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


@needs_compiled
def test_a_new_kernel_is_a_module_and_its_c(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = "'toy', 'meaning', 'FNI-00', 'bound', ('one', 'other')"
    code = f"from simnmt.kernels.cases import Kernel\nKERNELS = [Kernel({names}, lambda threads: iter(()))]\n"
    (tmp_path / "toy.py").write_text(code)
    monkeypatch.setattr(simnmt.kernels, "__path__", [*simnmt.kernels.__path__, str(tmp_path)])
    monkeypatch.setitem(sys.modules, "simnmt.kernels.toy", None)
    del sys.modules["simnmt.kernels.toy"]
    assert [registered.name for registered in registry._registered()] == [*(listed.name for listed in KERNELS), "toy"]
    native = shutil.copytree(KERNEL_LIBRARY.folder, tmp_path / "native", ignore=shutil.ignore_patterns("*.so"))
    (native / "toy.c").write_text('#include "vectors.h"\nSIMNMT_EXPORT float simnmt_toy(float x) { return 2 * x; }\n')
    library = replace(KERNEL_LIBRARY, folder=native, flags=("-std=gnu11", "-O0", "-fPIC", "-shared"))
    library.compile("portable")
    cdll = library.open("portable")
    assert cdll is not None and cdll.simnmt_toy(1.5) == 3.0


def test_the_list_names_level_and_contract() -> None:
    text, as_json = (CliRunner().invoke(app, options, catch_exceptions=False).stdout for options in ([], ["--json"]))
    assert all(f"\n{listed.name}" in text and listed.bound in text for listed in KERNELS)
    document: dict[str, Any] = json.loads(as_json)
    assert document["level"] == level_name()
    assert [kernel["name"] for kernel in document["kernels"]] == [kernel.name for kernel in KERNELS]
