"""`simnmt profile` with its list, `trace list` and `doctor`: what a box and a folder have, and what is left out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.base import shipped_files
from simnmt.profile.device_profile import checked_profile, write_profile
from tests.command_line import ROOT, Command, assert_one_line
from tests.profile.made_profile import whole_profile


@pytest.fixture(scope="module")
def contents() -> list[dict[str, Any]]:
    return [whole_profile(), whole_profile(3.0, "fast")]


@pytest.fixture
def profiles(folder: Path, contents: list[dict[str, Any]]) -> Path:
    for name, content in zip(("slow.json", "fast.json"), contents, strict=True):
        write_profile(folder / name, checked_profile(content))
    return folder


def facts_of(out: str) -> dict[str, str]:
    return {line[2:].split("  ")[0]: line[2:].split("  ", 1)[1].strip() for line in out.splitlines() if line.startswith("  ")}


def test_inspect_says_what_a_profile_knows(profiles: Path, simnmt: Command) -> None:
    done = simnmt("profile", "inspect", "slow.json")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[0] == "slow.json: a model on a box, measured, 2 warnings"
    facts = facts_of(done.out)
    assert facts["engine"] == "torch; float32; on cpu; a processor; threads: 1; beam 1; weights: checkpoint; torch 2.1.0"
    assert facts["conditions"] == "load 0.1 to load 0.3; governor performance; drift 0.4 %; disturbed cells: 1"
    assert facts["holds for"] == "source 2 to 80, target 2 to 80"
    assert re.match(
        r"measured; 0\.4\d+ x source \+ 3\.\d+ x target \+ 5\.0\d+ ms; single executions spread", facts["execution"]
    )
    assert "% held out; judged on least times of cells left out in turn" in facts["execution fit"]
    assert "judged on batch sizes 6, 12, measured only to judge" in facts["decode step"]
    assert re.search(r"^  conditions .*\n  warning +1 cell of step stayed disturbed", done.out, re.MULTILINE)
    assert facts["overheads decision"] == "measured; 0.0002 ms"
    assert facts["overheads leave"] == "not measured, counts as 0 s; the engine never refills a batch"
    assert facts["energy"] == "measured; from rapl; 12.5 W idle; 40 W active"
    assert facts["model memory"] == "measured; 300,000,000 bytes resident; loaded in 0.5 s"
    assert facts["not measured"] == "decoder, slots, sti"


def test_json_holds_the_held_out_error_of_every_cost_model(
    profiles: Path, contents: list[dict[str, Any]], simnmt: Command
) -> None:
    done = simnmt("profile", "inspect", "slow.json", "@tx2-gru", "--json")
    measured, inferred = json.loads(done.out)["profiles"]
    slow = contents[0]
    assert measured["file"] == "slow.json"
    assert measured["heldout_error"] == {
        "execution": slow["execution"]["fit"]["heldout_error"],
        "execution_of_means": slow["execution"]["fit"]["heldout_error_of_means"],
        "step": slow["step"]["heldout_error"],
        "encoder": slow["encoder"]["heldout_error"],
        "gap": None,
        "slots": None,
        "sti": None,
    }
    assert all(0.0 <= measured["heldout_error"][name] < 0.02 for name in ("execution", "step", "encoder"))
    assert measured["cost_models"]["execution"]["plane"]["s_per_tgt_token"] == pytest.approx(0.00306, rel=0.01), "seconds"
    assert measured["cost_models"]["step"]["kind"] == "measured"
    assert set(inferred["heldout_error"].values()) == {None}
    assert inferred["cost_models"]["execution"]["kind"] == "inferred"


def test_inspect_warns_and_tells_notes_from_what_was_left_out(
    folder: Path, contents: list[dict[str, Any]], simnmt: Command
) -> None:
    content = json.loads(json.dumps(contents[0]))
    content["execution"]["fit"]["level"] = 1.33
    content["step"] |= {"notes": ["had by differences"], "left_out": ["batch 64: out of memory"]}
    content["encoder"] |= {"heldout_error": 0.17}
    write_profile(folder / "busy.json", checked_profile(content))
    done = simnmt("profile", "inspect", "busy.json")
    facts = facts_of(done.out)
    assert "left out: batch 64: out of memory; had by differences" in facts["decode step"]
    assert re.search(r"^  warning +the mean of the executions lies 33 % above their undisturbed time", done.out, re.MULTILINE)
    assert facts["warning"].startswith("encoder: a held-out error of 17 %, above 10 %")


def test_compare_sets_box_times_and_costs_side_by_side(
    profiles: Path, make_profile: Callable[..., Any], simnmt: Command
) -> None:
    write_profile(profiles / "other.json", make_profile(length_unit={"src": "word", "tgt": "char"}, device={"name": "B"}))
    done = simnmt("profile", "compare", "slow.json", "fast.json", "other.json")
    assert (done.status, done.err) == (0, "")
    assert re.search(r"^device.name +a box +a box +B$", done.out, re.MULTILINE)
    assert re.search(r"^length_unit.tgt +word +word +char$", done.out, re.MULTILINE)
    assert re.search(r"^energy.idle_w +12.5 +12.5 +-$", done.out, re.MULTILINE)
    slow, fast = json.loads(simnmt("profile", "compare", "slow.json", "fast.json", "--json").out)["profiles"]
    for number in ("execution.plane.s_per_tgt_token", "seconds of 50 + 50 tokens", "seconds of a first step, batch 8"):
        assert slow[number] == pytest.approx(3 * fast[number])
    assert "seconds of 100 + 100 tokens" not in slow, "outside the range"


def test_plot_writes_a_page_and_never_over_a_profile(profiles: Path, simnmt: Command) -> None:
    done = simnmt("profile", "inspect", "slow.json", "@tx2-gru", "--page", "page.html")
    assert done.status == 0
    assert done.out.splitlines()[-1] == "page: page.html"
    page = (profiles / "page.html").read_text()
    assert page.count('<section id="profile-') == 2 and page.count("<figure") == 4
    before = (profiles / "slow.json").read_bytes()
    assert simnmt("profile", "inspect", "slow.json", "--page", "slow.json").status == 2
    assert (profiles / "slow.json").read_bytes() == before


@pytest.mark.parametrize("verb", ["inspect", "compare"])
@pytest.mark.parametrize(
    "content", [b'{"schema_version": 9}', b'{"schema_version": 2, "na', b'{"schema_version": 2, "bins": 4}', b"\x89PNG\xff"]
)
def test_a_bad_file_is_one_line(profiles: Path, simnmt: Command, verb: str, content: bytes) -> None:
    (profiles / "bad.json").write_bytes(content)
    done = simnmt("profile", verb, "slow.json", "bad.json")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("simnmt: bad.json:")
    assert_one_line(done.err)


def first_words(out: str) -> list[str]:
    return [line.split()[0] for line in out.split("\n\n")[0].splitlines()[2:]]


def test_shipped_profiles_are_listed_with_kinds_engine_and_units(folder: Path, simnmt: Command) -> None:
    done = simnmt("profile", "list")
    assert (done.status, done.err) == (0, "")
    assert first_words(done.out) == [f"@{name}" for name in shipped_files.names("calibration")]
    lines = {line.split()[0]: line for line in done.out.splitlines() if line}
    assert all(text in lines["@cpu1-marian"] for text in ("AMD EPYC", "torch float32", " measured ", " subword ", "2026-"))
    assert " yes, refills " in lines["@cpu1-gru"] and " yes  " in lines["@cpu2-gru"]
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
def test_a_checkout_lists_its_shipped_files_once_and_a_file_is_no_folder(
    verb: str, simnmt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    done = simnmt(verb, "list")
    assert done.err == "" and all(name.startswith("@") for name in first_words(done.out))
    for name in ("nowhere", "README.md"):
        refused = simnmt(verb, "list", name)
        assert (refused.status, refused.out) == (2, "") and refused.err.startswith(f"simnmt: {name}: ")


def test_json_holds_the_box_and_every_finding(simnmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    document = json.loads(simnmt("doctor", "--json").out)
    assert document["box"]["usable_cpus"] >= 1
    topics = {finding["topic"] for finding in document["findings"]}
    assert {"threads", "torch", "ctranslate2", "energy", "clock", "load"} <= topics
    assert all(set(finding) == {"status", "topic", "what", "remedy"} for finding in document["findings"])


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "ctranslate2", "pynvml"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
from pathlib import Path
from simnmt.cli.calibrate import doctor
doctor(as_json=False)
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
    assert {"torch", "ctranslate2", "gpu"} <= set(topics)
    assert "pip install 'simnmt[models]'" in topics["torch"]
