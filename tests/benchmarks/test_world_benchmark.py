"""The benchmark itself still runs, on worlds too small to time anything: which figures there are, and that they are numbers."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import compiled, world
from benchmarks.batch_server import SIZE, Work
from benchmarks.inputs import cnmt_inputs, end_nodes
from simnmt.batching import half_empty, top_up
from simnmt.results.requests import Trail
from simnmt.world import simulation
from simnmt.world.compiled_world import simulate_compiled

CHECKOUT = Path(__file__).resolve().parents[2]
SIZES = (100, 500, 1_000)
BALANCED = ("servers_16_round_robin_over_1", "servers_16_least_work_over_1", "servers_16_two_choices_over_1")
WIDER = ("nodes_1000_over_1", "deciders_1000_over_1", *BALANCED)
RATIOS = ("vs_idiomatic", "vs_ciw", "scale_1m_over_10k", "overload_100k_over_10k", *WIDER, "servers_16_over_1")
OF_TABLE1 = ("table1_over_idiomatic_process", "table1_wall_s", "idiomatic_process_wall_s", "table1_peak_mib")


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(world, "cpu_s", partial(world.cpu_s, at_least_s=1e-3))
        return world.measure(1, whole_processes=False, sizes=SIZES, largest=40)


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every contestant runs once and takes a second."""
    monkeypatch.setattr(world, "cpu_s", lambda work: (work(), 1.0)[1])


def are_positive_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, float) and math.isfinite(value) and value > 0 for value in values)


def test_every_figure_is_there_and_is_a_number(figures: dict[str, Any]) -> None:
    assert are_positive_numbers([figures[name] for name in (*RATIOS, "bytes_per_request", "us_per_request")])
    assert (figures["sizes"], figures["rounds"]) == (list(SIZES), 1)


def test_the_world_and_ciw_complete_every_request_at_the_same_moment(figures: dict[str, Any]) -> None:
    assert figures["identical_to_ciw"] is True
    assert 0.0 <= figures["largest_difference_to_ciw_s"] <= 1e-9


def test_figures_survive_json(figures: dict[str, Any]) -> None:
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures


def test_every_bar_is_about_a_figure(figures: dict[str, Any]) -> None:
    of_processes = {"peak_gib_100m", "peak_100m_over_50m"}
    assert set(world.BARS) <= {*figures, *OF_TABLE1, *of_processes}


@pytest.mark.usefixtures("untimed")
def test_a_difference_to_ciw_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    late_s, simulate = 1e-6, world.ciw_model.simulate

    def late(inputs: Any) -> Any:
        completion_s, target = simulate(inputs)
        return completion_s + late_s, target

    monkeypatch.setattr(world.ciw_model, "simulate", late)
    monkeypatch.setattr(world, "measure_compiled", lambda *arguments: {})
    figures = world.measure(1, whole_processes=False, sizes=(10, 20, 30), largest=40)
    assert figures["identical_to_ciw"] is False
    assert figures["largest_difference_to_ciw_s"] == pytest.approx(late_s, rel=1e-3)


@pytest.mark.deep
@pytest.mark.usefixtures("untimed")
def test_ratios_are_those_of_times_per_request() -> None:
    figures = world.measure(1, whole_processes=False, sizes=(10, 20, 80), largest=40)
    assert figures["vs_idiomatic"] == figures["vs_ciw"] == 1.0
    assert figures["scale_1m_over_10k"] == 1 / 8
    assert figures["overload_100k_over_10k"] == 1 / 2
    assert figures["us_per_request"] == 50_000


def test_the_worst_balancer_stands_for_sixteen_servers(figures: dict[str, Any]) -> None:
    assert figures["servers_16_over_1"] == max(figures[name] for name in BALANCED)


@pytest.fixture(scope="module")
def wider() -> dict[str, Trail]:
    return {name: run() for name, run in world.wider_worlds(cnmt_inputs(20_000, world.LOAD)).items()}


def test_a_wider_world_is_another_world_of_the_same_requests(wider: dict[str, Trail]) -> None:
    """Each with as many boxes as it says, none of them idle, and about as many requests sent away as in the plain world."""
    plain = world.run_world(cnmt_inputs(20_000, world.LOAD))
    for name, trail in wider.items():
        assert (trail.target != 0).mean() == pytest.approx((plain.target != 0).mean(), abs=0.03), name
    for name in BALANCED:
        sent = np.bincount(wider[name].server[wider[name].target == 1], minlength=16)
        assert sent.size == 16
        assert sent.min() > 0.8 * sent.mean()


