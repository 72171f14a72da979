"""The search in C under the address and undefined-behaviour sanitizers, and the allocations that it makes: none (SHARP-01)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from simnmt.kernels.compile import LEVEL_FLAGS, NATIVE, CompileError, find_compiler
from simnmt.kernels.levels import supported
from simnmt.kernels.native_library import load, processor_features

CHECK = Path(__file__).parent / "sharp_check.c"
SANITIZE = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
COUNT = ("-DCOUNT_ALLOCATIONS", "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc")


def compiled(target: Path, level: str, flags: tuple[str, ...]) -> Path:
    """Skips where the compiler has not what it takes."""
    try:
        command = [
            *find_compiler(),
            "-std=gnu11",
            "-O1",
            *flags,
            *LEVEL_FLAGS[level],
            f"-I{NATIVE}",
            str(CHECK),
            "-o",
            str(target),
        ]
    except CompileError as error:
        pytest.skip(str(error))
    made = subprocess.run([*command, "-o", str(target), "-lm"], capture_output=True, text=True, check=False)
    if made.returncode and any(option in made.stderr for option in ("sanitize", "lasan", "lubsan", "--wrap")):
        pytest.skip("the compiler has no such option here")
    assert made.returncode == 0, made.stderr
    return target


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """At the widest level: what the levels differ in, products and activations, has its check at each."""
    portable = load("portable")
    level, *_ = supported(processor_features(None if portable is None else portable.cdll))
    return compiled(tmp_path_factory.mktemp("sharp") / "sanitized", level, SANITIZE)


def test_no_sentence_reads_or_writes_beyond_its_memory(sanitized: Path) -> None:
    found = run(sanitized)
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.startswith("0 wrong")


def test_the_sanitizer_sees_one_array_spill_into_the_next(sanitized: Path) -> None:
    """All of a sentence lies in one block, whose pieces the sanitizer could not tell apart by itself."""
    assert "use-after-poison" in run(sanitized, "spill").stderr


@pytest.mark.skipif(sys.platform != "linux", reason="counts by an option of the GNU linker")
def test_sharp_01_the_search_allocates_nothing(tmp_path: Path) -> None:
    found = run(compiled(tmp_path / "counted", "portable", COUNT))
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout == "0 wrong, 0 allocations\n1 when one is made\n"
