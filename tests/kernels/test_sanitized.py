"""The tests of the kernels with libraries made by the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import shutil
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


@pytest.mark.parametrize("build", ["native", "portable"])
@pytest.mark.parametrize("name", TESTS)
def test_no_kernel_reads_or_writes_beyond_a_buffer(name: str, build: str, tmp_path: Path) -> None:
    for source in KERNEL_LIBRARY.folder.glob("*.[ch]"):
        shutil.copy(source, tmp_path)
    script = RUN.replace("TESTS", repr([str(HERE / f"test_{name}.py")]))
    run = run_sanitized(replace(KERNEL_LIBRARY, folder=tmp_path), script, SANITIZE, "libasan.so", build)
    assert run.returncode == 0, run.stdout + run.stderr
