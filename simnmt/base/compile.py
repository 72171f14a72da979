"""Compile the native libraries, when the package is installed or by `python -m simnmt.base.compile`, and open them.

Imports nothing of simnmt: the build hook runs this file before the package is installed.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
PORTABLE = "portable"
"""The level that runs on every processor of a family."""
LEVEL_FLAGS: dict[str, tuple[str, ...]] = {
    "avx512": (
        *("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mprefer-vector-width=512"),
        *("-mavx2", "-mfma", "-mf16c", "-DLANES=16"),
    ),
    "avx2": ("-mavx2", "-mfma", "-mf16c", "-DLANES=8"),
    PORTABLE: ("-DLANES=4",),
}
"""Flags of the kernels' levels beside `family_flags`, the widest level first."""
X86_64, X86_64_FLAGS = ("x86_64", "amd64"), ("-march=x86-64", "-mtune=generic")
SHARED_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden")


class NativeLibraryWarning(UserWarning):
    """A native library cannot be used; a fallback gives the same results more slowly."""


class CompileError(Exception):
    """A library could not be made; the message gives the reason in one line."""


@dataclass(frozen=True, slots=True)
class Library:
    """A native library: one translation unit, compiled once per level."""

    name: str
    """Of the translation unit, and of the library."""
    folder: Path
    """Of the sources; the library lies beside them."""
    flags: tuple[str, ...]
    level_flags: Mapping[str, tuple[str, ...]]
    """By level, the widest first."""
    instead: str
    """What is used without the library, for messages."""

    def path(self, level: str = PORTABLE) -> Path:
        """Return the path of a level's library."""
        return self.folder / f"lib{self.name}-{level}.so"

    def sources_hash(self) -> str:
        """Hash the present sources and flags; a library contains the hash of those that it was made from."""
        digest = hashlib.sha256(repr((self.flags, X86_64_FLAGS, dict(self.level_flags))).encode())
        for source in sorted((*self.folder.glob("*.c"), *self.folder.glob("*.h"))):
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
        return digest.hexdigest()[:16]

    def compiled(self) -> dict[str, Path]:
        """Return the libraries that were made from the present sources, by level; warn of others. Opens none."""
        sources = self.sources_hash().encode()
        paths = {level: path for level in self.level_flags if (path := self.path(level)).is_file()}
        sound = {level: path for level, path in paths.items() if sources in path.read_bytes()}
        for level in paths.keys() - sound.keys():
            self._warn_unusable(paths[level], "was not compiled from these sources")
        return sound

    def opened(self, path: Path) -> ctypes.CDLL | None:
        """Open a library; warn and return None if it cannot be opened."""
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            self._warn_unusable(path, "cannot be loaded")
            return None

    @property
    def remedy(self) -> str:
        """What messages say of a library that cannot be used."""
        return f"{self.instead} used until you run `python -m simnmt.base.compile`"

    def _warn_unusable(self, path: Path, why: str) -> None:
        warnings.warn(f"the native library {path.name} {why}: {self.remedy}", NativeLibraryWarning, stacklevel=5)

    def compile_level(self, level: str = PORTABLE) -> Path:
        """Compile the library of one level, whole or not at all. Raises `CompileError`."""
        target = self.path(level)
        with tempfile.TemporaryDirectory(prefix=".compiling-", dir=self.folder) as scratch:
            made = Path(scratch) / target.name
            compiler = find_compiler()
            flags = (*self.flags, *family_flags(platform.machine()), *self.level_flags[level])
            sources = (f'-DSIMNMT_SOURCES="{self.sources_hash()}"', str(self.folder / f"{self.name}.c"))
            command = [*compiler, *flags, *sources, "-o", str(made), "-lm"]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode != 0 or not made.exists():
                errors = [line for line in run.stderr.splitlines() if "error" in line]
                complaint = errors[0] if errors else run.stderr.strip() or "it gives no reason"
                raise CompileError(f"{shlex.quote(compiler[0])} could not compile level {level} of {self.name}: {complaint}")
            made.replace(target)
        return target

    def compile_all(self) -> tuple[list[Path], list[str]]:
        """Compile all levels of this processor family; return their paths, and why others could not be made.

        An old compiler may not support the widest level. Raises `CompileError` if the portable library cannot be made, which
        the others need beside them.
        """
        made, complaints = [self.compile_level()], []
        for level in levels_of(platform.machine()):
            if level == PORTABLE or level not in self.level_flags:
                continue
            try:
                made.append(self.compile_level(level))
            except CompileError as error:
                complaints.append(str(error))
        return made, complaints


KERNEL_LIBRARY = Library(
    "kernels",
    PACKAGE / "kernels" / "native",
    (*SHARED_FLAGS, "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
    LEVEL_FLAGS,
    "fallbacks are",
)
WORLD_LIBRARY = Library(
    "world",
    PACKAGE / "world" / "compiled",
    (*SHARED_FLAGS, "-ffp-contract=off", "-DNDEBUG"),
    {PORTABLE: ()},
    "the reference world is",
)
"""The compiled world gives the same bits on every processor: no fused multiplication and addition, one level."""


def levels_of(machine: str) -> tuple[str, ...]:
    """Return the kernels' levels of a processor family, named as `platform.machine` names it; the widest first."""
    return tuple(LEVEL_FLAGS) if machine.lower() in X86_64 else (PORTABLE,)


def family_flags(machine: str) -> tuple[str, ...]:
    """Return the flags of the processor family, which also override a processor in CC (`gcc -march=native`)."""
    return X86_64_FLAGS if machine.lower() in X86_64 else ()


def find_compiler() -> list[str]:
    """Return the command of the C compiler: the variable CC, else the first of cc, gcc and clang that is installed.

    Raises `CompileError`.
    """
    asked = os.environ.get("CC", "").split()
    for command in [asked] if asked else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]):
            return command
    raise CompileError(f"{' '.join(asked)} (CC) is not installed" if asked else "no C compiler (cc, gcc, clang) is installed")


def compile_libraries() -> tuple[list[Path], list[str]]:
    """Compile every library; return the paths, and complaints about levels that could not be made. Raises `CompileError`."""
    kernels, world = KERNEL_LIBRARY.compile_all(), WORLD_LIBRARY.compile_all()
    return kernels[0] + world[0], kernels[1] + world[1]


def main() -> int:
    """Compile all libraries and print the result; return 1 if one could not be made."""
    try:
        made, complaints = compile_libraries()
    except (CompileError, OSError) as error:
        print(f"simnmt: not all native libraries are compiled; older ones are kept: {error}", file=sys.stderr)
        return 1
    for complaint in complaints:
        print(f"simnmt: {complaint}", file=sys.stderr)
    print("simnmt: native libraries compiled: " + ", ".join(path.name for path in made), file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
