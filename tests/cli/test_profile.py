"""`simnmt profile inspect` and `compare` as a user meets them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.profile.profile_file import checked_profile, write_profile
from tests.profile.made_profile import whole_profile


@pytest.fixture(scope="module")
def contents() -> list[dict[str, Any]]:
    return [whole_profile(), whole_profile(3.0, "fast")]


@pytest.fixture
def profiles(folder: Path, contents: list[dict[str, Any]]) -> Path:
    for name, content in zip(("slow.json", "fast.json"), contents, strict=True):
        write_profile(folder / name, checked_profile(content))
    return folder


def told(out: str) -> dict[str, str]:
    return {line[2:].split("  ")[0]: line[2:].split("  ", 1)[1].strip() for line in out.splitlines() if line.startswith("  ")}


def test_inspect_says_what_a_profile_knows(profiles: Path, simnmt: Callable[..., Any]) -> None:
    done = simnmt("profile", "inspect", "slow.json")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[0] == "slow.json: a model on a box, measured, 2 warnings"
    said = told(done.out)
    assert said["engine"] == "torch; float32; on cpu; a processor; threads: 1; beam 1; weights: random; torch 2.1.0"
    assert said["conditions"] == "load 0.1 to load 0.3; governor performance; drift 0.4 %; disturbed cells: 1"
    assert said["holds for"] == "source 2 to 80, target 2 to 80"
    assert re.match(r"measured; 0\.4\d+ x source \+ 3\.\d+ x target \+ 5\.0\d+ ms; single executions spread", said["execution"])
    assert "% held out; judged on least times of cells left out in turn" in said["execution fit"]
    assert "judged on batch sizes 6, 12, measured only to judge" in said["decode step"]
    assert re.search(
        r"^  conditions .*\n  warning +1 cell of execution, step, encoder stayed disturbed", done.out, re.MULTILINE
    )
    assert said["overheads decision"] == "measured; 0.0002 ms"
    assert said["overheads leave"] == "not measured, counts as 0 s; the engine never refills a batch"
    assert said["disk"].startswith("measured; 1 ms; + bytes / 500 MB/s; R2 1.0000") and said["disk"].endswith("; cold")
    assert said["energy"] == "measured; from rapl; 12.5 W idle; 40 W active"
    assert said["not measured"] == "decoder, sti"


def test_json_holds_the_held_out_error_of_every_cost_model(
    profiles: Path, contents: list[dict[str, Any]], simnmt: Callable[..., Any]
) -> None:
    done = simnmt("profile", "inspect", "slow.json", "@tx2-gru", "--json")
    measured, inferred = json.loads(done.out)["profiles"]
    own = contents[0]
    assert measured["file"] == "slow.json"
    assert measured["heldout_error"] == {
        "execution": own["execution"]["fit"]["heldout_error"],
        "execution_of_means": own["execution"]["fit"]["heldout_error_of_means"],
        "step": own["step"]["heldout_error"],
        "encoder": own["encoder"]["heldout_error"],
        "disk": own["disk"]["heldout_error"],
        "gap": None,
        "energy": None,
        "sti": None,
    }
    assert all(0.0 <= measured["heldout_error"][name] < 0.02 for name in ("execution", "step", "encoder", "disk"))
    assert measured["cost_models"]["execution"]["plane"]["s_per_tgt_token"] == pytest.approx(0.00306, rel=0.01), "seconds"
    assert measured["cost_models"]["step"]["kind"] == "measured"
    assert set(inferred["heldout_error"].values()) == {None}
    assert inferred["cost_models"]["execution"]["kind"] == "inferred"


def test_inspect_warns_and_tells_notes_from_what_was_left_out(
    folder: Path, contents: list[dict[str, Any]], simnmt: Callable[..., Any]
) -> None:
    content = json.loads(json.dumps(contents[0]))
    content["execution"]["fit"]["level"] = 1.33
    content["step"] |= {"notes": ["had by differences"], "left_out": ["batch 64: out of memory"]}
    content["disk"] |= {"heldout_error": 0.17}
    write_profile(folder / "busy.json", checked_profile(content))
    done = simnmt("profile", "inspect", "busy.json")
    said = told(done.out)
    assert "left out: batch 64: out of memory; had by differences" in said["decode step"]
    assert re.search(r"^  warning +the mean of the executions lies 33 % above their undisturbed time", done.out, re.MULTILINE)
    assert said["warning"].startswith("disk: a held-out error of 17 %, above 10 %")


def test_a_shipped_profile_is_inspected_by_its_name(folder: Path, simnmt: Callable[..., Any]) -> None:
    done = simnmt("profile", "inspect", "@titan-xp-marian")
    assert done.status == 0
    said = told(done.out)
    assert said["execution"].startswith("inferred; 0.04117 x source + 0.4122 x target + 11.51 ms")
    assert said["not measured"] == "step, encoder, decoder, overheads, disk, energy, sti"


def test_compare_sets_box_times_and_costs_side_by_side(
    profiles: Path, make_profile: Callable[..., Any], simnmt: Callable[..., Any]
) -> None:
    write_profile(profiles / "other.json", make_profile(length_unit={"src": "word", "tgt": "char"}, device={"name": "B"}))
    done = simnmt("profile", "compare", "slow.json", "fast.json", "other.json")
    assert (done.status, done.err) == (0, "")
    assert re.search(r"^device.name +a box +a box +B$", done.out, re.MULTILINE)
    assert re.search(r"^length_unit.tgt +word +word +char$", done.out, re.MULTILINE)
    assert re.search(r"^disk.bytes_per_s +5e\+08 +5e\+08 +-$", done.out, re.MULTILINE)
    slow, fast = json.loads(simnmt("profile", "compare", "slow.json", "fast.json", "--json").out)["profiles"]
    for number in ("execution.plane.s_per_tgt_token", "seconds of 50 + 50 tokens", "seconds of a first step, batch 8"):
        assert slow[number] == pytest.approx(3 * fast[number])
    assert "seconds of 100 + 100 tokens" not in slow, "outside the range"


def test_plot_writes_a_page_and_never_over_a_profile(profiles: Path, simnmt: Callable[..., Any]) -> None:
    done = simnmt("profile", "inspect", "slow.json", "@tx2-gru", "--page", "page.html")
    assert done.status == 0
    assert done.out.splitlines()[-1] == "page: page.html"
    page = (profiles / "page.html").read_text()
    assert page.count('<section id="profile-') == 2 and page.count("<figure") == 4
    before = (profiles / "slow.json").read_bytes()
    done = simnmt("profile", "inspect", "slow.json", "--page", "slow.json")
    assert (done.status, done.err) == (2, "simnmt: slow.json would replace what is read (write to another file)\n")
    assert (profiles / "slow.json").read_bytes() == before


BAD = {
    "version": (b'{"schema_version": 9}', "schema_version: 9 where this simnmt reads 2 (calibrate again with this version)"),
    "truncated": (b'{"schema_version": 2, "na', "no JSON: "),
    "another": (b'{"schema_version": 2, "bins": 4}', "name: Field required"),
    "csv": (b"time_s,rtt_ms\n0,1\n", "no JSON: "),
    "picture": (b"\x89PNG\r\n\x1a\n\xff", "no UTF-8 text at byte 0"),
}


@pytest.mark.parametrize("verb", ["inspect", "compare"])
@pytest.mark.parametrize(("content", "says"), BAD.values(), ids=BAD)
def test_a_bad_file_is_one_line(profiles: Path, simnmt: Callable[..., Any], verb: str, content: bytes, says: str) -> None:
    (profiles / "bad.json").write_bytes(content)
    done = simnmt("profile", verb, "slow.json", "bad.json")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("simnmt: bad.json:")
    assert says in done.err
    assert done.err.count("\n") == 1
