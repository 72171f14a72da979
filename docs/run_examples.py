"""Run the documentation's examples: `python docs/run_examples.py FILE.md ...`.

A fenced block `python` is executed; in a block `console`, each line that begins with `$ ` is run by a shell and what
follows must be what it prints, where `...` stands for any text, also over several lines. A block marked `console not-run` is
for reading alone. The blocks of a file share one empty folder, and its Python blocks one namespace.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

BLOCK = re.compile(r"^```(console|python)( not-run)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(text: str) -> Iterator[tuple[int, str, str, str]]:
    """(line, language, what is run, what it should print) of each example in a document."""
    for block in BLOCK.finditer(text):
        language, skipped, body = block.groups()
        line = text.count("\n", 0, block.start()) + 2
        if skipped:
            continue
        if language == "python":
            yield line, language, body, ""
            continue
        for command in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE):
            yield line + body.count("\n", 0, command.start()), language, command.group(1), command.group(2)


def run(path: Path) -> tuple[int, int]:
    """Run one document's examples; returns how many passed and failed."""
    passed = failed = 0
    namespace: dict[str, object] = {"__name__": "example"}
    here = Path.cwd()
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        for line, language, source, expected in examples(path.read_text(encoding="utf-8")):
            fault = None
            if language == "python":
                os.chdir(folder)
                try:
                    exec(compile(source, f"{path}:{line}", "exec"), namespace)
                except Exception:
                    fault = traceback.format_exc()
                finally:
                    os.chdir(here)
            else:
                done = subprocess.run(
                    source, shell=True, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
                same = not expected.strip() or doctest.OutputChecker().check_output(expected, done.stdout, doctest.ELLIPSIS)
                if done.returncode != 0 or not same:
                    fault = f"exit status {done.returncode}, printed:\n{done.stdout}\nexpected:\n{expected}"
            if fault is None:
                passed += 1
            else:
                failed += 1
                print(f"{path}:{line}: {source.strip().splitlines()[0]}\n{fault}", file=sys.stderr)
    return passed, failed


def main() -> None:
    """Run the documents named on the command line; exit status 1 if an example fails or there is none."""
    totals = [run(Path(name)) for name in sys.argv[1:]]
    passed, failed = (sum(column) for column in zip(*totals, strict=True))
    print(f"documentation: {passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
