"""The tests of the kernels with libraries made by the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from simnmt.base.compile import KERNEL_LIBRARY
from tests.sanitized import SANITIZE, run_sanitized, takes

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(not takes(SANITIZE), reason="no C compiler is installed that takes the sanitizers"),
]
HERE = Path(__file__).parent
RUN = """
import sys
from dataclasses import replace
from pathlib import Path
import pytest
from simnmt.kernels import native_library

native_library.KERNEL_LIBRARY = replace(native_library.KERNEL_LIBRARY, folder=Path.cwd(), flags=FLAGS)
# The address sanitizer ends at an exception of torch in C++, which some invalid arguments raise.
sys.exit(pytest.main(["-n0", "-s", "-p", "no:cacheprovider", "-k", "not invalid_arguments", *TESTS]))
"""
TESTS = ("products", "output_layer", "columns", "unpack", "activations", "sharp_cells", "sharp_search")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with the sources of the kernels."""
    for source in KERNEL_LIBRARY.folder.glob("*.[ch]"):
        shutil.copy(source, tmp_path)
    return tmp_path


def run_tests(sources: Path, build: str, *names: str) -> subprocess.CompletedProcess[str]:
    """Run test files of the kernels with a sanitized build."""
    script = RUN.replace("TESTS", repr([str(HERE / f"test_{name}.py") for name in names]))
    return run_sanitized(replace(KERNEL_LIBRARY, folder=sources), script, SANITIZE, "libasan.so", build)


@pytest.mark.parametrize("build", ["native", "portable"])
@pytest.mark.parametrize("name", TESTS)
def test_no_kernel_reads_or_writes_beyond_a_buffer(name: str, build: str, sources: Path) -> None:
    run = run_tests(sources, build, name)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_sanitizer_detects_a_write_beyond_the_last_lane(sources: Path) -> None:
    header = sources / "vectors.h"
    text, store = header.read_text(encoding="utf-8"), "for (ptrdiff_t i = 0; i < n; i++) to[i] = x[i];"
    assert store in text
    header.write_text(text.replace(store, store.replace("i < n", "i <= n")), encoding="utf-8")
    run = run_tests(sources, "portable", "activations")
    assert run.returncode != 0
    assert "heap-buffer-overflow" in run.stderr + run.stdout
