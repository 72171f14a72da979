"""The benchmark of streamed gateways does what it says, on few requests."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from benchmarks import sti_world
from benchmarks.sti_world import BARS, ENGAGEMENT_GAP_S, GATEWAYS, Deployment, device


def test_engagements_have_one_to_three_turns_at_one_gateway_each() -> None:
    deployment = Deployment.of(device(), 6_000)
    requests = deployment.requests
    assert requests.arrival_s is not None and requests.node is not None
    assert (np.diff(requests.arrival_s) >= 0.0).all() and len(requests) == 6_000
    sizes: list[int] = []
    for gateway in range(GATEWAYS):
        gap_s = np.diff(requests.arrival_s[requests.node == gateway])
        sizes += np.diff(np.r_[-1, np.flatnonzero(gap_s > ENGAGEMENT_GAP_S), len(gap_s)]).tolist()
    # Two engagements follow each other within the gap once in twenty times.
    assert np.mean(sizes) == pytest.approx(2.0, rel=0.1)
    assert np.mean(np.array(sizes) <= 3) > 0.9


def test_all_worlds_meet_the_same_requests_and_who_knows_states_keeps_fewer_cold_ones() -> None:
    deployment = Deployment.of(device(), 4_000)
    plain, ignored, known = deployment.run(streams=False), deployment.run(), deployment.run("known")
    assert plain.state is None
    np.testing.assert_array_equal(plain.arrival_s, known.arrival_s)
    assert ignored.state is not None and known.state is not None
    assert (known.state == 0).sum() < (ignored.state == 0).sum()
    assert set(deployment.run_cloud(True).target) == set(deployment.run_cloud(False).target) == {1}


def test_it_prints_every_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sti_world, "cpu_s", lambda work: len(work().target))
    monkeypatch.setattr(sys, "argv", ["benchmarks.sti_world", "--json", "--requests", "500", "--rounds", "1"])
    sti_world.main()
    figures = json.loads(capsys.readouterr().out)
    assert set(BARS) <= set(figures)
    assert figures["cold_mean_ms_known"] <= figures["cold_mean_ms_ignored"]
    assert sum(figures["requests_by_state"]) == pytest.approx(500 * figures["kept_share"])
