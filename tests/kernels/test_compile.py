"""Compiling at installation: whole or not at all, never a failure, and never a library of other sources."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from simnmt.base import compile as compiling
from simnmt.base.compile import KERNEL_LIBRARY, WORLD_LIBRARY, Library
from simnmt.kernels.native_library import load

ROOT = Path(__file__).parents[2]
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
def test_a_level_unknown_to_the_compiler_does_not_prevent_the_others(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compiling.LEVEL_FLAGS, "avx2", ("-mno-such-thing",))
    made, complaints = library.compile_all()
    assert library.path() in made
    assert library.path("avx2") not in made
    assert all("could not compile level avx2" in complaint for complaint in complaints)


@needs_compiler
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="options of x86-64 processors")
def test_a_compiler_set_to_one_processor_compiles_for_the_family(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = compiling.find_compiler()
    (library.folder / "kernels.c").write_text(TINY + "#ifdef __SSE4_1__\n#error one processor's\n#endif\n")
    for asked in ("-march=native", "-march=haswell", "-march=skylake-avx512"):
        monkeypatch.setenv("CC", " ".join([*compiler, asked]))
        assert library.compile_level().is_file()


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
def test_a_library_of_other_sources_is_not_even_opened(library: Library, tmp_path: Path) -> None:
    """Opening runs its constructors."""
    touched = tmp_path / "touched"
    code = f'__attribute__((constructor)) static void touch(void) {{ fclose(fopen("{touched}", "w")); }}\n'
    (library.folder / "kernels.c").write_text("#include <stdio.h>\n" + TINY + code)
    library.compile_level()
    (library.folder / "new.h").touch()
    with pytest.warns(UserWarning, match="these sources"):
        assert load(library=library) is None
    assert not touched.exists()
    (library.folder / "new.h").unlink()
    assert load(library=library) is not None
    assert touched.exists()


def test_a_file_that_is_no_library_is_not_used_and_a_warning_names_it(library: Library) -> None:
    path = library.path()
    path.write_bytes(b"not a library")
    with pytest.warns(UserWarning, match=r"libkernels-portable.so was not compiled from these sources: fallbacks are used"):
        assert load(library=library) is None
    path.write_bytes(library.sources_hash().encode())
    with pytest.warns(UserWarning, match=r"libkernels-portable.so cannot be loaded: fallbacks are used"):
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


@pytest.mark.parametrize(
    ("compiler", "why"),
    [("no-such-compiler -m64", r"no-such-compiler -m64 \(CC\) is not installed"), ("/bin/false", "could not")],
)
def test_an_unusable_compiler_is_reported_in_one_line(
    library: Library, monkeypatch: pytest.MonkeyPatch, compiler: str, why: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(compiling.CompileError, match=why):
        library.compile_level()


def test_a_missing_compiler_is_reported_in_one_line(library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(compiling.CompileError, match=r"no C compiler \(cc, gcc, clang\) is installed"):
        library.compile_level()


def test_other_families_of_processors_get_the_portable_library_alone() -> None:
    assert compiling.levels_of("aarch64") == ("portable",)
    assert compiling.levels_of("AMD64") == compiling.levels_of("x86_64") == ("avx512", "avx2", "portable")


def test_the_command_reports_a_failed_compilation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CC", "/bin/false")
    assert compiling.main() == 1
    assert capsys.readouterr().err.startswith(
        "simnmt: not all native libraries are compiled; older ones are kept: /bin/false could not compile"
    )


def test_compiling_imports_nothing_of_the_package(tmp_path: Path) -> None:
    """The build hook runs it where neither simnmt nor what it requires is installed."""
    shutil.copy(compiling.__file__, tmp_path / "compile_alone.py")
    code = "import sys, compile_alone\nprint([m for m in sys.modules if m.split('.')[0] in ('simnmt', 'numpy', 'torch')])"
    run = subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.fixture
def hook(library: Library, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, Path]:
    """hatch_build.py, in a tree of its own; what it needs of hatchling is a base class."""
    plugin = "hatchling.builders.hooks.plugin.interface"
    parts = plugin.split(".")
    for name in (".".join(parts[: end + 1]) for end in range(len(parts))):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules[plugin].BuildHookInterface = object  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    root = library.folder.parent
    for compiled, sources in ((KERNEL_LIBRARY, "kernels.c"), (WORLD_LIBRARY, "world.c")):
        folder = root / compiled.folder.relative_to(ROOT)
        shutil.copytree(library.folder, folder)
        (folder / "kernels.c").rename(folder / sources)
    (root / "simnmt" / "base").mkdir()
    shutil.copy(compiling.__file__, root / "simnmt" / "base" / "compile.py")
    return module, root


def build(module: ModuleType, root: Path, target: str = "wheel") -> tuple[dict[str, Any], list[str]]:
    warned: list[str] = []
    made = module.NativeLibraries()
    made.root, made.target_name, made.app = str(root), target, SimpleNamespace(display_warning=warned.append)
    build_data: dict[str, Any] = {"artifacts": []}
    made.initialize("standard", build_data)
    return build_data, warned


@needs_compiler
def test_a_wheel_contains_the_libraries_and_the_tag_of_the_platform(hook: tuple[ModuleType, Path]) -> None:
    build_data, warned = build(*hook)
    assert warned == []
    assert build_data["tag"].startswith("py3-none-")
    assert "any" not in build_data["tag"]
    assert build_data["pure_python"] is False
    assert "/simnmt/kernels/native/libkernels-portable.so" in build_data["artifacts"]
    assert "/simnmt/world/compiled/libworld-portable.so" in build_data["artifacts"]
    assert all((hook[1] / path.lstrip("/")).is_file() for path in build_data["artifacts"])


@needs_compiler
def test_a_wheel_names_the_processor_it_was_compiled_for(
    hook: tuple[ModuleType, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apple's Python runs on two; its libraries do not."""
    monkeypatch.setattr("sysconfig.get_platform", lambda: "macosx-11.0-universal2")
    assert build(*hook)[0]["tag"] == f"py3-none-macosx_11_0_{platform.machine()}"


def test_without_a_compiler_the_package_is_still_installed(
    hook: tuple[ModuleType, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/bin/false")
    build_data, warned = build(*hook)
    assert build_data == {"artifacts": []}
    assert len(warned) == 1
    assert warned[0].startswith(
        "simnmt: the native libraries are not compiled, fallbacks are used: /bin/false could not compile"
    )


def test_a_source_distribution_carries_no_library(hook: tuple[ModuleType, Path]) -> None:
    assert build(*hook, target="sdist") == ({"artifacts": []}, [])
