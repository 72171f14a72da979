"""What a test session prints when it ends (tests/conftest.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


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
