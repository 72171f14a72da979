"""Run Python scripts against a native library that is compiled with the compiler's sanitizers."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from simnmt.base.compile import CompileError, Library, find_compiler

SANITIZE = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
ROOT = Path(__file__).parents[1]


@functools.cache
def takes(options: tuple[str, ...]) -> bool:
    """Return whether a compiler is installed that accepts these options and links what they need."""
    with tempfile.TemporaryDirectory() as scratch:
        empty = Path(scratch) / "empty.c"
        empty.write_text("int main(void) { return 0; }\n")
        try:
            command = [*find_compiler(), *options, str(empty), "-o", str(empty.with_suffix(""))]
        except CompileError:
            return False
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run_sanitized(
    library: Library, script: str, sanitize: tuple[str, ...], runtime: str, build: str
) -> subprocess.CompletedProcess[str]:
    """Compile a build of a library with a sanitizer and assertions, and run a script in its folder.

    FLAGS in the script becomes the flags of the library; the sanitizer's runtime is loaded before Python.
    """
    flags = (*(flag for flag in library.flags if flag != "-DNDEBUG"), *sanitize, "-O0")
    replace(library, flags=flags).compile(build)
    preloaded = subprocess.run([*find_compiler(), f"-print-file-name={runtime}"], capture_output=True, text=True, check=True)
    environment = os.environ | {
        "LD_PRELOAD": preloaded.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "SIMNMT_KERNELS": build,
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", script.replace("FLAGS", repr(flags))]
    return subprocess.run(command, cwd=library.folder, env=environment, capture_output=True, text=True, check=False)
