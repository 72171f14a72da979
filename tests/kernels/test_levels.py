"""No processor meets an instruction that it lacks: what is chosen, by what it has and by what is asked for."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.errors import InputError
from simnmt.kernels import native_library
from simnmt.kernels.compile import levels_of, library_path
from simnmt.kernels.levels import AVX2, AVX512, LEVELS, choose, supported

NEEDS = {"avx512": AVX2 | AVX512, "avx2": AVX2, "portable": 0}


@given(st.integers(0, 3), st.sets(st.sampled_from(LEVELS)), st.sampled_from([None, "", *LEVELS, "none"]))
def test_a_level_is_never_above_the_processor_nor_above_the_mask(features: int, compiled: set[str], asked: str | None) -> None:
    level = choose(features, compiled, asked)
    fitting = [one for one in LEVELS if one in compiled and features & NEEDS[one] == NEEDS[one]]
    if asked == "none":
        fitting = []
    elif asked:
        fitting = [one for one in fitting if LEVELS.index(one) >= LEVELS.index(asked)]
    assert level == (fitting[0] if fitting else None)


def test_avx512_without_what_avx2_needs_is_not_used() -> None:
    assert supported(AVX512) == ("portable",)


def test_a_misspelt_level_is_the_users_error_in_one_line() -> None:
    with pytest.raises(
        InputError, match=r"SIMNMT_KERNELS=avx1024: no such level of kernels \(one of avx512, avx2, portable or none\)"
    ):
        choose(3, LEVELS, "avx1024")


@pytest.mark.parametrize("asked", [*LEVELS, "none"])
def test_the_environment_masks_what_a_process_loads(asked: str) -> None:
    code = "from simnmt.kernels.native_library import library\nfound = library()\nprint(found.level if found else 'none')"
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"SIMNMT_KERNELS": asked}, capture_output=True, text=True, check=True
    )
    level = run.stdout.strip()
    assert level in (*LEVELS, "none")
    assert asked != "none" or level == "none"
    assert asked == "none" or level == "none" or LEVELS.index(level) >= LEVELS.index(asked)


def test_what_the_library_says_of_the_processor_is_what_the_system_says() -> None:
    """Linux names a feature only where it also saves its registers."""
    loaded = native_library.load("portable")
    cpuinfo = Path("/proc/cpuinfo")
    if loaded is None or platform.machine() != "x86_64" or not cpuinfo.exists():
        pytest.skip("no x86-64 Linux with compiled kernels")
    flags = set(next(line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")).split())
    avx2 = {"avx2", "fma", "f16c"} <= flags
    avx512 = avx2 and {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= flags
    assert native_library.processor_features(loaded.cdll) == AVX2 * avx2 + AVX512 * avx512


ABOVE = {"portable": r"%[yz]mm|\bv[a-z0-9]+ps\b|%k[0-7]", "avx2": r"%zmm|%[xyz]mm(1[6-9]|2\d|3[01])\b|%k[0-7]"}
"""What a level's code must not hold: wider registers, AVX's encoding, AVX-512's masks and upper registers."""


@pytest.mark.parametrize("level", ABOVE)
def test_a_level_holds_no_instruction_of_a_higher_one(level: str) -> None:
    path = library_path(level)
    if shutil.which("objdump") is None or level not in levels_of(platform.machine()) or not path.is_file():
        pytest.skip("no objdump, or no such library")
    if platform.machine() != "x86_64":
        pytest.skip("another family of processors")
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(path)], capture_output=True, text=True, check=True).stdout
    assert "xmm" in code
    found = [line.strip() for line in code.splitlines() if re.search(ABOVE[level], line)]
    assert found == []
