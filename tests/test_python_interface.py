"""The library as a notebook uses it: scenarios as objects, finished runs, comparisons, and a bar while a run goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import simnmt

MakeScenario = Callable[..., dict[str, Any]]


def test_every_public_name_is_there_and_listed() -> None:
    for name in simnmt.__all__:
        assert getattr(simnmt, name) is not None
    assert dir(simnmt) == simnmt.__all__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = simnmt.nothing


def test_a_scenario_object_runs_as_its_mapping_and_changes_into_another(make_scenario: MakeScenario) -> None:
    given = make_scenario(requests=200)
    scenario = simnmt.Scenario(given)
    assert scenario.name == "small" and scenario.document()["requests"] == 200
    assert simnmt.run(scenario).rows == simnmt.run(given).rows
    changed = scenario.changed("seed=8")
    assert changed.document()["seed"] == 8 and scenario.document()["seed"] == 7
    assert simnmt.run(changed).rows == simnmt.run(scenario, seed=8).rows != simnmt.run(scenario).rows
    with pytest.raises(simnmt.InputError, match=r"--set sed=1.*did you mean seed"):
        scenario.changed("sed=1")


def test_a_loaded_run_holds_what_the_run_returned(make_scenario: MakeScenario, tmp_path: Path) -> None:
    result = simnmt.run(make_scenario(requests=200), out=tmp_path / "run")
    loaded = simnmt.load(tmp_path / "run")
    assert (loaded.rows, loaded.verdicts, loaded.totals_s) == (result.rows, result.verdicts, result.totals_s)
    assert loaded.scenario == result.scenario and loaded.seed == 7
    pd.testing.assert_frame_equal(loaded.summary, result.summary)
    pd.testing.assert_frame_equal(loaded.requests[result.requests.columns], result.requests, check_categorical=False)
    assert loaded.best() == result.best()
    assert result.best()["policy"] == result.recommendations[0]["policy"]
    assert "<table" in loaded._repr_html_() and result.verdicts[0]["sentence"] in repr(loaded)
    with pytest.raises(simnmt.InputError, match="no policy is recommended for fr-en"):
        loaded.best("fr-en")
    with pytest.raises(simnmt.InputError, match="no complete run directory"):
        simnmt.load(tmp_path)


def test_a_comparison_pairs_runs_of_the_same_requests_and_names_what_differs(
    make_scenario: MakeScenario, tmp_path: Path
) -> None:
    scenario = make_scenario(requests=500, replications=5)
    slow = {**scenario, "networks": {"cp1": {"rtt": "@cp1", "rtt_mean_ms": 400}}}
    first, second = simnmt.run(scenario, out=tmp_path / "a"), simnmt.run(slow, out=tmp_path / "b")
    compared = simnmt.compare(first, second)
    assert simnmt.compare(tmp_path / "a", tmp_path / "b").rows == compared.rows
    assert [row["key"] for row in compared.scenario_differences] == ["networks.cp1.rtt_mean_ms"]
    by_policy = {row["policy"]: row for row in compared.rows}
    assert by_policy["edge"]["verdict"] == "same" and by_policy["edge"]["change_percent"] == 0.0
    cloud = by_policy["cloud"]
    assert cloud["paired"] and cloud["verdict"] == "slower" and cloud["low_percent"] > 0.0
    ratio = cloud["mean_latency_s"] / cloud["baseline_latency_s"]
    assert cloud["change_percent"] == pytest.approx(100.0 * (ratio - 1.0))
    assert "comparison of a, b" in repr(compared) and "<table" in compared._repr_html_()
    assert list(compared.frame["policy"]) == list(by_policy)


def test_runs_of_other_requests_are_compared_unpaired_with_wider_intervals(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(requests=500, replications=5)
    other = simnmt.run(scenario, seed=11)
    first = simnmt.run(scenario)
    unpaired = {row["policy"]: row for row in simnmt.compare(first, other).rows}
    assert not any(row["paired"] for row in unpaired.values())
    assert all(row["verdict"] == "not distinguishable" for row in unpaired.values())
    assert {row["key"] for row in simnmt.compare(first, other).scenario_differences} == {"seed"}


def test_one_run_has_nothing_to_be_compared_with(make_scenario: MakeScenario) -> None:
    with pytest.raises(simnmt.InputError, match="nothing to be compared with"):
        simnmt.compare(simnmt.run(make_scenario(requests=50)))
    with pytest.raises(simnmt.InputError, match="no run"):
        simnmt.compare()


def test_a_notebook_sees_a_bar_of_units(make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    shell = type("ZMQInteractiveShell", (), {})()
    display = ModuleType("IPython.display")
    display.HTML = str  # type: ignore[attr-defined]
    display.display = lambda bar, display_id: SimpleNamespace(update=shown.append)  # type: ignore[attr-defined]
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    simnmt.run(make_scenario(requests=50))
    ends = [f'<progress value="{done}.000" max="2"></progress> {done} of 2 units' for done in (1, 2)]
    assert [bar for bar in shown if ".000" in bar] == ends
    assert any('value="0.5' in bar and "0 of 2 units" in bar for bar in shown), "parts of a unit are shown too"
