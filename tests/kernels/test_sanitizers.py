"""The C of vectors and of the output layer under the address and undefined-behaviour sanitizers, at every level."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from simnmt.kernels.compile import LEVEL_FLAGS, NATIVE, CompileError, find_compiler, levels_of
from simnmt.kernels.levels import supported
from simnmt.kernels.native_library import load, processor_features

CHECK = Path(__file__).parent / "output_check.c"
FLAGS = ("-std=gnu11", "-ffp-contract=fast", "-Wall", "-Wextra", "-Werror")
SANITIZE = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
BUILDS = {level: LEVEL_FLAGS[level] for level in levels_of(platform.machine())}
# What a processor of another family runs: C alone where x86 has its instructions.
BUILDS["portable without SSE2"] = (*LEVEL_FLAGS["portable"], "-U__SSE2__")


def compiled(source: Path, target: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*find_compiler(), *FLAGS, *SANITIZE, *flags, f"-I{NATIVE}", str(source), "-o", str(target), "-lm"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def _sanitizers(tmp_path_factory: pytest.TempPathFactory) -> None:
    scratch = tmp_path_factory.mktemp("sanitizers")
    empty = scratch / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    try:
        if compiled(empty, scratch / "empty").returncode != 0:
            pytest.skip("the compiler has no sanitizers here")
    except CompileError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("_sanitizers")
@pytest.mark.parametrize("build", BUILDS)
def test_no_size_reads_or_writes_beyond_a_buffer_and_every_result_is_right(build: str, tmp_path: Path) -> None:
    portable = load("portable")
    runs = supported(processor_features(None if portable is None else portable.cdll))
    if build in LEVEL_FLAGS and build not in runs:
        pytest.skip("not in this processor")
    made = compiled(CHECK, tmp_path / "check", *BUILDS[build])
    assert made.returncode == 0, made.stderr
    run = subprocess.run([str(tmp_path / "check")], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
