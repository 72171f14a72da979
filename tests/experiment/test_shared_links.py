"""Shared links in whole scenarios: what the others cost is transfer time, and the run says which engine it needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.experiment.units import run_unit
from tests.units import plan_of, unit_of


def scenario(**network: Any) -> dict[str, Any]:
    """Forty gateways whose requests load the uplink by about 60 %."""
    return {
        "version": 1,
        "name": "line",
        "requests": 1_500,
        "replications": 2,
        "fit": {"inferences": 500},
        "workloads": {"w": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 60.0}, "end_nodes": 40}},
        "networks": {"n": {"rtt": {"constant_ms": 20}, "uplink_mbps": 0.032, "downlink_mbps": 0.1, **network}},
        "devices": {
            "gateway": {"profile": "@tx2-bilstm", "count": 40},
            "cloud": {"profile": "@titan-xp-bilstm", "count": 10},
        },
        "policies": {"cloud": {}, "cnmt": {}},
    }


@pytest.fixture(scope="module")
def lines() -> dict[bool, Any]:
    """The same scenario on a shared link and on links of their own."""
    return {shared: simnmt.run(scenario(shared=shared)) for shared in (False, True)}


def test_what_other_messages_cost_is_transfer_time(lines: dict[bool, Any]) -> None:
    apart, together = (lines[shared].requests.query("policy == 'cloud'") for shared in (False, True))
    longer_s = together["t_tx_s"].to_numpy() - apart["t_tx_s"].to_numpy()
    assert (longer_s > -1e-9).all()
    assert longer_s.mean() > 0.005
    parts_s = together["t_queue_s"] + together["t_exe_s"] + together["t_tx_s"]
    np.testing.assert_allclose(together["latency_s"], parts_s, rtol=1e-12)


def test_a_policy_that_measures_transfers_sends_less_over_a_line_that_others_fill(lines: dict[bool, Any]) -> None:
    shares = [lines[shared].rows.set_index("policy").loc["cnmt", "offloaded_share"] for shared in (False, True)]
    assert shares[1] < shares[0] - 0.05


def test_the_run_says_that_a_link_is_shared(lines: dict[bool, Any]) -> None:
    together = lines[True]
    assert any(note.startswith("n: the messages of all end nodes share") for note in together.notes)
    assert not any("share the bandwidth" in note for note in lines[False].notes)


def test_a_shared_link_changes_no_bit_for_requests_back_to_back() -> None:
    back_to_back = scenario()
    back_to_back["workloads"]["w"] = {"lengths": "@de-en-news"}
    apart = run_unit(unit_of(plan_of(back_to_back)))
    back_to_back["networks"]["n"]["shared"] = True
    together = run_unit(unit_of(plan_of(back_to_back)))
    assert together.numbers == apart.numbers
    assert together.engines == apart.engines
