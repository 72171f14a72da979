"""No processor meets an instruction that it lacks: what is chosen, by what it has and by what is asked for."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.base import compile as compiling
from simnmt.base.compile import KERNEL_LIBRARY, Library, levels_of
from simnmt.base.errors import InputError
from simnmt.kernels import native_library
from simnmt.kernels.native_library import AVX2, AVX512, LEVELS, choose, load, supported

NEEDS = {"avx512": AVX2 | AVX512, "avx2": AVX2, "portable": 0}


@given(st.integers(0, 3), st.sets(st.sampled_from(LEVELS)), st.sampled_from([None, *LEVELS, "none"]))
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


def test_a_misspelt_level_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = r"='sse': no such level of kernels \(one of avx512, avx2, portable or none\)"
    monkeypatch.setenv("SIMNMT_KERNELS", "sse")
    with pytest.raises(InputError, match="SIMNMT_KERNELS" + wrong):
        native_library.native_at.__wrapped__(None)


def printed(code: str, **environment: str) -> str:
    """By a Python of its own."""
    run = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True)
    return run.stdout.strip()


@pytest.mark.parametrize("asked", ["portable", "none"])
def test_the_environment_limits_the_level_of_a_process(asked: str) -> None:
    portable = native_library.load("portable")
    if portable is None:
        pytest.skip("nothing was compiled: there was no C compiler")
    there = [level for level in LEVELS if KERNEL_LIBRARY.path(level).is_file()]
    wanted = choose(native_library.processor_features(portable.cdll), there, asked) or "none"
    code = "from simnmt.kernels.native_library import level_name\nprint(level_name())"
    assert printed(code, SIMNMT_KERNELS=asked) == wanted
    assert (wanted == "none") == (asked == "none")


@pytest.mark.parametrize(("features", "mapped"), [(0, ["portable"]), (AVX2, ["avx2", "portable"])])
def test_a_library_that_the_processor_cannot_run_is_not_even_opened(features: int, mapped: list[str]) -> None:
    """Opening runs its constructors, which are compiled with its level's instructions."""
    wide = [level for level in mapped if level != "portable"]
    if not Path("/proc/self/maps").exists() or native_library.load("portable") is None:
        pytest.skip("nothing was compiled, or the system has no /proc/self/maps")
    if not all(KERNEL_LIBRARY.path(level).is_file() for level in wide):
        pytest.skip("the library of this level was not compiled")
    code = f"""
import re
from pathlib import Path
from simnmt.kernels import native_library
native_library.processor_features = lambda portable: {features}
assert native_library.native_at(None) is not None
for level in ("avx512", "avx2", "portable"):
    native_library.native_at(level)
print(sorted(set(re.findall("libkernels-([a-z0-9]+)", Path("/proc/self/maps").read_text()))))
"""
    assert printed(code, SIMNMT_KERNELS="") == str(mapped)


