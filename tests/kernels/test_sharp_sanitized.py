"""The search in C under the address and undefined-behaviour sanitizers, and the allocations that it makes: none (SHARP-01)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.kernels.sanitized import SANITIZE, program, run, runnable

CHECK = "sharp_check.c"
WRAP = ("-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc",)


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """At the widest level: what the levels differ in, products and activations, has its check at each."""
    return program(CHECK, runnable()[0], tmp_path_factory.mktemp("sharp") / "sanitized", SANITIZE, "-O0")


@pytest.mark.deep
def test_no_sentence_reads_or_writes_beyond_its_memory(sanitized: Path) -> None:
    result = run(sanitized)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("0 wrong")


@pytest.mark.deep
def test_the_sanitizer_detects_a_write_into_the_next_array(sanitized: Path) -> None:
    """All of a sentence lies in one block, whose pieces the sanitizer could not tell apart by itself."""
    assert "use-after-poison" in run(sanitized, "spill").stderr


@pytest.mark.skipif(sys.platform != "linux", reason="counts by an option of the GNU linker")
def test_sharp_01_the_search_allocates_nothing(tmp_path: Path) -> None:
    result = run(program(CHECK, "portable", tmp_path / "counted", WRAP, "-O1", "-DCOUNT_ALLOCATIONS"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == "0 wrong, 0 allocations\n1 when one is made\n"
