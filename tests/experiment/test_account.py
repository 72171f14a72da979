"""What a run says its numbers rest on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import simnmt
from simnmt.results import RunResult


def scenario(**keys: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "accounted",
        "requests": 200,
        "replications": 1,
        "workloads": {"fr-en": {"lengths": "@fr-en-news"}},
        "networks": {"n": {"rtt": {"constant_ms": 50}}},
        "devices": {"gateway": {"profile": "@tx2-gru"}, "cloud": {"profile": "@titan-xp-gru"}},
        "policies": {"edge": {}, "cnmt": {}},
    } | keys


def said(result: RunResult) -> str:
    return "\n".join(result.notes)


def test_arrivals_are_told_with_their_kind_and_rate() -> None:
    arrivals = {"kind": "on_off", "on_rate_rps": 20.0, "mean_on_s": 1.0, "mean_off_s": 3.0}
    notes = said(simnmt.run(scenario(workloads={"w": {"lengths": "@fr-en-news", "arrivals": arrivals}})))
    assert "w: assumed" in notes
    assert "5 requests/s" in notes


def test_a_recorded_trace_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "asked.csv").write_text("t_s\n" + "".join(f"{t}\n" for t in range(0, 300, 2)), encoding="utf-8")
    arrivals = {"kind": "recorded", "file": str(tmp_path / "asked.csv")}
    assert "asked.csv" in said(simnmt.run(scenario(workloads={"w": {"lengths": "@fr-en-news", "arrivals": arrivals}})))


def test_lengths_that_were_drawn_are_no_reference_translations() -> None:
    drawn = {"lognormal": {"mix": "opensubtitles"}, "fertility": {"src": 1.0, "tgt": 1.0}}
    notes = said(simnmt.run(scenario(workloads={"w": {"lengths": drawn}})))
    assert "both lengths are drawn" in notes
    assert "reference translation" not in notes
    assert "the target length is the reference translation's" in said(simnmt.run(scenario()))


def test_a_bandwidth_that_changes_is_told_beside_the_round_trip(tmp_path: Path) -> None:
    (tmp_path / "up.csv").write_text("# kind: measured\ntime_s,mbps\n0,4\n1,\n2,6\n3,8\n", encoding="utf-8")
    notes = said(simnmt.run(scenario(networks={"n": {"rtt": {"constant_ms": 50}, "uplink_mbps": str(tmp_path / "up.csv")}})))
    assert "uplink: measured series" in notes
    assert "Mbit/s, lost samples: 1" in notes
    assert "downlink" not in notes


def test_dropped_pairs_are_stated_warned_of_and_replayed_where_that_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "odd.tsv").write_text("a b c\td e f\n" * 60 + ("a\t" + "b " * 9 + "\n") * 40)
    lengths = {"tsv": str(tmp_path / "odd.tsv"), "src_unit": "word", "tgt_unit": "word"}
    workload = {"lengths": lengths, "arrivals": {"kind": "poisson", "rate_rps": 1.0}}
    kept = simnmt.run(scenario(workloads={"w": workload}))
    assert any("the filter cnmt dropped 40.0 % of 100 pairs: 40 by ratio" in warning for warning in kept.warnings)
    assert "drawn from 36" not in said(kept)
    assert kept.cells[0].lengths.pairs == 60
    lengths["filter_replay"] = False
    replayed = simnmt.run(scenario(workloads={"w": workload}, requests=2_000))
    assert "w: 60 length pairs of odd.tsv" in said(replayed) and "6 of them are set apart for fitting" in said(replayed)
    assert "also drawn from 36 of the 40 dropped pairs" in said(replayed)
    assert replayed.cells[0].lengths.pairs == 100
    drawn = replayed.cells[0].logs["edge"]["tgt_len"]
    assert 0.3 < (drawn == 9).mean() < 0.5
    assert replayed.fits[0]["samples"] == kept.fits[0]["samples"] == 6


def test_each_device_is_told_with_the_box_its_profile_is_of() -> None:
    """A profile of another box than the reader's own runs as well, so the result says whose figures these are."""
    result = simnmt.run(scenario())
    assert "fr-en, gateway: profile tx2-gru of NVIDIA Jetson TX2 (inferred)" in said(result)
    boxes = {row["of"]: row["box"] for row in result.fits if "box" in row}
    assert boxes["execution time on the gateway"] == "NVIDIA Jetson TX2"
