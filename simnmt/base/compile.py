"""Compile the C of the kernels and of the world, when the package is installed or by `python -m simnmt.base.compile`; open it.

All `.c` files of a library's folder are one translation unit. A compiled file holds a hash of what it was made from, so that a
library of other sources, or of another processor's instructions, is never opened. Imports nothing of simnmt: the build hook
runs this file before the package is installed.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
X86_64 = platform.machine().lower() in ("x86_64", "amd64")
_ANY_X86_64 = ("-march=x86-64", "-mtune=generic") if X86_64 else ()
BUILDS: Mapping[str, tuple[str, ...]] = {
    "native": ("-march=native", *(("-mtune=generic", "-mprefer-vector-width=512") if X86_64 else ())),
    "avx2": (*_ANY_X86_64, "-mavx2", "-mfma"),
    "portable": _ANY_X86_64,
}
"""Flags by build: for the processor at hand; for processors with AVX2; for any processor of the family.

GCC 12 tunes for Zen with shuffles in place of broadcasts, by which products of four rows take a third longer.
"""


class NativeLibraryWarning(UserWarning):
    """A native library cannot be used; a reference gives the same results more slowly."""


class CompileError(Exception):
    """A library could not be made; the message gives the reason in one line."""


@functools.cache
def cpuinfo() -> Mapping[str, str]:
    """Return the fields of the first processor in /proc/cpuinfo; none on systems without it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in reversed(lines) if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def cpu_name() -> str:
    """Return the model name of the processor as the system reports it."""
    return cpuinfo().get("model name") or platform.processor() or platform.machine()


def cpu_features() -> frozenset[str]:
    """Return the features of the processor by Linux' names; none on other systems."""
    return frozenset((cpuinfo().get("flags") or cpuinfo().get("Features") or "").split())


@dataclass(frozen=True, slots=True)
class Library:
    """A native library: the C of one folder."""

    name: str
    folder: Path
    """Of the sources; the compiled files lie beside them."""
    flags: tuple[str, ...]
    builds: tuple[str, ...]
    """The first is made by an installation, the others are in wheels that are published; `open` prefers the first."""
    instead: str
    """What is used without the library, for messages."""

    def path(self, build: str) -> Path:
        """Return the path of a build."""
        return self.folder / f"lib{self.name}-{build}.so"

    def digest(self, build: str) -> str:
        """Hash what a build is made from: sources, flags, and for `native` the processor."""
        digest = hashlib.sha256(repr((self.flags, BUILDS[build])).encode())
        if build == "native":
            digest.update(repr((cpu_name(), sorted(cpu_features()))).encode())
        for source in sorted(self.folder.glob("*.[ch]")):
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
        return digest.hexdigest()[:16]

    def current(self, build: str) -> bool:
        """Return whether the build is there, and made from these sources for this processor."""
        return self.path(build).is_file() and self.digest(build).encode() in self.path(build).read_bytes()

    def compile(self, build: str) -> Path:
        """Compile a build unless it is there, whole or not at all; return its path. Raises `CompileError`."""
        target = self.path(build)
        if self.current(build):
            return target
        compiler = find_compiler()
        unit = "".join(f'#include "{source.name}"\n' for source in sorted(self.folder.glob("*.c")))
        unit += f'__attribute__((used)) static const char simnmt_made_from[] = "{self.digest(build)}";\n'
        with tempfile.TemporaryDirectory(prefix=".compiling-", dir=self.folder) as scratch:
            made = Path(scratch) / target.name
            command = [*compiler, *self.flags, *BUILDS[build], f"-I{self.folder}", "-xc", "-", "-o", str(made), "-lm"]
            run = subprocess.run(command, input=unit, capture_output=True, text=True, check=False)
            if run.returncode != 0 or not made.exists():
                errors = [line for line in run.stderr.splitlines() if "error" in line]
                complaint = errors[0] if errors else run.stderr.strip() or "it gives no reason"
                raise CompileError(f"{shlex.quote(compiler[0])} could not compile lib{self.name}-{build}: {complaint}")
            made.replace(target)
        return target

    def open(self, asked: str | None = None) -> ctypes.CDLL | None:
        """Open the best build that this processor runs, or the one asked for, and declare the types of its functions.

        Returns None, with one warning, if none can be used.
        """
        for build in (asked,) if asked else self.builds:
            if (build != "avx2" or {"avx2", "fma"} <= cpu_features()) and self.current(build):
                try:
                    cdll = ctypes.CDLL(str(self.path(build)))
                except OSError:
                    continue
                for source in self.folder.glob("*.[ch]"):
                    exported = re.findall(r"^SIMNMT_EXPORT ([^(]+?)(\w+)\((.*?)\)", source.read_text(), re.M | re.S)
                    for kind, name, parameters in exported:
                        function = getattr(cdll, name)
                        function.restype = _c_type(kind)
                        function.argtypes = [_c_type(part) for part in parameters.split(",") if part.strip() != "void"]
                return cdll
        made = any(self.path(build).is_file() for build in self.builds)
        why = "was not compiled from these sources for this processor" if made else "is not compiled"
        what = f"the native library of the {self.name} {why}: {self.instead} used until you {compile_remedy()}"
        warnings.warn(what, NativeLibraryWarning, stacklevel=3)
        return None


