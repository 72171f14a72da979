"""C-NMT before a server that streams its model: the gateway believes the state that answers report (XP-04)."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from simnmt.experiment.cases import Unit
from simnmt.live.decider import Decision, LiveDecider
from simnmt.live.engine_process import EngineSettings, ServedModel
from simnmt.live.gateway import GatewaySettings
from simnmt.live.server import LocalEngine
from simnmt.nmt.engine import DecodeRequest, Hypothesis
from simnmt.nmt.whole_batch_decoder import WholeBatchDecoder
from simnmt.service.client import Exchange
from simnmt.streaming.plan.engagement import COLD, FIRST_TURN, Lifecycle
from tests.live.fake_engines import block
from tests.live.live_services import FRONT, Services, ask, engine_settings, unit_of
from tests.profile.made_profile import whole_profile
from tests.profile.made_sti import sti_block

LOCAL_S, WARM_S, COLD_S = 0.11, 0.027, 0.25
"""A warm server is chosen if the way there takes up to 0.08 s, as on a busy box; a cold one takes 0.127 s by its profile."""
GAP_S = 0.2
SRC_LEN = 6


def load_local(settings: EngineSettings) -> ServedModel:
    """A gateway's model that always takes `LOCAL_S`."""

    def decode(requests: Sequence[DecodeRequest]) -> list[Hypothesis]:
        time.sleep(LOCAL_S)
        return [Hypothesis((1,), None, 1) for _ in requests]

    return ServedModel(partial(WholeBatchDecoder, decode), block(settings))


def load_fake_streamed(settings: EngineSettings) -> ServedModel:
    """A streamed model that sleeps as long as its state takes."""
    lifecycle, memory = Lifecycle(2, GAP_S, GAP_S), [COLD, float("-inf")]

    def decode(requests: Sequence[DecodeRequest]) -> list[Hypothesis]:
        (request,) = requests
        state = lifecycle.next_state(int(memory[0]), request.arrived_s - memory[1])
        time.sleep(COLD_S if state == COLD else WARM_S)
        memory[:] = state, time.monotonic()
        return [Hypothesis((1,), None, 1, (state,))]

    return ServedModel(partial(WholeBatchDecoder, decode), block(settings))


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Unit:
    """A gateway of 110 ms, and a cloud that takes 27 ms warm and 0.1 s more cold."""
    folder = tmp_path_factory.mktemp("streamed")
    for name, plane_s in (("local", LOCAL_S), ("streamed", WARM_S)):
        content = whole_profile(name=name)
        content["execution"] |= {"plane": {"s_per_src_token": 0.0, "s_per_tgt_token": 0.0, "s_fixed": plane_s}, "samples": []}
        if name == "streamed":
            content["sti"] = sti_block(3, 4, 32, 64, lengths=(16,), bytes_per_s=4e6, importance=False)
        path = folder / f"{name}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
    streaming = {"deadline_ms": 200, "preload_mb": 0.01, "cache_mb": 1, "src_len": 16, "cold_read_mb": 0.4}
    times = {"engagement_gap_s": GAP_S, "reclaimed_after_s": GAP_S}
    scenario: dict[str, Any] = {
        "version": 1,
        "name": "streamed cloud",
        "requests": 100,
        "workloads": {"w": {"lengths": "@de-en-news"}},
        "networks": {"n": {"rtt": "@cp2"}},
        "devices": {
            "gateway": {"profile": str(folder / "local.json"), "outside_range_share": 0.5},
            "cloud": {"profile": str(folder / "streamed.json"), "outside_range_share": 0.5, "sti": streaming | times},
        },
        "policies": {"warm-only": {"kind": "cnmt"}, "knowing": {"kind": "cnmt", "plan_state": "known"}},
    }
    return unit_of(scenario, "fit.inferences=0")


def test_the_state_that_is_believed_follows_the_reports_and_the_idle_time(unit: Unit) -> None:
    decider = LiveDecider(unit, "knowing", {1: 0.001})
    assert decider.decide(0, SRC_LEN, 0.0).target == 0, "nothing was heard of the server: it is cold"
    assert LiveDecider(unit, "warm-only", {1: 0.001}).decide(0, SRC_LEN, 0.0).target == 1
    offloaded = _sent_to_the_server(decider, 1, 1.0)
    decider.heard(offloaded, 1, 1.2, transfer_s=0.001, wait_s=0.0, report=(FIRST_TURN,))
    within = decider.decide(2, SRC_LEN, 1.3)
    assert within.target == 1, "within the engagement"
    decider.heard(within, 2, 1.35, transfer_s=0.001, wait_s=0.0, report=(FIRST_TURN + 1,))
    assert decider.decide(3, SRC_LEN, 1.4 + GAP_S).target == 0, "its memory was reclaimed"


def _sent_to_the_server(decider: LiveDecider, request: int, now_s: float) -> Decision:
    """A request that the gateway has sent to the server, whatever the policy prefers."""
    decider._decider.plans[1].sent(request, now_s)
    return replace(decider.decide(request, SRC_LEN, now_s), target=1)


@pytest.mark.parametrize("report", [(), (7,), (0, 3)])
def test_reports_of_another_kind_of_server_change_no_belief(unit: Unit, report: tuple[int, ...]) -> None:
    decider = LiveDecider(unit, "knowing", {1: 0.001})
    decider.heard(_sent_to_the_server(decider, 0, 0.0), 0, 0.2, transfer_s=0.001, wait_s=0.0, report=report)
    assert decider.decide(1, SRC_LEN, 10.0).target == 0, "not under way for ever, so it is idle and cold by now"


def test_a_gateway_that_knows_states_loses_less_on_cold_requests(unit: Unit, services: Services) -> None:
    """Each request finds the server cold: a policy that knows only the warm plane sends it there all the same."""
    server = services.server(engine_settings(load_fake_streamed))
    local = LocalEngine(engine_settings(load_local))
    mean_s = {}
    for policy in ("warm-only", "knowing"):
        servers = {"cloud": server.front.service.url}
        settings = GatewaySettings(unit, policy, servers, local.process.settings, front=FRONT, any_model=True)
        gateway = services.gateway(settings, None, local)
        latencies_s = []
        for _ in range(3):
            services.wait(GAP_S + 0.05)
            (exchange,) = services.translate(gateway.front.service.url, ask("a b c d e"))
            assert isinstance(exchange, Exchange)
            latencies_s.append(exchange.answer.times.execution_s)
        mean_s[policy] = sum(latencies_s) / 3
        services.stop(gateway)
    services.stop(server)
    services.run(local.close())
    assert mean_s["warm-only"] >= COLD_S
    assert LOCAL_S <= mean_s["knowing"] < 0.75 * mean_s["warm-only"]
