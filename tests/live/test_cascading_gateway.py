"""A live gateway that sends on what it has translated: which texts, what answer and log say, and faults of the server."""

from __future__ import annotations

import dataclasses
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simnmt.base.errors import InputError
from simnmt.experiment import draws
from simnmt.live.decider import LiveDecider
from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings, LiveGateway
from simnmt.live.replay import ReplaySettings, replay_plan
from simnmt.live.validation import validate
from simnmt.nmt.scoring import Output, load_metrics, score_outputs
from simnmt.policies.gains import READ
from simnmt.results.live_log import DecisionRecord, read_live_log
from simnmt.service.client import Exchange
from simnmt.workload.quality import write_scores
from tests.experiment.test_quality import TEXT
from tests.experiment.test_scored_cascades import scenario as scored_scenario
from tests.live.fake_engines import STEP_S, load_paced, load_scored
from tests.live.live_services import FRONT, Services, ask, engine_settings, new_engine, plan_of, replayed_targets, unit_of
from tests.policies.stub_gains import know_gains

CASCADE = {"kind": "cascade", "signal": "src_len", "threshold": 3.5}
"""Of texts of four words of a letter and more, by `numbered_gains`."""
TEXTS = ["a b", "a b c d", "a", "a b c d e f", "a b c"]


@pytest.fixture(autouse=True)
def gains(monkeypatch: pytest.MonkeyPatch) -> None:
    know_gains(monkeypatch)
    monkeypatch.setattr("simnmt.policies.health.PAUSES_S", (30.0,))


@pytest.fixture
def start(services: Services, faulty: EngineProcess, make_scenario: Callable[..., Any]) -> Callable[..., LiveGateway]:
    def gateway(url: str, policy: Any = CASCADE, log: Any = None, engine: Any = None, unit: Any = None) -> LiveGateway:
        unit = unit or unit_of(make_scenario(policies={"cascade": policy}))
        settings = GatewaySettings(unit, "cascade", {"cloud": url}, FRONT, offload_s=1.0, any_model=True)
        return services.gateway(settings, log, engine or faulty)

    return gateway


def accounts(answers: list[Any]) -> list[dict[str, str]]:
    assert all(isinstance(answer, Exchange) for answer in answers), answers
    return [dict(part.split("=") for part in answer.headers["Simnmt-Decision"].split(";")) for answer in answers]


def requests_of(log: io.StringIO, folder: Path, gateway: LiveGateway) -> pd.DataFrame:
    """The requests in a log, whose decisions replay to the same targets."""
    (folder / "log.jsonl").write_text(log.getvalue())
    read, settings = read_live_log(folder / "log.jsonl"), gateway._settings
    assert read.begin is not None
    first_s = dict(enumerate(read.begin.initial_s, 1))
    decisions = [event.target for event in read.decider_events if isinstance(event, DecisionRecord)]
    assert replayed_targets(settings.unit, settings.policy, first_s, read.decider_events) == decisions
    return pd.DataFrame(map(dataclasses.asdict, read.requests))


def test_what_gains_enough_is_translated_here_and_then_there(
    services: Services, faulty: EngineProcess, start: Callable[..., LiveGateway], tmp_path: Path
) -> None:
    log, server_log = io.StringIO(), io.StringIO()
    server = services.server(faulty, log=server_log)
    gateway = start(server.http.url, log=log)
    answers = [services.translate(gateway.http.url, ask(text))[0] for text in TEXTS]
    decisions = accounts(answers)
    assert [account["target"] for account in decisions] == ["0", "1", "0", "1", "0"]
    assert [float(account["deferred_exe_s"]) >= STEP_S for account in decisions if account["target"] == "1"] == [True, True]
    assert not any("deferred_exe_s" in account for account in decisions if account["target"] == "0")
    requests = requests_of(log, tmp_path, gateway)
    assert requests.device.tolist() == ["gateway", "cloud", "gateway", "cloud", "gateway"]
    assert requests.deferred_exe_s.notna().tolist() == [False, True, False, True, False]
    sent_on = requests[requests.device == "cloud"]
    spent_s = sent_on.deferred_queue_s + sent_on.deferred_exe_s + sent_on.queue_s + sent_on.execution_s
    assert (sent_on.egress_s - sent_on.ingress_s > spent_s).all()
    assert server_log.getvalue().count('"event":"request"') == 2
    assert gateway.outcomes == {"done": 5}


