"""Compile the native kernels, once per level: when the package is installed, or by `python -m simnmt.kernels.compile`.

Imports nothing of simnmt: the build hook runs this file before the package is installed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NATIVE = Path(__file__).resolve().parent / "native"
COMMON_FLAGS = (
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)
AVX2_FLAGS = ("-mavx2", "-mfma", "-mf16c")
LEVEL_FLAGS: dict[str, tuple[str, ...]] = {
    "avx512": ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mprefer-vector-width=512", *AVX2_FLAGS, "-DLANES=16"),
    "avx2": (*AVX2_FLAGS, "-DLANES=8"),
    "portable": ("-DLANES=4",),
}
"""Flags that each level adds to `family_flags`, the widest level first. `portable` runs on every processor of the family."""
X86_64, X86_64_FLAGS = ("x86_64", "amd64"), ("-march=x86-64", "-mtune=generic")


class CompileError(Exception):
    """A library could not be made; the message gives the reason in one line."""


def levels_of(machine: str) -> tuple[str, ...]:
    """Return the levels of a processor family, named as `platform.machine` names it; the widest first."""
    return tuple(LEVEL_FLAGS) if machine.lower() in X86_64 else ("portable",)


def family_flags(machine: str) -> tuple[str, ...]:
    """Return the flags of the processor family, which also override a processor in CC (`gcc -march=native`)."""
    return X86_64_FLAGS if machine.lower() in X86_64 else ()


def library_path(level: str, native: Path = NATIVE) -> Path:
    """Return the path of a level's library, beside its sources."""
    return native / f"libkernels-{level}.so"


def sources_hash(native: Path = NATIVE) -> str:
    """Hash the present sources and flags; a library contains the hash of those that it was made from."""
    digest = hashlib.sha256(repr((COMMON_FLAGS, X86_64_FLAGS, LEVEL_FLAGS)).encode())
    for source in sorted((*native.glob("*.c"), *native.glob("*.h"))):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def find_compiler() -> list[str]:
    """Return the command of the C compiler: the variable CC, else the first of cc, gcc and clang that is installed.

    Raises `CompileError`.
    """
    asked = os.environ.get("CC", "").split()
    for command in [asked] if asked else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]):
            return command
    raise CompileError(f"{' '.join(asked)} (CC) is not installed" if asked else "no C compiler (cc, gcc, clang) is installed")


def compile_level(level: str, native: Path = NATIVE) -> Path:
    """Compile the library of one level, whole or not at all. Raises `CompileError`."""
    target = library_path(level, native)
    with tempfile.TemporaryDirectory(prefix=".compiling-", dir=native) as scratch:
        made = Path(scratch) / target.name
        compiler = find_compiler()
        flags = (*COMMON_FLAGS, *family_flags(platform.machine()), *LEVEL_FLAGS[level])
        sources = (f'-DSIMNMT_SOURCES="{sources_hash(native)}"', str(native / "kernels.c"))
        run = subprocess.run([*compiler, *flags, *sources, "-o", str(made), "-lm"], capture_output=True, text=True, check=False)
        if run.returncode != 0 or not made.exists():
            errors = [line for line in run.stderr.splitlines() if "error" in line]
            complaint = errors[0] if errors else run.stderr.strip() or "it gives no reason"
            raise CompileError(f"{shlex.quote(compiler[0])} could not compile level {level}: {complaint}")
        made.replace(target)
    return target


def compile_all(native: Path = NATIVE, machine: str | None = None) -> tuple[list[Path], list[str]]:
    """Compile the libraries of all levels of this processor family; return their paths, and why others could not be made.

    An old compiler may not support the widest level. Raises `CompileError` if the portable library cannot be made, which the
    others need beside them.
    """
    made, complaints = [compile_level("portable", native)], []
    for level in levels_of(machine or platform.machine()):
        if level == "portable":
            continue
        try:
            made.append(compile_level(level, native))
        except CompileError as error:
            complaints.append(str(error))
    return made, complaints


def main() -> int:
    """Compile all levels and print the result; return 1 if no library could be made."""
    try:
        made, complaints = compile_all()
    except (CompileError, OSError) as error:
        print(f"simnmt: the native kernels are not compiled: {error}", file=sys.stderr)
        return 1
    for complaint in complaints:
        print(f"simnmt: {complaint}", file=sys.stderr)
    print("simnmt: native kernels compiled: " + ", ".join(path.name for path in made), file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
