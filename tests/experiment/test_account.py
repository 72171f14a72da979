"""What a run says its numbers rest on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import simnmt


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


def test_pairs_that_a_filter_dropped_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "odd.tsv").write_text("a b c\td e f\n" * 60 + ("a\t" + "b " * 9 + "\n") * 40)
    lengths = {"tsv": str(tmp_path / "odd.tsv"), "src_unit": "word", "tgt_unit": "word"}
    workload = {"lengths": lengths, "arrivals": {"kind": "poisson", "rate_rps": 1.0}}
    kept = simnmt.run(scenario(workloads={"w": workload}))
    assert any("40.0 %" in warning for warning in kept.warnings)
    assert kept.cells[0].lengths.pairs == 60


def test_notes_and_fits_name_the_box_of_each_profile_and_the_kind_of_its_numbers() -> None:
    result = simnmt.run(scenario())
    assert any("tx2-gru" in note and "(inferred)" in note for note in result.notes)
    boxes = {row["of"]: row["box"] for row in result.fits if "box" in row}
    assert boxes["execution time on the gateway"] == "NVIDIA Jetson TX2"