def test_a_server_that_fails_costs_no_second_execution_here(
    services: Services, faulty: EngineProcess, start: Callable[..., LiveGateway], tmp_path: Path
) -> None:
    server, log = services.server(faulty), io.StringIO()
    gateway = start(server.http.url, log=log)
    services.stop(server)
    answers = [services.translate(gateway.http.url, ask(text))[0] for text in ("a b c d", "a b c d e")]
    assert [account["target"] for account in accounts(answers)] == ["0", "0"]
    requests = requests_of(log, tmp_path, gateway)
    assert requests.outcome.tolist() == ["fallback", "done"], "the second one is not sent to a server that is left out"
    assert requests.device.tolist() == ["gateway", "gateway"]
    events = [line for line in log.getvalue().splitlines() if '"event":"heard"' in line]
    assert len(events) == 2, "each text was translated once"
    assert any("translating here until it answers" in line for line in services.errors)
    services.errors.clear()


def test_a_text_has_live_the_gain_that_is_fitted_on_scores_of_its_translation(
    services: Services, faulty: EngineProcess, start: Any, make_scenario: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """The scores state the log-probabilities that the gateway's engine computes: they fall with the length of the source."""
    monkeypatch.undo()
    policy = {"kind": "cascade", "signal": "logprob", "budget": 0.4}
    keys = scored_scenario(make_scenario, tmp_path, cascade=policy)
    words = [len(source.split()) for source in TEXT.sources]
    output = Output("small", TEXT.outputs["small"], words, [-0.1 * (count + 1) ** 2 for count in words])
    write_scores(tmp_path / "small.parquet", *score_outputs(TEXT.sources, TEXT.references, [output], load_metrics()))
    unit = unit_of(keys)
    gains, rows = draws.learn(unit).gains, np.argsort(words)[2::60]
    assert gains is not None and np.ptp(gains.gain("logprob", rows)) > 1.0
    server, log = services.server(faulty), io.StringIO()
    with pytest.raises(InputError, match="reads log-probabilities"):
        start(server.http.url, unit=unit)
    engine = new_engine(load_scored, scored=True)
    gateway = start(server.http.url, log=log, engine=engine, unit=unit)
    texts = [" ".join(["w"] * words[row]) for row in rows]
    answers = [services.translate(gateway.http.url, ask(text))[0] for text in texts]
    (tmp_path / "log.jsonl").write_text(log.getvalue())
    events = read_live_log(tmp_path / "log.jsonl").decider_events
    expected = [event.gain for event in events if isinstance(event, DecisionRecord) and event.again]
    assert expected == pytest.approx(gains.gain("logprob", rows).tolist())
    limit = np.quantile(gains.fitted("logprob"), 0.6)
    assert [int(account["target"]) for account in accounts(answers)] == [int(gain > limit) for gain in expected]
    services.stop(gateway)
    services.run(engine.close())


def test_a_threshold_that_no_gain_comes_to_is_refused_at_the_start(
    services: Services, faulty: EngineProcess, start: Callable[..., LiveGateway]
) -> None:
    server = services.server(faulty)
    for policy in (CASCADE, CASCADE | {"kind": "route"}):
        with pytest.raises(InputError, match="threshold 90 is outside the gains that src_len predicts"):
            start(server.http.url, policy | {"threshold": 90.0})


def test_the_account_is_of_the_first_decision(
    services: Services, faulty: EngineProcess, start: Callable[..., LiveGateway], tmp_path: Path, monkeypatch: Any
) -> None:
    """Between both, the gateway hears of another answer."""
    local = LiveGateway._local

    async def hear_another(gateway: LiveGateway, *given: Any) -> Any:
        result = await local(gateway, *given)
        gateway.decider.shook_hands(1, 0.5, time.monotonic() - gateway.begin_s)
        return result

    monkeypatch.setattr(LiveGateway, "_local", hear_another)
    log, server = io.StringIO(), services.server(faulty)
    gateway = start(server.http.url, log=log)
    (account,) = accounts(services.translate(gateway.http.url, ask("a b c d")))
    (tmp_path / "log.jsonl").write_text(log.getvalue())
    events = read_live_log(tmp_path / "log.jsonl").decider_events
    first, second = (event for event in events if isinstance(event, DecisionRecord))
    assert account["target"] == "1" and second.delay_s[1] == 0.5
    assert float(account["estimate_s"]) == pytest.approx(first.delay_s[1], abs=1e-8)
    assert float(account["age_s"]) == pytest.approx(first.at_s, abs=1e-5), "the initial estimate is of the moment 0"


def test_a_translation_stays_the_answer_if_the_engine_has_ended_since(
    services: Services, start: Callable[..., LiveGateway], monkeypatch: Any
) -> None:
    local, server = LiveGateway._local, services.server(engine_settings(load_paced))
    gateway = start(server.http.url)
    with monkeypatch.context() as patch:

        async def end_after(gateway: LiveGateway, *given: Any) -> Any:
            result = await local(gateway, *given)
            patch.setattr(gateway.engine, "alive", False)
            return result

        patch.setattr(LiveGateway, "_local", end_after)
        answers = services.translate(gateway.http.url, ask("a"))
    assert [account["target"] for account in accounts(answers)] == ["0"]


def test_a_true_gain_cannot_be_deployed(make_scenario: Callable[..., Any]) -> None:
    unit = unit_of(make_scenario(policies={"cascade": CASCADE | {"signal": "oracle"}}))
    with pytest.raises(InputError, match="cannot be deployed"):
        LiveDecider(unit, "cascade", {1: 0.05})


def test_a_route_decides_before_any_translation(make_scenario: Callable[..., Any]) -> None:
    unit = unit_of(make_scenario(policies={"route": CASCADE | {"kind": "route"}}))
    decider = LiveDecider(unit, "route", {1: 0.05})
    gains = [decider.gain_of(text) for text in TEXTS]
    assert gains == pytest.approx([2.0, 4.0, 1.0, 6.0, 3.0], abs=0.01) and not decider.decides_again
    assert [decider.decide(number, 9, 0.0, gain=gain).target for number, gain in enumerate(gains)] == [0, 1, 0, 1, 0]


def test_a_price_keeps_translations_here_while_the_server_is_far(make_scenario: Callable[..., Any]) -> None:
    unit = unit_of(make_scenario(policies={"cascade": {"kind": "cascade", "signal": "src_len", "seconds_per_point": 0.1}}))
    decider = LiveDecider(unit, "cascade", {1: 0.05})

    def second(gain: float) -> int:
        first = decider.decide(0, 9, 0.0)
        assert first.target == 0
        decider.heard(first, 0.0, transfer_s=0.0, wait_s=0.0)
        return decider.decide(0, 9, 0.1, gain=gain, again=True).target

    assert (second(0.0), second(9.0)) == (0, 1)
    decider.heard(decider.decide(1, 9, 0.2, gain=9.0, again=True), 0.9, transfer_s=30.0, wait_s=0.0)
    assert second(9.0) == 0


@pytest.mark.deep
def test_a_cascade_defers_live_what_it_defers_in_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A point of gain for each word, in the simulation too, and engines that take the same time for each step."""

    def drawn(*parts: Any) -> draws.Drawn:
        of_unit = draws.draw(*parts)
        words = np.minimum(of_unit.requests.src_len - 1, 9.99)  # the lengths count the end of the sentence
        return dataclasses.replace(of_unit, requests=dataclasses.replace(of_unit.requests, text_row=(100 * words).astype(int)))

    monkeypatch.setattr("simnmt.experiment.units.draw", drawn)
    monkeypatch.setitem(READ, "src_len", ("src_words",))  # the words of a validation have several letters
    policies = {"policies": {"cascade": CASCADE | {"threshold": 6.5}}, "requests": 300, "replications": 2}
    keys = ("workloads.de-en.arrivals.rate_rps=15", "networks={lan: {rtt: {constant_ms: 30}}}")
    plan = plan_of("@live-smoke", *keys, *(f"{key}={json.dumps(value)}" for key, value in policies.items()))
    engines = {device: engine_settings(load_paced) for device in ("gateway", "cloud")}
    for _ in range(3):  # other programs may disturb all runs of a validation
        (row,) = validate(plan, any_model=True, engines=engines).rows
        if not row.void:
            break
    assert not row.void and abs(row.errors["structural"][0]) < 0.05
    assert 0.1 < row.live[3] < 0.9 and abs(row.live[3] - row.predicted[3]) < 0.02


def test_a_replay_counts_the_first_executions(
    services: Services, start: Callable[..., LiveGateway], make_scenario: Callable[..., Any]
) -> None:
    server = services.server(engine_settings(load_paced))
    gateway = start(server.http.url)
    workloads = {"de-en": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 20.0}}}
    plan = plan_of(make_scenario(policies={"cascade": CASCADE}, workloads=workloads, requests=40, replications=1))
    settings = ReplaySettings(gateway.http.url, texts=TEXTS)
    result = replay_in_thread(services, lambda: replay_plan(plan, settings))
    (row,), requests = result.summary_rows, result.requests
    assert row["offloaded_share"] == 0.4 == requests["deferred_exe_s"].notna().mean()
    parts = requests[["t_queue_s", "t_exe_s", "t_tx_s", "deferred_queue_s", "deferred_exe_s"]].fillna(0.0).sum(axis=1)
    assert requests["latency_s"].to_numpy() == pytest.approx(parts.to_numpy())
    assert (requests["t_tx_s"] > 0.0).all()


def replay_in_thread(services: Services, work: Callable[[], Any]) -> Any:
    """Run what has an event loop of its own while the services run."""
    return services.run(services.loop.run_in_executor(None, work), 60.0)  # type: ignore[arg-type]
