"""What a test session prints when it ends (tests/conftest.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_a_session_ends_with_the_counts_of_tests_skipped_for_each_reason(tmp_path: Path) -> None:
    code = "import pytest\n"
    for number, reason in enumerate(("no such level", "no browser", "no such level")):
        code += f"\n@pytest.mark.skipif(True, reason={reason!r})\ndef test_{number}(): pass\n"
    (tmp_path / "test_skipped.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull]
    run = subprocess.run(
        [*command, "--rootdir", tmp_path, tmp_path], cwd=Path(__file__).parents[1], capture_output=True, text=True
    )
    assert [line for line in run.stdout.splitlines() if "no browser" in line] == ["skipped: 2 no such level; 1 no browser"]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_session_ends_with_the_number_of_deep_tests_that_it_left_out(workers: str, tmp_path: Path) -> None:
    code = (
        "import pytest\n\ndef test_0(): pass\n\n@pytest.mark.deep\n@pytest.mark.parametrize('n', [1, 2])\ndef test_1(n): pass\n"
    )
    (tmp_path / "test_deep.py").write_text(code)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        workers,
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
    ]
    environment = os.environ | {"SIMNMT_CAMPAIGN_SCALE": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    run = subprocess.run(
        [*command, "--rootdir", tmp_path, tmp_path],
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert [line.split(",")[0] for line in run.stdout.splitlines() if "deep" in line and "left out" in line] == [
        "left out: 2 deep tests and cases"
    ], run.stdout + run.stderr
