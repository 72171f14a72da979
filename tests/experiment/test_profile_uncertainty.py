"""Runs with prediction intervals: `profile_uncertainty` of a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simnmt
from simnmt.base.errors import InputError

SCENARIO: dict[str, Any] = {
    "version": 1,
    "name": "boxes",
    "requests": 150,
    "replications": 2,
    "fit": {"inferences": 500},
    "workloads": {"news": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 3}}},
    "networks": {"cp2": {"rtt": "@cp2"}},
    "devices": {"gateway": {"profile": "@cpu1-gru"}, "cloud": {"profile": "@cpu2-gru"}},
    "policies": {"edge": {}, "cloud": {}, "cnmt": {}},
}
DRAWN = SCENARIO | {"profile_uncertainty": {"profiles": 20}}


def test_prediction_intervals_are_added_and_nothing_else_changes() -> None:
    plain, drawn = simnmt.run(SCENARIO), simnmt.run(SCENARIO, profile_uncertainty=20)
    for before, after in zip(plain.summary_rows + plain.comparisons, drawn.summary_rows + drawn.comparisons, strict=True):
        assert before == {key: value for key, value in after.items() if "predicted" not in key}
        added = set(after) - set(before)
        assert added and all("predicted_" in key for key in added)
    assert (plain.verdicts, plain.recommendations, plain.fits) == (drawn.verdicts, drawn.recommendations, drawn.fits)
    assert len(drawn.notes) == len(plain.notes) + 1
    assert not any("predict" in key for row in plain.summary_rows for key in row)
    edge, cloud, _ = drawn.summary_rows
    for row in (edge, cloud):
        assert row["mean_latency_s_predicted_low"] < row["mean_latency_s"] < row["mean_latency_s_predicted_high"]
        assert row["offloaded_share_predicted_low"] == row["offloaded_share_predicted_high"] == row["offloaded_share"]


@pytest.mark.deep
def test_the_same_seed_gives_the_same_bytes_on_any_number_of_processes(tmp_path: Path) -> None:
    for jobs in (1, 2):
        simnmt.run(DRAWN, jobs=jobs, out=tmp_path / str(jobs))
    for name in ("summary.json", "summary.csv", "report.html"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    assert "predicted [" in (tmp_path / "1" / "report.html").read_text(encoding="utf-8")
    repeated = simnmt.run(tmp_path / "1")
    assert "mean_latency_s_predicted_low" in repeated.summary_rows[0]


def test_devices_without_samples_are_named_and_taken_as_exact() -> None:
    devices = SCENARIO["devices"] | {"gateway": {"profile": "@tx2-gru"}}
    result = simnmt.run(DRAWN | {"devices": devices})
    assert [line for line in result.warnings if "prediction" in line and "gateway" in line]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"profile_uncertainty": {"profiles": 19}}, "profile_uncertainty.profiles: "),
        ({"profile_uncertainty": {"profiles": 2001}}, "profile_uncertainty.profiles: "),
        ({"profile_uncertainty": {"profiles": 20, "confidence": 0.95}}, "profile_uncertainty.profiles: "),
        (
            {"devices": {"gateway": {"profile": "@tx2-gru"}, "cloud": {"profile": "@titan-xp-gru"}}},
            "workload news",
        ),
    ],
)
def test_wrong_input_is_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        simnmt.run(DRAWN | change)
    assert message in str(caught.value) and "\n" not in str(caught.value)
