"""Build hook: compiles the native libraries when the package is installed or a wheel is made, where a C compiler is there.

Without one the package is installed all the same: every kernel and the world have a fallback.
"""

from __future__ import annotations

import importlib.util
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


def platform_of_code() -> str:
    """The platform that the compiled libraries run on: of a Python for both of Apple's processors, this one alone."""
    return sysconfig.get_platform().replace("universal2", platform.machine())


class NativeLibraries(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled libraries beside their sources, and into the wheel with the platform's tag."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; a failure is one line of warning."""
        if self.target_name != "wheel":
            return
        compiling = load_compile(Path(self.root))
        try:
            made, complaints = compiling.compile_libraries()
        except (compiling.CompileError, OSError) as error:
            self.app.display_warning(f"simnmt: the native libraries are not compiled, fallbacks are used: {error}")
            return
        for complaint in complaints:
            self.app.display_warning(f"simnmt: {complaint}")
        build_data["tag"] = f"py3-none-{re.sub('[-.]', '_', platform_of_code())}"
        build_data["pure_python"] = False
        build_data["artifacts"].extend(f"/{path.relative_to(self.root).as_posix()}" for path in made)