_NUMBERS: Mapping[str, Any] = {
    "int64_t": ctypes.c_int64, "int": ctypes.c_int, "float": ctypes.c_float, "double": ctypes.c_double, "void": None,
}  # fmt: skip


def _c_type(declaration: str) -> Any:
    if "char *" in declaration:
        return ctypes.c_char_p
    return ctypes.c_void_p if "*" in declaration else _NUMBERS[declaration.replace("const ", "").split()[0]]


def c_declarations(source: Path) -> SimpleNamespace:
    """Return the structures and the numbers of the plain enumerations of a source, by name.

    Structures that hold a type unknown here are left out.
    """
    text = re.sub(r"/\*.*?\*/", "", source.read_text(), flags=re.DOTALL)
    types = dict(_NUMBERS)
    for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", text, flags=re.DOTALL):
        fields = []
        for kind, names in re.findall(r"\s*(?:const )?(\w+)\s*(.*?);", body, flags=re.DOTALL):
            for field, count in re.findall(r"(\*?\s*\w+)(?:\[(\d+)\])?", names.replace("const", "")):
                field_type = ctypes.c_void_p if field.startswith("*") else types.get(kind)
                fields.append((field.lstrip("* "), field_type * int(count) if count and field_type else field_type))
        if all(field_type for _, field_type in fields):
            types[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    for names in re.findall(r"enum \{(.*?)\}", text):
        types |= {name.strip(): number for number, name in enumerate(names.split(","))}
    return SimpleNamespace(**types)


SHARED_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden")
KERNEL_LIBRARY = Library(
    "kernels",
    PACKAGE / "kernels" / "native",
    (*SHARED_FLAGS, "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
    ("native", "avx2", "portable") if X86_64 else ("native", "portable"),
    "numpy and torch are",
)
WORLD_LIBRARY = Library(
    "world",
    PACKAGE / "world" / "compiled",
    (*SHARED_FLAGS, "-ffp-contract=off", "-DNDEBUG"),
    ("portable",),
    "the reference world is",
)
"""The compiled world gives the same bits on every processor: no fused multiplication and addition, one build."""


def find_compiler() -> list[str]:
    """Return the command of the C compiler: the variable CC, else the first of cc, gcc and clang. Raises `CompileError`."""
    asked = os.environ.get("CC", "").split()
    for command in [asked] if asked else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]):
            return command
    raise CompileError(f"{' '.join(asked)} (CC) is not installed" if asked else "no C compiler (cc, gcc, clang) is installed")


def compile_remedy() -> str:
    """Return what a user does to have the native libraries."""
    try:
        find_compiler()
    except CompileError:
        return "install a C compiler (cc, gcc or clang), and run `python -m simnmt.base.compile`"
    return "run `python -m simnmt.base.compile`"


def compile_libraries(builds: Sequence[str] = ()) -> tuple[list[Path], list[str]]:
    """Compile these builds of each library that has them, by default the first of each.

    Returns the paths, and why others could not be made.
    """
    made, complaints = list[Path](), list[str]()
    for library in (WORLD_LIBRARY, KERNEL_LIBRARY):
        for build in [build for build in library.builds if build in builds] if builds else library.builds[:1]:
            try:
                made.append(library.compile(build))
            except (CompileError, OSError) as error:  # noqa: PERF203
                complaints.append(f"{library.instead} used, because {error}")
    return made, complaints


if __name__ == "__main__":
    paths, problems = compile_libraries(sys.argv[1:])
    for line in [*problems, "native libraries compiled: " + (", ".join(path.name for path in paths) or "none")]:
        print(f"simnmt: {line}", file=sys.stderr)
    raise SystemExit(1 if problems else 0)
