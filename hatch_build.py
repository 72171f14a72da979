"""Build hook: compiles the native libraries when the package is installed or a wheel is made, where a C compiler is there.

Without one the package is installed all the same: every kernel and the world have a reference in Python. An installation makes
the build for the processor at hand. The variable SIMNMT_NATIVE of the environment decides otherwise, for wheels that are
published: `none` compiles nothing and makes a wheel for every platform; `required` makes the builds for processors with AVX2
and for any processor, and fails if one cannot be made.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def load_compile(root: Path) -> ModuleType:
    """simnmt/base/compile.py by itself: the package's requirements may not be there yet."""
    spec = importlib.util.spec_from_file_location("simnmt_compile", root / "simnmt" / "base" / "compile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


VARIABLE = "SIMNMT_NATIVE"


def wheel_platform(system: str, machine: str) -> str:
    """Return the platform's part of a wheel's tag for libraries that are compiled here.

    Args:
        system: the platform of the running Python, as `sysconfig.get_platform` names it.
        machine: the processor, as `platform.machine` names it. A Python for both of Apple's processors compiles for this one.

    On Linux, pip installs a wheel of this tag on this box, and PyPI refuses it until `auditwheel repair` has found which
    systems have the libraries that it uses (`make dist`).
    """
    name, _, version = system.partition("-")
    if name == "macosx":
        release = version.rpartition("-")[0]
        if machine == "arm64" and release.startswith("10."):
            release = "11.0"  # the first for Apple's own processors; pip takes no earlier one
        release = release if "." in release else f"{release}.0"
        system = f"{name}-{release}-{machine}"
    return re.sub("[-.]", "_", system)


class NativeLibraries(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled libraries beside their sources, and into the wheel with the platform's tag."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; a failure is one line of warning, or an error if the libraries are required."""
        wanted = os.environ.get(VARIABLE, "")
        if wanted not in ("", "none", "required"):
            raise ValueError(f"{VARIABLE}={wanted}: write none or required, or leave it unset")
        if self.target_name != "wheel" or wanted == "none":
            return
        tag = wheel_platform(sysconfig.get_platform(), platform.machine())
        if tag.startswith("macosx_"):
            os.environ.setdefault("MACOSX_DEPLOYMENT_TARGET", ".".join(tag.split("_")[1:3]))
        compiling = load_compile(Path(self.root))
        builds = ("avx2", "portable") if wanted else ()  # else those for the processor at hand
        made, complaints = compiling.compile_libraries(builds)
        if wanted and complaints:
            raise RuntimeError(f"simnmt: the native libraries are required, but not all compiled: {complaints[0]}")
        for complaint in complaints:
            self.app.display_warning(f"simnmt: {complaint}")
        if not made:
            return
        build_data["tag"] = f"py3-none-{tag}"
        build_data["pure_python"] = False
        build_data["artifacts"].extend(f"/{path.relative_to(self.root).as_posix()}" for path in made)