def test_the_library_reports_the_features_that_the_system_reports() -> None:
    """Linux names a feature only where it also saves its registers."""
    loaded = native_library.load("portable")
    cpuinfo = Path("/proc/cpuinfo")
    if loaded is None or platform.machine() != "x86_64" or not cpuinfo.exists():
        pytest.skip("needs an x86-64 Linux with compiled kernels")
    flags = set(next(line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")).split())
    avx2 = {"avx2", "fma", "f16c"} <= flags
    avx512 = avx2 and {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= flags
    assert native_library.processor_features(loaded.cdll) == AVX2 * avx2 + AVX512 * avx512


OF_NO_LEVEL = (
    r"""andn|bextr|bls(i|r|msk)|bzhi|mulx|pdep|pext|rorx|s[ah][rl]x|lzcnt|ad[co]x|movbe|aes\w+|pclmul\w+|sha(1|256)\w+"""
)
BEYOND_SSE2 = r"""
    v\w+ | addsubp[sd] | h(add|sub)p[sd] | lddqu | mov(d|sh|sl)dup | fisttp\w* | pabs[bwd] | palignr | ph(add|sub)s?[wd]
    | pmaddubsw | pmulhrsw | pshufb | psign[bwd] | p?blendv?(b|w|p[sd]) | dpp[sd] | extractps | insertps | movntdqa | mpsadbw
    | packusdw | pcmp(eq|gt)q | pextr[bdq] | pinsr[bdq] | phminposuw | p(max|min)(s[bd]|u[wd]) | pmov[sz]x\w+ | pmuldq
    | pmulld | ptest | round[ps][sd] | crc32\w* | pcmp[ei]str[im] | popcnt\w*
"""
"""tzcnt is none of them: it is how bsf with a prefix reads, which a processor without it takes for bsf."""
MNEMONICS = {"portable": f"{BEYOND_SSE2} | {OF_NO_LEVEL}", "avx2": OF_NO_LEVEL}
REGISTERS = {"portable": r"%[yz]mm|%k[0-7]", "avx2": r"%zmm|%[xyz]mm(1[6-9]|2\d|3[01])\b|%k[0-7]"}
"""What a level's code must not hold: instructions and registers of wider levels, or of none."""


def above(level: str, disassembled: str) -> list[str]:
    """The lines of a disassembly that a processor of this level may lack."""
    mnemonic = re.compile(rf"(?:{MNEMONICS[level]})", re.VERBOSE)
    wider = []
    for line in disassembled.splitlines():
        address, _, code = line.partition(":\t")
        if not code or not re.fullmatch(r"\s*[0-9a-f]+", address):
            continue
        words = code.split("#")[0].split()
        if any(mnemonic.fullmatch(word) for word in words[:2]) or re.search(REGISTERS[level], code):
            wider.append(line.strip())
    return wider


@pytest.mark.parametrize("level", MNEMONICS)
def test_a_level_contains_no_instruction_of_a_higher_level(level: str) -> None:
    path = KERNEL_LIBRARY.path(level)
    if shutil.which("objdump") is None or level not in levels_of(platform.machine()) or not path.is_file():
        pytest.skip("objdump is not installed, or the library of this level was not compiled")
    if platform.machine() != "x86_64":
        pytest.skip("reads the instructions of x86-64")
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(path)], capture_output=True, text=True, check=True).stdout
    assert "xmm" in code
    assert above(level, code) == []


TINY = """
#include "features.h"
#pragma GCC visibility push(default)
const char *simnmt_sources(void) { return SIMNMT_SOURCES; }
int simnmt_features(void) { return FEATURES; }
"""


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """Kernels that compile in no time."""
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "kernels.c").write_text(TINY)
    (folder / "features.h").write_text("#define FEATURES 0\n")
    return replace(KERNEL_LIBRARY, folder=folder)


needs_compiler = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler is installed")


@needs_compiler
def test_compiled_libraries_are_loaded(library: Library) -> None:
    assert load(library=library) is None
    made, complaints = library.compile_all()
    assert complaints == []
    assert made == [library.path(), *made[1:]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load(library=library)
    assert loaded is not None
    assert loaded.level == "portable"
    assert load("none", library) is None
    assert sorted(path.name for path in library.folder.iterdir() if path.name.startswith(".")) == []


@needs_compiler
@pytest.mark.parametrize("changed", ["kernels.c", "features.h", "new.h"])
def test_a_library_of_other_sources_is_not_used_and_a_warning_names_it(library: Library, changed: str) -> None:
    library.compile_level()
    with (library.folder / changed).open("a") as file:
        file.write("/* changed */\n")
    with pytest.warns(
        UserWarning, match=r"libkernels-portable.so was not compiled from these sources: fallbacks .*base.compile"
    ):
        assert load(library=library) is None


@needs_compiler
def test_a_failed_compilation_keeps_the_previous_library(library: Library) -> None:
    made = library.compile_level()
    before = made.read_bytes()
    (library.folder / "features.h").write_text("#error no such luck\n")
    with pytest.raises(compiling.CompileError, match=r"could not compile level portable of kernels: .*no such luck") as error:
        library.compile_level()
    assert "\n" not in str(error.value)
    assert made.read_bytes() == before
    assert [path.name for path in library.folder.iterdir() if path.name.startswith(".")] == []


def test_a_missing_compiler_is_reported_in_one_line(library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(compiling.CompileError, match=r"no C compiler \(cc, gcc, clang\) is installed"):
        library.compile_level()
