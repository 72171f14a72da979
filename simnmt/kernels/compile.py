"""Compiles the native kernels, once per level: when the package is installed, or by `python -m simnmt.kernels.compile`.

Imports nothing of simnmt: the build hook runs this file before the package is there.
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
"""What each level adds to `family_flags`, the widest first. `portable` is what the processor's family has in common."""
X86_64, X86_64_FLAGS = ("x86_64", "amd64"), ("-march=x86-64", "-mtune=generic")


class CompileError(Exception):
    """No library was made: says why in one line."""


def levels_of(machine: str) -> tuple[str, ...]:
    """Levels that a processor's family can have, by the name that `platform.machine` gives it; the widest first."""
    return tuple(LEVEL_FLAGS) if machine.lower() in X86_64 else ("portable",)


def family_flags(machine: str) -> tuple[str, ...]:
    """What each level starts from: the family's own, also where CC names a processor (`gcc -march=native`)."""
    return X86_64_FLAGS if machine.lower() in X86_64 else ()


def library_path(level: str, native: Path = NATIVE) -> Path:
    """Where the library of a level lies beside its sources."""
    return native / f"libkernels-{level}.so"


def sources_hash(native: Path = NATIVE) -> str:
    """What the sources and the flags are now, to be held against what a library was made from."""
    digest = hashlib.sha256(repr((COMMON_FLAGS, X86_64_FLAGS, LEVEL_FLAGS)).encode())
    for source in sorted((*native.glob("*.c"), *native.glob("*.h"))):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def find_compiler() -> list[str]:
    """The C compiler's command: what the variable CC says, else cc, gcc or clang, whichever is there first.

    Raises `CompileError`.
    """
    asked = os.environ.get("CC", "").split()
    for command in [asked] if asked else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]):
            return command
    raise CompileError(f"{' '.join(asked)} (CC) is not there" if asked else "no C compiler (cc, gcc, clang) is there")


def compile_level(level: str, native: Path = NATIVE) -> Path:
    """Make one level's library, whole or not at all. Raises `CompileError`."""
    target = library_path(level, native)
    with tempfile.TemporaryDirectory(prefix=".compiling-", dir=native) as scratch:
        made = Path(scratch) / target.name
        command = [
            *find_compiler(),
            *COMMON_FLAGS,
            *family_flags(platform.machine()),
            *LEVEL_FLAGS[level],
            f'-DSIMNMT_SOURCES="{sources_hash(native)}"',
            str(native / "kernels.c"),
            "-o",
            str(made),
            "-lm",
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0 or not made.exists():
            complaint = next(
                (line for line in run.stderr.splitlines() if "error" in line), run.stderr.strip() or "no word of why"
            )
            raise CompileError(f"{shlex.join(command[:1])} could not compile level {level}: {complaint}")
        made.replace(target)
    return target


def compile_all(native: Path = NATIVE, machine: str | None = None) -> tuple[list[Path], list[str]]:
    """Make every level's library that this processor's family can have: those made, and why others could not be.

    An old compiler may not know the widest level. Raises `CompileError` where not even the portable one could be made, which
    the others need beside them.
    """
    made = [compile_level("portable", native)]
    complaints = []
    for level in levels_of(machine or platform.machine()):
        if level == "portable":
            continue
        try:
            made.append(compile_level(level, native))
        except CompileError as error:
            complaints.append(str(error))
    return made, complaints


def main() -> int:
    """Compile and say what was made; 1 where nothing could be."""
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
