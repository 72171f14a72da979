"""Which build of the kernels a process opens, and that it says once if it opens none."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from simnmt.base.compile import KERNEL_LIBRARY, cpu_features, cpu_name
from simnmt.base.errors import InputError
from simnmt.kernels import native_library
from simnmt.kernels.native_library import level_name, native, processor, references
from tests.kernels.implementations import needs_compiled

LEVELS = {"AVX-512", "AVX2", "SSE2", "NEON", "C without vectors"}


def printed(code: str, **environment: str) -> str:
    """By a Python of its own."""
    run = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True)
    return run.stdout.strip()


LEVEL = "from simnmt.kernels.native_library import level_name\nprint(level_name())"


@needs_compiled
def test_figures_name_the_processor_and_its_vectors() -> None:
    assert level_name() in LEVELS
    assert processor() == f"{cpu_name()}, {level_name()}"
    with references():
        assert (native(), level_name()) == (None, "none")
    assert native() is not None


@needs_compiled
@pytest.mark.skipif(platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(), reason="reads Linux' x86 features")
def test_the_native_build_has_the_widest_vectors_of_the_processor() -> None:
    if not KERNEL_LIBRARY.current("native"):
        pytest.skip("another build was compiled")
    wide = {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= cpu_features()
    assert printed(LEVEL, SIMNMT_KERNELS="native") == ("AVX-512" if wide else "AVX2" if "avx2" in cpu_features() else "SSE2")


def test_the_environment_names_the_build_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(LEVEL, SIMNMT_KERNELS="none") == "none"
    monkeypatch.setenv("SIMNMT_KERNELS", "sse")
    with pytest.raises(InputError, match="SIMNMT_KERNELS=sse"):
        native_library._opened.__wrapped__()
