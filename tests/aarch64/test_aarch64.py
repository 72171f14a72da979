"""The C for aarch64, run in qemu: the world gives the bits of SimPy, and the kernels the numbers of their oracles.

`make check-deep` runs these tests, with SIMNMT_AARCH64=required. What x86 does not show: contracted products, unsigned `char`,
the C without SSE, the libm and the jumps of another processor.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings

from simnmt.base.compile import KERNEL_LIBRARY, WORLD_LIBRARY, Library
from simnmt.world import compiled_library, compiled_world, simulation
from tests.aarch64.emulated_library import (
    EmulatedLibrary,
    EmulationError,
    compile_program,
    cross_compiled,
    missing_tools,
    opened,
    run_program,
)
from tests.campaigns.harness import SCALE
from tests.world.random_worlds import SPECIAL, World, assert_equal, random_worlds

ROOT = Path(__file__).parents[2]
ALLOCATION_COUNTER = ("-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc", "-DCOUNT_ALLOCATIONS")
C_PROGRAMS: dict[str, tuple[tuple[str, ...], str]] = {
    "output_check.c": ((), ""),
    "product_check.c": ((), ""),
    "gathered_check.c": ((), ""),
    "unpack_check.c": ((), ""),
    "sharp_check.c": (ALLOCATION_COUNTER, "0 wrong, 0 allocations\n1 when one is made\n"),
}
"""Programs in tests/kernels that check the kernels, with further options, and what they print."""
TESTS_OF_KERNELS = [
    f"tests/kernels/test_{name}.py"
    for name in (
        *("products", "output_layer", "gathered", "column_sets", "unpack", "activations", "centroids"),
        *("sharp_cells", "sharp_operations", "sharp_source", "sharp_search"),
    )
]


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    """Skip where SIMNMT_AARCH64 is not `required`, else fail where compiler or emulator are missing."""
    missing = missing_tools()
    if os.environ.get("SIMNMT_AARCH64") != "required":
        pytest.skip(
            "; ".join(filter(None, ("takes minutes: SIMNMT_AARCH64=required runs it, as does make check-deep", missing)))
        )
    if missing:
        pytest.fail(missing)


@contextmanager
def emulated_world(library: Library) -> Iterator[EmulatedLibrary]:
    """Let the compiled world be a library for aarch64."""
    compiled_library.library.cache_clear()
    with mock.patch.object(Library, "opened", opened), mock.patch.object(compiled_library, "WORLD_LIBRARY", library):
        emulated = compiled_world.library()
        assert isinstance(emulated, EmulatedLibrary)
        try:
            yield emulated
        finally:
            compiled_library.library.cache_clear()
            emulated.close()


def unequal_worlds(kind: str, worlds: int) -> list[str]:
    """Return how random worlds differ between SimPy here and the compiled world as it is."""
    differences = list[str]()

    @settings(max_examples=worlds, derandomize=True, deadline=None, database=None)
    @given(random_worlds(kind))
    def compare(world: World) -> None:
        try:
            assert_equal(world.run(simulation.simulate), world.run(compiled_world.simulate_compiled))
        except AssertionError as difference:
            differences.append(f"{world}: {difference}")

    compare()
    return differences


def run_tests(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run existing tests with the libraries of aarch64, at their scale in `make test`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SIMNMT_", "PYTEST_"))}
    environment |= {"SIMNMT_AARCH64_FOLDER": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.aarch64.emulated_kernels", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def assert_passed(run: subprocess.CompletedProcess[str], least: int) -> None:
    """Assert that at least so many tests ran and none failed or was skipped."""
    assert run.returncode == 0, run.stdout + run.stderr
    passed = sum(line.split(" [")[0].count(".") for line in run.stdout.splitlines() if line.endswith("%]"))
    assert passed >= least, run.stdout


@pytest.fixture(scope="module")
def world_library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return cross_compiled(WORLD_LIBRARY, tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize("kind", SPECIAL)
def test_random_worlds_on_aarch64_are_equal_to_simpy_on_this_processor_to_the_bit(kind: str, world_library: Library) -> None:
    with emulated_world(world_library) as emulated:
        assert unequal_worlds(kind, round(40 * SCALE)) == []
        assert emulated.pages > 0


def test_the_tests_of_the_compiled_world_pass_on_aarch64(tmp_path: Path) -> None:
    """With pauses between all events, failed allocations, probes that fail, and refusals."""
    assert_passed(run_tests(tmp_path, "tests/world/test_compiled_world.py"), least=25)


def test_the_tests_of_the_kernels_pass_on_aarch64(tmp_path: Path) -> None:
    """Integers to the bit, floats within the bounds that x86 has to hold, both against numpy and torch on this processor."""
    assert_passed(run_tests(tmp_path, *TESTS_OF_KERNELS, "-k", "portable"), least=120)


@pytest.mark.parametrize("check", C_PROGRAMS)
def test_the_programs_in_c_that_check_the_kernels_find_no_error_on_aarch64(check: str, tmp_path: Path) -> None:
    options, printed = C_PROGRAMS[check]
    flags = tuple(flag for flag in KERNEL_LIBRARY.flags if flag not in ("-shared", "-fPIC"))
    source = ROOT / "tests/kernels" / check
    warnings = ("-Wall", "-Wextra", "-Werror")
    program = compile_program(
        tmp_path / "check", *flags, *warnings, "-DLANES=4", *options, f"-I{KERNEL_LIBRARY.folder}", str(source)
    )
    run = run_program(program)
    assert (run.returncode, run.stdout, run.stderr) == (0, printed, "")


def replaced(file: str, old: str, new: str) -> Callable[[str, str], str]:
    """Return a change of one source, whose text must occur there."""

    def change(name: str, text: str) -> str:
        if name != file:
            return text
        assert old in text
        return text.replace(old, new)

    return change


def test_a_world_with_contracted_products_is_found(tmp_path: Path) -> None:
    """Which aarch64 has and the level of x86 has not: a x b + c rounded once."""
    flags = tuple(flag.replace("-ffp-contract=off", "-ffp-contract=fast") for flag in WORLD_LIBRARY.flags)
    with emulated_world(cross_compiled(replace(WORLD_LIBRARY, flags=flags), tmp_path)):
        assert unequal_worlds("batches", 40) != []


def test_a_changed_constant_of_the_world_is_found(tmp_path: Path) -> None:
    change = replaced("estimates.h", "(double)(self->measured - 1)", "(double)(self->measured - 2)")
    with emulated_world(cross_compiled(WORLD_LIBRARY, tmp_path, change)):
        assert unequal_worlds("plain", 100) != []


def test_a_changed_constant_of_a_kernel_is_found(tmp_path: Path) -> None:
    change = replaced("vectors.h", "vset(0.4999923030490129f)", "vset(0.49998f)")
    library = cross_compiled(KERNEL_LIBRARY, tmp_path / "kernels", change)
    program = compile_program(
        tmp_path / "check", "-O2", "-DLANES=4", f"-I{library.folder}", str(ROOT / "tests/kernels/output_check.c")
    )
    run = run_program(program)
    assert run.returncode == 1
    assert "exponential of" in run.stdout or "vexp of" in run.stdout


def test_an_address_that_python_has_not_ends_the_emulated_process_and_not_python(tmp_path: Path) -> None:
    emulated = EmulatedLibrary(cross_compiled(KERNEL_LIBRARY, tmp_path).path())
    emulated.simnmt_tanh.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p)
    with pytest.raises(EmulationError, match="simnmt_tanh touches 0x10000, which is not there"):
        emulated.simnmt_tanh(0x10000, 4, 0, 0x10000)
    emulated.close()
