"""`simnmt profile list` and `simnmt trace list`: what is shipped, what lies in a folder, and what is left out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.base import shipped_files
from simnmt.cli.calibrate import doctor
from tests.command_line import ROOT

Command = Callable[..., Any]


def first_words(out: str) -> list[str]:
    return [line.split()[0] for line in out.split("\n\n")[0].splitlines()[2:]]


def test_shipped_profiles_are_listed_with_kinds_engine_and_units(folder: Path, simnmt: Command) -> None:
    done = simnmt("profile", "list")
    assert (done.status, done.err) == (0, "")
    assert first_words(done.out) == [f"@{name}" for name in shipped_files.names("calibration")]
    lines = {line.split()[0]: line for line in done.out.splitlines() if line}
    assert all(
        text in lines["@cpu1-marian"] for text in ("AMD EPYC", "torch float32", " measured ", " subword ", "2026-", " 42 ")
    )
    assert all(text in lines["@cpu1-gru"] for text in (" yes, refills ", " 97.9 ")) and " yes  " in lines["@cpu2-gru"]
    assert done.out.splitlines()[-1].startswith("ms: one sentence of 20 source and 20 target tokens, by itself; batches: ")
    assert all(text in lines["@tx2-marian"] for text in ("NVIDIA Jetson TX2", " inferred ", " word / mixed ", " 0 "))


def test_profiles_of_a_folder_follow_the_shipped_ones(folder: Path, simnmt: Command) -> None:
    (folder / "calibration").mkdir()
    (folder / "gateway.json").rename(folder / "calibration" / "gateway.json")
    (folder / "calibration" / "broken.json").write_text("{")
    done = simnmt("profile", "list", "--json")
    document = json.loads(done.out)
    assert document["profiles"][-1] == {
        "name": "calibration/gateway.json", "device": "a box", "model": "a model", "engine": None,
        "kinds": {"execution": "synthetic"}, "samples": 0, "execution_s_of_20_tokens": pytest.approx(0.19), "batches": False,
        "knows_refills": False, "src_unit": "word", "tgt_unit": "word", "date": "2026-01-01",
        "warnings": 0,
    }  # fmt: skip
    (fault,) = document["left_out"]
    assert fault.startswith("calibration/broken.json:1:1: no JSON")
    listed = simnmt("profile", "list")
    assert first_words(listed.out)[-1] == "calibration/gateway.json"
    assert listed.err == f"simnmt: note: left out {fault}\n"
    given = simnmt("profile", "list", str(folder))
    assert first_words(given.out)[-2:] == [str(folder / name) for name in ("calibration/gateway.json", "cloud.json")]


def test_traces_are_listed_with_samples_span_mean_and_origin(folder: Path, simnmt: Command) -> None:
    (folder / "traces" / "mine").mkdir(parents=True)
    (folder / "office.csv").rename(folder / "traces" / "mine" / "office.csv")
    (folder / "traces" / "lengths.csv").write_text("src_len,tgt_len,count\n1,1,1\n")
    done = simnmt("trace", "list")
    assert first_words(done.out) == ["@cp1", "@cp2", "traces/mine/office.csv"]
    assert done.err.startswith("simnmt: note: left out traces/lengths.csv:1:1: no column called like a time")
    office = done.out.splitlines()[-1].split()
    assert office[1] == "RTT" and office[-5:] == ["40", "3.333", "min", "81.5", "ms"]
    trace = json.loads(simnmt("trace", "list", "--json").out)["traces"][0]
    assert (trace["name"], trace["kind"], trace["samples"], trace["duration_s"]) == ("@cp1", "synthetic", 60, 14_400.0)
    assert trace["mean"] == pytest.approx(0.080, rel=1e-3) and "RIPE Atlas" in trace["source"]


@pytest.mark.parametrize("verb", ["profile", "trace"])
def test_a_checkout_lists_its_shipped_files_once(verb: str, simnmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = simnmt(verb, "list")
    assert done.err == "" and all(name.startswith("@") for name in first_words(done.out))


@pytest.mark.parametrize(("verb", "default"), [("profile", "calibration"), ("trace", "traces")])
def test_a_folder_that_is_none_is_refused(folder: Path, simnmt: Command, verb: str, default: str) -> None:
    for name in ("nowhere", "small.yaml"):
        done = simnmt(verb, "list", name)
        assert (done.status, done.out) == (2, "")
        assert done.err == f"simnmt: {name}: no such folder (name a folder; left out, it is {default}/)\n"


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "ctranslate2", "pynvml"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
from pathlib import Path
from simnmt.cli.calibrate import doctor
doctor(as_json=False, disk=Path(sys.argv[1]))
"""


@pytest.mark.deep
def test_a_box_without_optional_libraries_gets_a_line_each_and_no_traceback(tmp_path: Path) -> None:
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