def test_in_a_wider_world_the_servers_are_as_busy_but_wait_less(wider: dict[str, Trail]) -> None:
    """Sixteen servers at the load of one share what comes at random, and 1,000 devices seldom have two requests at once."""
    inputs = cnmt_inputs(20_000, world.LOAD)
    plain = world.run_world(inputs)
    cloud_load = inputs.cloud_s[plain.target == 1].sum() / plain.arrival_s[-1]
    for name in BALANCED:
        trail = wider[name]
        assert inputs.cloud_s[trail.target == 1].sum() / trail.arrival_s[-1] / 16 == pytest.approx(cloud_load, rel=0.05)
        assert trail.queue_s[trail.target == 1].mean() < plain.queue_s[plain.target == 1].mean()
    alone = wider["deciders_1000_over_1"]
    assert alone.queue_s[alone.target == 0].mean() < 0.01 * plain.queue_s[plain.target == 0].mean()


def test_requests_of_many_end_nodes_are_decided_in_the_order_in_which_they_come(wider: dict[str, Trail]) -> None:
    inputs, asking = cnmt_inputs(20_000, world.LOAD), end_nodes(20_000, world.NODES)
    arrival_s = wider["nodes_1000_over_1"].arrival_s
    assert (np.diff(arrival_s) >= 0.0).all()
    assert sorted(inputs.arrival_s + asking.access_s) == arrival_s.tolist()
    assert not (np.diff(inputs.arrival_s + asking.access_s) >= 0.0).all()
    assert len(np.unique(asking.node)) == world.NODES


@pytest.mark.deep
@pytest.mark.usefixtures("untimed")
def test_without_ciw_its_figures_are_empty() -> None:
    figures = world.measure(1, whole_processes=False, ciw=False, sizes=(10, 20, 30), largest=40)
    assert figures["vs_ciw"] is figures["identical_to_ciw"] is figures["largest_difference_to_ciw_s"] is None
    assert figures["vs_idiomatic"] > 0


@pytest.mark.deep
def test_asked_for_json_the_command_prints_nothing_else() -> None:
    sizes = [str(size) for size in SIZES]
    command = [sys.executable, "-m", "benchmarks.world", "--json", "--rounds", "1", "--skip-table1", "--sizes", *sizes]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert json.loads(done.stdout)["identical_to_ciw"] is True


def test_people_get_a_table_with_what_is_asked_of_each_figure(
    figures: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}

    def measured(rounds: int, **options: Any) -> dict[str, Any]:
        asked.update(options, rounds=rounds)
        return figures

    monkeypatch.setattr(world, "measure", measured)
    monkeypatch.setattr(sys, "argv", ["benchmarks.world"])
    world.main()
    sizes = (10_000, 100_000, 1_000_000)
    assert asked == {"rounds": 5, "whole_processes": True, "sizes": sizes, "largest": 10_000_000, "huge": True}
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(lines) == list(figures)
    assert lines["vs_ciw"].endswith("asked: >= 20.0")
    assert lines["identical_to_ciw"] == "True   asked: == True"


@pytest.mark.deep
def test_whole_processes_are_timed_too() -> None:
    figures = world.measure_table1(rounds=1, requests=100)
    assert tuple(figures) == OF_TABLE1
    assert are_positive_numbers(list(figures.values()))


@pytest.mark.deep
def test_memory_is_measured_of_real_commands() -> None:
    figures = compiled.measure_memory(2_000)
    assert are_positive_numbers(list(figures.values()))
    assert 0.5 < figures["peak_100m_over_50m"] < 1.5
    assert 0.05 < figures["peak_gib_100m"] < 1.0


def test_both_engines_decode_the_same_batches() -> None:
    work = Work.of(top_up(SIZE, half_empty(SIZE)), 20, 600)
    finish_s = [
        trail.arrival_s + trail.queue_s + trail.execution_s
        for trail in (compiled.batched_world(work, simulate) for simulate in (simulation.simulate, simulate_compiled))
    ]
    np.testing.assert_array_equal(*finish_s)
    np.testing.assert_allclose(finish_s[0], work.jumping().finish_s)
