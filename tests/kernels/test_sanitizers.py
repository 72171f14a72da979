"""The C of output layer, products, column sets, activations and unpacking under address and undefined-behaviour sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.harness import SCALE, thinned
from tests.kernels.sanitized import BUILDS, SANITIZE, program, run, runnable

CHECKED = tuple(BUILDS) if SCALE > 1.0 else (runnable()[0],)
"""All levels take a minute to compile and run: `make check-deep` has them, `make test` the widest of this processor."""
CHECKS = ("output_check.c", "product_check.c", "gathered_check.c", "unpack_check.c")


@pytest.mark.parametrize("check", thinned(CHECKS, ("output_check.c", "unpack_check.c")))
@pytest.mark.parametrize("build", CHECKED)
def test_no_size_reads_or_writes_beyond_a_buffer_and_every_result_is_correct(build: str, check: str, tmp_path: Path) -> None:
    result = run(program(check, build, tmp_path / "check", SANITIZE, "-Wall", "-Wextra", "-Werror"))
    assert result.returncode == 0, result.stdout + result.stderr
