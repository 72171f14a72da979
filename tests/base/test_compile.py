"""Compiling and opening a native library: whole or not at all, and never one of other sources or of another processor."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from simnmt.base import compile as compiling
from simnmt.base.compile import CompileError, Library, NativeLibraryWarning, c_declarations

TINY = """
#include "number.h"
#define SIMNMT_EXPORT __attribute__((visibility("default")))
typedef struct {
    const double *values;
    int64_t count, parts[2];
} Sum;
enum { ONE, OTHER };
SIMNMT_EXPORT double simnmt_sum(const Sum *sum, float factor) { return sum->values[sum->count - 1] * factor + NUMBER; }
"""
pytestmark = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler is installed")


@pytest.fixture
def library(tmp_path: Path) -> Library:
    (tmp_path / "tiny.c").write_text(TINY)
    (tmp_path / "number.h").write_text("#pragma once\n#include <stdint.h>\n#define NUMBER 0.5\n")
    return Library("tiny", tmp_path, compiling.SHARED_FLAGS, ("native", "portable"), "Python is")


def files(library: Library) -> list[str]:
    return sorted(path.name for path in library.folder.iterdir() if path.suffix not in (".c", ".h"))


def test_functions_and_structures_have_the_types_of_the_sources(library: Library) -> None:
    for build in library.builds:
        library.compile(build)
    cdll, c = library.open(), c_declarations(library.folder / "tiny.c")
    assert cdll is not None and files(library) == ["libtiny-native.so", "libtiny-portable.so"]
    values = (compiling.ctypes.c_double * 2)(1.0, 2.0)
    total = c.Sum(values=compiling.ctypes.addressof(values), count=2, parts=(3, 4))
    assert cdll.simnmt_sum(compiling.ctypes.byref(total), 3.0) == 6.5
    assert (c.ONE, c.OTHER, list(total.parts)) == (0, 1, [3, 4])


@pytest.mark.parametrize("changed", ["tiny.c", "number.h", "new.h"])
def test_a_library_of_other_sources_is_compiled_again_and_not_opened_before(library: Library, changed: str) -> None:
    made = library.compile("portable")
    first = made.stat().st_mtime_ns
    assert library.compile("portable").stat().st_mtime_ns == first
    with (library.folder / changed).open("a") as file:
        file.write("/* changed */\n")
    with pytest.warns(NativeLibraryWarning):
        assert library.open() is None
    library.compile("portable")
    assert library.open() is not None


def test_a_native_build_of_another_processor_is_not_opened(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    library.compile("native")
    monkeypatch.setattr(compiling, "cpu_features", lambda: frozenset({"fpu"}))
    with pytest.warns(NativeLibraryWarning):
        assert library.open() is None


def test_a_failed_compilation_keeps_the_previous_library(library: Library) -> None:
    before = library.compile("portable").read_bytes()
    (library.folder / "number.h").write_text("#error no such luck\n")
    with pytest.raises(CompileError, match="no such luck") as error:
        library.compile("portable")
    assert "\n" not in str(error.value)
    assert library.path("portable").read_bytes() == before
    assert files(library) == ["libtiny-portable.so"]


def test_without_a_compiler_every_library_has_one_complaint(
    library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compiling, "KERNEL_LIBRARY", library)
    monkeypatch.setattr(compiling, "WORLD_LIBRARY", replace(library, builds=("portable",)))
    with pytest.warns(NativeLibraryWarning, match="until you install a C compiler"):
        assert library.open() is None
    made, complaints = compiling.compile_libraries()
    assert (made, len(complaints)) == ([], 2)
    assert all("Python is used" in complaint and "no C compiler" in complaint for complaint in complaints)
