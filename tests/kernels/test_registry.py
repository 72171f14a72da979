"""The registry of the kernels, its cases and their bench, and which build a process opens."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import simnmt.kernels
from simnmt.base.compile import KERNEL_LIBRARY, cpu_features
from simnmt.base.errors import InputError
from simnmt.cli.kernels import app
from simnmt.kernels import registry
from simnmt.kernels.registry import Case, Kernel, UnknownKernel, kernel, registered
from tests.kernels.implementations import each_implementation, needs_compiled

SMALL: dict[str, dict[str, Any]] = {"fused_best": {"vocab": 203}, "fused_argmax": {"vocab": 203}, "unpack": {"weights": 480}}


@each_implementation
@pytest.mark.parametrize("name", registered())
def test_each_call_of_each_case_runs(name: str) -> None:
    for case in kernel(name).cases(2, **SMALL[name]):
        assert len(case.runs) > 1 and set(case.before) < set(case.runs)
        for run_name, run in case.runs.items():
            case.before.get(run_name, lambda: None)()
            run()


def output(*arguments: str) -> str:
    run = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert run.exit_code == 0
    return run.stdout


def test_the_bench_compares_the_first_run_with_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    took_s = {"ours": 2.0, "slow": 9.0, "fast": 6.0}
    case = Case("a case", {name: lambda second=second: {"seconds": second} for name, second in took_s.items()})
    fake = Kernel("fake", "m", "FNI-00", "b", lambda threads: iter([case]))
    monkeypatch.setattr(registry, "registered", lambda: {"fake": fake})
    document = json.loads(output("bench", "--json", "--rounds", "1", "--part", "fake"))
    assert [(row["baseline"], row["us"], row["ratio"]) for row in document["results"]] == [
        ("slow", 2e6, 4.5),
        ("fast", 2e6, 3.0),
    ]
    assert "a case" in output("bench", "--rounds", "1")


def test_an_unknown_kernel_and_too_many_threads_are_refused() -> None:
    with pytest.raises(UnknownKernel, match="fused_best"):
        kernel("fused_bst")
    refused = CliRunner().invoke(app, ["bench", "--part", "unpack", "--threads", "100000"])
    assert isinstance(refused.exception, InputError)


@needs_compiled
def test_a_new_kernel_is_a_module_and_its_c(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = "'toy', 'meaning', 'FNI-00', 'bound'"
    code = f"from simnmt.kernels.registry import Kernel\nKERNELS = [Kernel({names}, lambda threads: iter(()))]\n"
    (tmp_path / "toy.py").write_text(code)
    monkeypatch.setattr(simnmt.kernels, "__path__", [*simnmt.kernels.__path__, str(tmp_path)])
    monkeypatch.setitem(sys.modules, "simnmt.kernels.toy", None)
    del sys.modules["simnmt.kernels.toy"]
    assert [*registered.__wrapped__()] == [*registered(), "toy"]
    native = shutil.copytree(KERNEL_LIBRARY.folder, tmp_path / "native", ignore=shutil.ignore_patterns("*.so"))
    (native / "toy.c").write_text('#include "vectors.h"\nSIMNMT_EXPORT float simnmt_toy(float x) { return 2 * x; }\n')
    library = replace(KERNEL_LIBRARY, folder=native, flags=("-std=gnu11", "-O0", "-fPIC", "-shared"))
    library.compile("portable")
    cdll = library.open("portable")
    assert cdll is not None and cdll.simnmt_toy(1.5) == 3.0


LEVELS = {"AVX-512", "AVX2", "SSE2", "NEON", "C without vectors"}


def printed(code: str, **environment: str) -> str:
    """By a Python of its own."""
    run = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True)
    return run.stdout.strip()


LEVEL = "from simnmt.kernels.native_library import level_name\nprint(level_name())"


@needs_compiled
@pytest.mark.skipif(platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(), reason="reads Linux' x86 features")
def test_the_native_build_has_the_widest_vectors_of_the_processor() -> None:
    if not KERNEL_LIBRARY.current("native"):
        pytest.skip("another build was compiled")
    wide = {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= cpu_features()
    assert printed(LEVEL, SIMNMT_KERNELS="native") == ("AVX-512" if wide else "AVX2" if "avx2" in cpu_features() else "SSE2")
