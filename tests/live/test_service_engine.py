"""A gateway whose own device is a service of its box."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from simnmt.base.errors import InputError
from simnmt.live.gateway import GatewaySettings, LiveGateway
from simnmt.live.server import LiveServer
from simnmt.live.service_engine import ServiceEngine, unit_of_lengths
from simnmt.service.client import Exchange
from tests.calibrate.endpoint_stub import stub_service
from tests.command_line import Outcome, simnmt  # noqa: F401 - a fixture
from tests.live.fake_engines import STEP_S, load_paced
from tests.live.live_services import FRONT, Services, ask, engine_settings, unit_of


@pytest.fixture(scope="module")
def server(services: Services) -> Iterator[LiveServer]:
    """What is on the box, and in the cloud."""
    yield services.server(engine_settings(load_paced))


def gateway_of(services: Services, url: str, *, any_model: bool = True) -> LiveGateway:
    unit = unit_of("@open-loop", "fit.inferences=0")
    settings = GatewaySettings(unit, "edge", {"cloud": url}, FRONT, any_model=any_model)
    return services.gateway(settings, None, ServiceEngine(url, "word"))


def test_sentences_wait_for_the_service_of_the_box_one_after_another(services: Services, server: LiveServer) -> None:
    """The gateway sends one at a time, so that it knows the queue: here of one and of two executions of ten steps."""
    gateway = gateway_of(services, server.front.service.url)
    answers = services.translate(gateway.front.service.url, *[ask("a b c", 9)] * 3)
    assert gateway.health()["local_server"] == server.front.service.url
    services.stop(gateway)
    times = [answer.answer.times for answer in answers if isinstance(answer, Exchange)]
    queues_s = sorted(exchange.queue_s for exchange in times if exchange is not None)
    assert [queue_s >= 10 * STEP_S * number for number, queue_s in enumerate(queues_s)] == [True] * 3
    assert queues_s[0] < 10 * STEP_S
    assert [answer.answer.lengths[:2] for answer in answers if isinstance(answer, Exchange)] == [(4, 10)] * 3


def test_a_text_that_the_service_refuses_is_refused_and_the_next_one_is_translated(
    services: Services, server: LiveServer
) -> None:
    gateway = gateway_of(services, server.front.service.url)
    refused, done = services.translate(gateway.front.service.url, ask("w " * 600), ask("a b"))
    services.stop(gateway)
    assert getattr(refused, "status", None) == 400
    assert isinstance(done, Exchange)


def test_a_service_with_another_engine_or_none_is_refused_before_the_gateway_listens(
    services: Services, server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.front.service.url
    monkeypatch.setattr("simnmt.live.gateway.expected_hash", lambda target: "0123")
    with pytest.raises(InputError, match=rf"^{url} runs engine [0-9a-f]{{16}}, the profile is of engine 0123 .*--any-model"):
        gateway_of(services, url, any_model=False)
    with pytest.raises(InputError, match=r"cannot be reached: .*start the service of this box first"):
        gateway_of(services, "http://127.0.0.1:9")


def test_lengths_are_counted_in_the_unit_of_the_profile() -> None:
    target = unit_of("@open-loop").case.targets[0]
    assert unit_of_lengths(target) == "word"
    with pytest.raises(InputError, match=r"counts in char, and profile tx2-bilstm in word"):
        unit_of_lengths(target, "char")
    unit = target.profile.length_unit.model_copy(update={"src": "sentencepiece 0123456789abcdef"})
    other = replace(target, profile=target.profile.model_copy(update={"length_unit": unit}))
    with pytest.raises(InputError, match=r"whose tokeniser is not known \(give --local-unit sentencepiece:PATH"):
        unit_of_lengths(other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--local-server", "ftp://here"], "ftp://here is no address of a service"),
        (["--local-server", "http://127.0.0.1:9", "--local-unit", "wrod"], "unknown unit 'wrod' (did you mean word?)"),
    ],
)
def test_options_that_do_not_fit_a_local_server_are_refused_in_one_line(
    simnmt: Any,  # noqa: F811
    options: list[str],
    message: str,
) -> None:
    outcome: Outcome = simnmt("live", "gateway", "@open-loop", "--policy", "edge", "--server", "http://127.0.0.1:9", *options)
    assert outcome.status == 2
    assert message in outcome.err


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"health": "", "languages": None}, "the service refused the request (HTTP 404)"),
        ({"health": "[]", "languages": {"status": "ok"}}, "/languages is no list of languages"),
    ],
    ids=["neither", "other JSON"],
)
def test_a_service_of_the_box_that_does_not_speak_the_api_is_refused_with_its_address(
    services: Services, fields: dict[str, Any], message: str
) -> None:
    with stub_service(**fields) as stub, pytest.raises(InputError, match="start the service of this box first") as caught:
        gateway_of(services, stub.url)
    assert stub.url in str(caught.value) and message in str(caught.value)
