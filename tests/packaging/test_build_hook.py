"""The build hook: the tag of a wheel with compiled libraries, and what SIMNMT_NATIVE asks of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("system", "machine", "tag"),
    [
        ("linux-x86_64", "x86_64", "linux_x86_64"),
        ("macosx-14.0-arm64", "arm64", "macosx_14_0_arm64"),
        ("macosx-10.9-universal2", "arm64", "macosx_11_0_arm64"),
        ("macosx-10.9-universal2", "x86_64", "macosx_10_9_x86_64"),
    ],
)
def test_a_wheel_is_tagged_with_the_processor_that_its_libraries_run_on(
    hook: ModuleType, system: str, machine: str, tag: str
) -> None:
    assert hook.wheel_platform(system, machine) == tag


MADE = ([ROOT / "simnmt" / "world" / "compiled" / "libworld-portable.so"], [])
NONE_MADE = ([], ["no C compiler"])


def build_data(hook: ModuleType, monkeypatch: pytest.MonkeyPatch, wanted: str | None, compile_libraries: Any) -> dict[str, Any]:
    """Return what the hook adds to a wheel if the compilation returns libraries and complaints."""
    monkeypatch.setattr(hook, "load_compile", lambda root: SimpleNamespace(compile_libraries=compile_libraries))
    if wanted is None:
        monkeypatch.delenv("SIMNMT_NATIVE", raising=False)
    else:
        monkeypatch.setenv("SIMNMT_NATIVE", wanted)
    data: dict[str, Any] = {"artifacts": []}
    warnings = SimpleNamespace(display_warning=lambda text: data.setdefault("warnings", []).append(text))
    builder = hook.NativeLibraries(str(ROOT), {}, None, None, "", "wheel", warnings)
    builder.initialize("standard", data)
    return data


def test_a_wheel_for_every_platform_compiles_nothing(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = mock.Mock()
    assert build_data(hook, monkeypatch, "none", compiler) == {"artifacts": []}
    compiler.assert_not_called()


def test_an_installation_without_a_compiler_warns_and_a_wheel_that_requires_the_libraries_fails(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = build_data(hook, monkeypatch, None, mock.Mock(return_value=NONE_MADE))
    assert "tag" not in data
    assert "no C compiler" in data["warnings"][0]
    with pytest.raises(RuntimeError, match="required, but not all compiled: no C compiler"):
        build_data(hook, monkeypatch, "required", mock.Mock(return_value=NONE_MADE))


def test_an_installation_compiles_for_its_processor_and_a_published_wheel_for_all(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = mock.Mock(return_value=MADE)
    data = build_data(hook, monkeypatch, None, compiler)
    assert data["tag"].startswith("py3-none-")
    assert data["artifacts"] == ["/simnmt/world/compiled/libworld-portable.so"]
    build_data(hook, monkeypatch, "required", compiler)
    assert compiler.call_args_list == [mock.call(()), mock.call(("avx2", "portable"))]


def test_another_value_of_the_variable_is_refused(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="write none or required"):
        build_data(hook, monkeypatch, "maybe", mock.Mock())
