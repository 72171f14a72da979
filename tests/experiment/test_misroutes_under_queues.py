"""Under queues a decision is judged by what an oracle foresees at that moment, queues included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.experiment import units as unit_module
from tests.units import plan_of, unit_of

MakeScenario = Callable[..., dict[str, Any]]


def crowded(make_scenario: MakeScenario, **keys: Any) -> dict[str, Any]:
    """Poisson arrivals at 1.4 times what the gateway can take; the cloud takes all of them."""
    workloads = {"de-en": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 20.0}}}
    return make_scenario(workloads=workloads, replications=1, **keys)


def test_under_queues_the_oracle_misroutes_nothing_and_the_overloaded_gateway_nearly_everything(
    make_scenario: MakeScenario,
) -> None:
    """By what each device takes alone, edge would have misrouted a half and the oracle as much as it avoids queues."""
    rows = {row["policy"]: row for row in simnmt.run(crowded(make_scenario)).summary_rows}
    assert rows["edge"]["gateway_load"] > 1.3
    assert rows["oracle"]["misrouted_share"] == rows["oracle"]["mean_decision_regret_s"] == 0.0
    assert rows["edge"]["misrouted_share"] > 0.95
    assert rows["edge"]["mean_decision_regret_s"] > 1.0
    assert 0.0 < rows["cnmt"]["misrouted_share"] < rows["edge"]["misrouted_share"]


def test_a_sample_of_the_decisions_has_the_share_of_all(make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = crowded(make_scenario, requests=8_000)
    sampled = simnmt.run(scenario)
    monkeypatch.setattr(unit_module, "JUDGED", 8_000)
    full = simnmt.run(scenario)
    for some, whole in zip(sampled.summary_rows, full.summary_rows, strict=True):
        assert some["misrouted_share"] == pytest.approx(whole["misrouted_share"], abs=0.04)
        assert some["total_latency_s"] == whole["total_latency_s"]
    misroutes, of_all = (result.cells[0].misroutes["cnmt"] for result in (sampled, full))
    assert misroutes.sampled and not of_all.sampled


def test_a_regret_under_queues_is_the_wait_that_another_device_would_have_saved(make_scenario: MakeScenario) -> None:
    """Of edge: its own wait and execution, less what the idle cloud would have taken."""
    scenario = crowded(make_scenario, policies={"edge": {}}, requests=500)
    scenario["devices"]["cloud"]["count"] = 50
    result = unit_module.run_unit(unit_of(plan_of(scenario)))
    truth, passage = result.truth, result.trails["edge"]
    assert truth is not None and passage.decision_regret_s is not None
    here_s = passage.queue_s[:] + truth.total_s(0, truth.all)
    there_s = truth.total_s(1, truth.all)
    np.testing.assert_allclose(passage.decision_regret_s[:], np.maximum(here_s - there_s, 0.0), atol=1e-9)


def test_where_foresight_is_too_dear_the_column_is_left_out_with_its_reason(tmp_path: Any, make_scenario: MakeScenario) -> None:
    scenario = crowded(make_scenario, requests=200, policies={"cloud": {}, "edge": {}})
    scenario["devices"]["cloud"] = {"profile": "@cpu1-gru", "batching": {"kind": "mini", "size": 4}}
    scenario["devices"]["gateway"] = {"profile": "@cpu1-gru"}
    result = simnmt.run(scenario, out=tmp_path / "run")
    assert {row["misrouted_share"] for row in result.summary_rows} == {None}
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "misrouted</th>" not in page
    assert page.count("Misroutes are not shown.") == 1
    assert "foresee_misroutes" not in page, "nothing streams, so that the key would not help"
