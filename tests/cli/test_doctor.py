"""`simnmt doctor`: always an answer, whatever is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from simnmt.cli.calibrate import doctor

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "torch", "transformers", "ctranslate2", "pynvml", "scipy", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
from pathlib import Path
from simnmt.cli.calibrate import doctor
doctor(as_json=False, disk=Path(sys.argv[1]))
"""


def test_a_box_without_any_library_gets_a_line_each_and_no_traceback(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path / "nowhere")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    assert all(line.split()[0] in ("can", "cannot", "warning") for line in lines)
    topics = {line.split()[1]: line for line in lines if line.startswith("cannot")}
    assert {"torch", "ctranslate2", "gpu", "disk"} <= set(topics)
    assert "pip install 'simnmt[models]'" in topics["torch"]


def test_json_holds_the_box_and_every_finding(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    doctor(as_json=True, disk=tmp_path)
    told = json.loads(capsys.readouterr().out)
    assert told["box"]["usable_cpus"] >= 1
    assert {"threads", "torch", "ctranslate2", "energy", "clock", "load", "disk"} <= {
        each["topic"] for each in told["findings"]
    }
    assert all(set(each) == {"status", "topic", "what", "remedy"} for each in told["findings"])
