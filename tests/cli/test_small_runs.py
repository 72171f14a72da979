"""The least that a scenario can hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.experiment import run as run_module
from simnmt.experiment import units
from simnmt.world import compiled_world, structures


@pytest.fixture
def run(folder: Path, simnmt: Callable[..., Any]) -> Callable[..., Any]:
    def check(*arguments: str) -> Any:
        done = simnmt("run", "small.yaml", "--json", *arguments)
        assert (done.status, done.err) == (0, "")
        return json.loads(done.out)

    return check


@pytest.mark.parametrize(
    "policies", ["{oracle: {}}", "{edge: {}}", "{cloud: {}}", "{cnmt: {}}", "{naive: {}}", "{cnmt: {}, oracle: {}}"]
)
def test_few_policies(run: Callable[..., Any], policies: str) -> None:
    said = run("--set", f"policies={policies}", "--replications", "1")
    assert len(said["rows"]) == policies.count("{}")
    assert said["verdicts"][0]["sentence"].startswith("news on office: ")


@pytest.mark.parametrize("replications", ["1", "2"])
def test_one_request(run: Callable[..., Any], replications: str) -> None:
    said = run("--requests", "1", "--replications", replications)
    assert len(said["rows"]) == 5
    for row in said["rows"]:
        assert row["requests"] == 1
        assert row["total_latency_s"] == pytest.approx(row["mean_latency_s"])


def test_two_pairs_are_a_corpus_and_one_is_none(run: Callable[..., Any], folder: Path, simnmt: Callable[..., Any]) -> None:
    for name in ("news.de", "news.en"):
        Path(name).write_text("a b c\na b c\n")
    said = run("--requests", "5")
    assert [row["offloaded_share"] for row in said["rows"][:2]] == [0.0, 1.0]
    for name in ("news.de", "news.en"):
        Path(name).write_text("a b c\n")
    done = simnmt("run", "small.yaml")
    assert done.status == 2
    assert done.err.startswith("simnmt: small.yaml:8:14: workloads.news.lengths: ")
    assert "one pair cannot be split" in done.err


def test_a_series_of_one_sample(run: Callable[..., Any]) -> None:
    Path("office.csv").write_text("time_s,rtt_ms\n0,80\n")
    edge, cloud = run()["rows"][:2]
    assert cloud["mean_transfer_s"] > 0.08
    assert edge["mean_transfer_s"] == 0.0


def test_the_table_says_how_the_numbers_are_known(folder: Path, simnmt: Callable[..., Any]) -> None:
    out = simnmt("run", "small.yaml", "--set", "devices.cloud.profile=@titan-xp-bilstm", "--replications", "1").out
    assert out.splitlines()[1].startswith("device profiles: gateway synthetic, cloud inferred; round trips: ")


def test_a_doubtful_profile_is_warned_of_on_the_console_in_the_summary_and_on_the_page(
    folder: Path, simnmt: Callable[..., Any]
) -> None:
    """The busy box has no known effect on the numbers, so that only the error of the plane is printed."""
    profile = json.loads(Path("gateway.json").read_text())
    execution = profile["execution"] | {"kind": "measured", "fit": {"heldout_error": 0.2}}
    profile |= {"schema_version": 1, "execution": execution, "conditions": {"busy": True, "others_cpus": 1.5}}
    Path("gateway.json").write_text(json.dumps(profile))
    done = simnmt("run", "small.yaml", "--out", "made", "--replications", "1")
    doubt = "times of single requests of other lengths err by 20 % on average"
    assert done.err == f"simnmt: warning: profile {profile['name']} (gateway): {doubt}\n"
    assert "device profiles: gateway measured but doubtful, cloud synthetic" in done.out
    summary = json.loads(Path("made/summary.json").read_text())
    assert f"profile {profile['name']} (gateway): {doubt}." in summary["notes"]
    page = Path("made/report.html").read_text()
    assert "gateway: a box, a model" in page and f"<li>{doubt}</li>" in page and "(measured, doubtful)" in page


def test_a_doubtful_profile_of_two_devices_and_workloads_is_listed_once(folder: Path, simnmt: Callable[..., Any]) -> None:
    profile = json.loads(Path("gateway.json").read_text())
    profile |= {"schema_version": 1, "execution": profile["execution"] | {"kind": "measured", "fit": {"heldout_error": 0.2}}}
    Path("gateway.json").write_text(json.dumps(profile))
    again = "workloads.again={lengths: {source: news.de, target: news.en, src_unit: word, tgt_unit: word}}"
    shared = ("--set", "devices.cloud.profile=gateway.json", "--set", again)
    done = simnmt("run", "small.yaml", "--out", "made", "--replications", "1", *shared)
    for lines in (done.err.splitlines(), json.loads(Path("made/summary.json").read_text())["notes"]):
        (doubt,) = (line for line in lines if "err by 20 %" in line)
        assert f"profile {profile['name']} (gateway, cloud): " in doubt


def test_replications_are_added_until_the_intervals_are_narrow(folder: Path, simnmt: Callable[..., Any]) -> None:
    """The run that it ends with is the run that asks for so many replications at once, to the byte."""
    options = ("run", "small.yaml", "--json", "--requests", "400")
    done = simnmt(*options, "--until-precision", "8%", "--out", "until")
    rows = json.loads(done.out)["rows"]
    count = rows[0]["replications"]
    assert 5 <= count < 100
    assert all(row["mean_latency_s_high"] / row["mean_latency_s"] < 1.08 for row in rows)
    assert done.err.startswith(f"{count} replications suffice ")
    simnmt(*options, "--replications", str(count), "--out", "at-once")
    for name in ("summary.json", "scenario.resolved.yaml", "requests.parquet", "report.html"):
        assert (folder / "until" / name).read_bytes() == (folder / "at-once" / name).read_bytes()


@pytest.mark.parametrize("given", ["2", "0%", "100%", "two%", "nan%", "-1%"])
def test_a_precision_is_a_percentage(simnmt: Callable[..., Any], folder: Path, given: str) -> None:
    done = simnmt("run", "small.yaml", "--until-precision", given)
    assert done.status == 2
    assert f"'--until-precision': {given!r} is not a percentage between 0 and 100; write 2% for two percent" in done.err


def test_without_a_compiled_world_one_note_says_so(
    folder: Path, simnmt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (structures, compiled_world, run_module, units):
        monkeypatch.setattr(module, "library", lambda: None)
    done = simnmt("run", "small.yaml", "--requests", "5", "--jobs", "1")
    assert done.status == 0
    assert len(done.err.splitlines()) == 1 and "the reference ran" in done.err
    refused = simnmt("run", "small.yaml", "--engine", "compiled")
    assert refused.status == 2
    assert len(refused.err.splitlines()) == 1


def test_workloads_with_rates_are_named_separate_runs_once_on_the_console_and_on_the_page(
    folder: Path, simnmt: Callable[..., Any]
) -> None:
    lengths = "lengths: {source: news.de, target: news.en, src_unit: word, tgt_unit: word}"
    rates = [f"workloads.{name}={{{lengths}, arrivals: {{kind: poisson, rate_rps: 1}}}}" for name in ("news", "again")]
    for count in (1, 2):
        overrides = [part for rate in rates[:count] for part in ("--set", rate)]
        done = simnmt("run", "small.yaml", "--out", f"made{count}", "--requests", "50", "--replications", "1", *overrides)
        page = Path(f"made{count}/report.html").read_text()
        assert [text.count("are separate runs") for text in (done.out, page)] == [count - 1] * 2


def test_the_intervals_of_a_recording_are_said_to_leave_out_other_traffic(folder: Path, simnmt: Callable[..., Any]) -> None:
    Path("asked.csv").write_text("time_s\n0.0\n0.9\n2.2\n4.1\n")
    recorded = ("--set", "workloads.news.arrivals={kind: recorded, file: asked.csv}")
    for replications in (1, 2):
        out = f"made{replications}"
        done = simnmt("run", "small.yaml", "--out", out, "--requests", "50", "--replications", str(replications), *recorded)
        notes = json.loads(Path(f"{out}/summary.json").read_text())["notes"]
        stated = [note for note in notes if "not the traffic of another time" in note]
        assert len(stated) == replications - 1
        assert all(note in done.out for note in stated)
