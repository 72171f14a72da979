"""The library as a notebook uses it: scenarios as objects, finished runs, comparisons, and a bar while a run goes on."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import simnmt
from tests.campaigns.harness import deep

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
    pd.testing.assert_frame_equal(simnmt.run(scenario).rows, simnmt.run(given).rows)
    changed = scenario.changed("seed=8")
    assert changed.document()["seed"] == 8 and scenario.document()["seed"] == 7
    rerun, reseeded = simnmt.run(changed).rows, simnmt.run(scenario, seed=8).rows
    assert rerun.equals(reseeded) and not rerun.equals(simnmt.run(scenario).rows)
    with pytest.raises(simnmt.InputError, match=r"^sed=1: sed: .*did you mean seed"):
        scenario.changed("sed=1")


def test_a_loaded_run_holds_what_the_run_returned(make_scenario: MakeScenario, tmp_path: Path) -> None:
    result = simnmt.run(make_scenario(requests=200), out=tmp_path / "run")
    loaded = simnmt.load(tmp_path / "run")
    assert type(loaded) is type(result)
    in_memory = ("cells", "manifest", "warnings", "scope", "precision")
    held = [field.name for field in fields(result) if field.name not in in_memory]
    assert {name: getattr(loaded, name) for name in held} == {name: getattr(result, name) for name in held}
    assert loaded.seed == 7 and loaded.directory == tmp_path / "run"
    pd.testing.assert_frame_equal(loaded.rows, result.rows)
    pd.testing.assert_frame_equal(loaded.requests, result.requests)
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
    pd.testing.assert_frame_equal(simnmt.compare(tmp_path / "a", tmp_path / "b").rows, compared.rows)
    assert [row["key"] for row in compared.scenario_differences] == ["networks.cp1.rtt_mean_ms"]
    by_policy = {row["policy"]: row for row in compared.changes}
    assert by_policy["edge"]["effect"] == "same" and by_policy["edge"]["change_percent"] == 0.0
    cloud = by_policy["cloud"]
    assert cloud["paired"] and cloud["effect"] == "slower" and cloud["low_percent"] > 0.0
    ratio = cloud["mean_latency_s"] / cloud["baseline_latency_s"]
    assert cloud["change_percent"] == pytest.approx(100.0 * (ratio - 1.0))
    assert "comparison of a, b" in repr(compared) and "<table" in compared._repr_html_()
    assert list(compared.rows["policy"]) == list(by_policy)
    for too_few in ((), (first,)):
        with pytest.raises(simnmt.InputError):
            simnmt.compare(*too_few)


def test_a_variant_of_cnmt_is_compared_with_its_twin(make_scenario: Callable[..., dict[str, Any]]) -> None:
    quantile = {"kind": "cnmt", "transfer_estimate": {"kind": "quantile", "quantile": 0.5}}
    other = {"kind": "cnmt", "lengths": "distribution"}
    policies = {"cnmt": {}, "q": quantile, "qb": quantile | {"sees_backlog": True}, "other": other}
    workloads = {"w": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 2.0}}}
    differences = simnmt.run(make_scenario(requests=50, policies=policies, workloads=workloads)).differences
    pairs = set(zip(differences["policy"], differences["baseline"], strict=True))
    assert ("qb", "q") in pairs and {baseline for _, baseline in pairs} == {"cnmt", "q"}


def test_runs_of_other_requests_are_compared_unpaired_with_wider_intervals(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(requests=500, replications=5)
    other = simnmt.run(scenario, seed=11)
    first = simnmt.run(scenario)
    unpaired = {row["policy"]: row for row in simnmt.compare(first, other).changes}
    assert not any(row["paired"] for row in unpaired.values())
    assert all(row["effect"] == "not distinguishable" for row in unpaired.values())
    assert {row["key"] for row in simnmt.compare(first, other).scenario_differences} == {"seed"}


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
    assert list(dict.fromkeys(bar for bar in shown if bar in ends)) == ends


@pytest.mark.parametrize("name", [name for name in simnmt.__all__ if name != "__version__"])
def test_every_public_name_has_an_example_that_prints_what_it_says(name: str) -> None:
    public = getattr(simnmt, name)
    names = {**vars(sys.modules[public.__module__]), "simnmt": simnmt, "np": np}
    (example,) = doctest.DocTestFinder(recurse=False).find(public, name, globs=names)
    assert example.examples, f"{name} has no example"
    complaints: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=complaints.append)
    assert complaints == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"requests": 0},
        {"replications": "two"},
        {"profile_uncertainty": 1},
        {"overrides": ["sed=1"]},
        {"overrides": ["seed"]},
        {"overrides": "seed=1"},
        {"out": "-"},
        {"out": "full"},
        {"out": "full", "force": True},
        {"jobs": 1.5},
    ],
)
def test_a_message_names_no_option_of_the_command_line(
    arguments: dict[str, Any], make_scenario: MakeScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(simnmt.InputError) as caught:
        simnmt.run(make_scenario(), **arguments)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize(("given", "described"), [(5, "5"), (None, "nothing"), (["a.yaml"], "a list")])
def test_what_is_no_scenario_is_refused(given: Any, described: str) -> None:
    for use in (simnmt.run, simnmt.Scenario):
        with pytest.raises(simnmt.InputError, match=f"^expected a scenario, got {described} "):
            use(given)


HEAVY = {"numpy", "pandas", "simpy", "plotly", "scipy", "pyarrow", "pydantic", "torch"}


@pytest.mark.parametrize(("module", "unwanted"), [("simnmt", HEAVY), deep("simnmt.nmt.models", {"transformers"})])
def test_a_module_loads_no_heavy_library(module: str, unwanted: set[str]) -> None:
    """transformers takes 3 s, and engines of recurrent models do without it."""
    code = f"import sys, {module}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert not set(run.stdout.split()) & unwanted
