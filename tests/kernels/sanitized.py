"""Programs in C that check the kernels, compiled with the sanitizers or with other options, for the processor's levels."""

from __future__ import annotations

import functools
import platform
import subprocess
import tempfile
from pathlib import Path

import pytest

from simnmt.base.compile import KERNEL_LIBRARY, LEVEL_FLAGS, CompileError, find_compiler, levels_of
from simnmt.kernels.native_library import load, processor_features, supported

HERE = Path(__file__).parent
STANDARD = ("-std=gnu11", "-ffp-contract=fast")
EMPTY = "int main(void) { return 0; }\n"
SANITIZE = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
BUILDS = {level: LEVEL_FLAGS[level] for level in levels_of(platform.machine())}
# What a processor of another family runs: C alone where x86 has its instructions.
BUILDS["portable without SSE2"] = (*LEVEL_FLAGS["portable"], "-U__SSE2__")


def runnable() -> tuple[str, ...]:
    """Levels that this processor has, the widest first; the portable one alone where no library is there to ask it."""
    portable = load("portable")
    return supported(processor_features(None if portable is None else portable.cdll))


def program(check: str, build: str, target: Path, options: tuple[str, ...] = SANITIZE, *more: str) -> Path:
    """The check of that name made for one of `BUILDS`; skips where compiler or processor have not what it takes."""
    if build in LEVEL_FLAGS and build not in runnable():
        pytest.skip("this processor lacks the instructions of this level")
    if not takes(options):
        pytest.skip(f"no C compiler is installed that takes {' '.join(options)}")
    flags = (*STANDARD, *options, *more, *BUILDS[build], f"-I{KERNEL_LIBRARY.folder}")
    made = _compiled(*flags, str(HERE / check), "-o", str(target), "-lm")
    assert made.returncode == 0, made.stderr
    return target


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Its answer and its words."""
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)


@functools.cache
def takes(options: tuple[str, ...]) -> bool:
    """Whether there is a compiler with these options, and what they link."""
    with tempfile.TemporaryDirectory() as scratch:
        empty = Path(scratch) / "empty.c"
        empty.write_text(EMPTY)
        try:
            return _compiled(*options, str(empty), "-o", str(empty.with_suffix(""))).returncode == 0
        except CompileError:
            return False


def _compiled(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*find_compiler(), *arguments], capture_output=True, text=True, check=False)
