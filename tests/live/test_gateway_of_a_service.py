"""A live gateway whose own device is a translation service of its box."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from simnmt.base.errors import InputError
from simnmt.live.gateway import GatewaySettings, LiveGateway
from simnmt.live.server import LiveServer
from simnmt.live.service_engine import ServiceEngine, unit_of_lengths
from simnmt.service.apis import Api
from simnmt.service.client import Exchange
from tests.calibrate.endpoint_stub import stub_service
from tests.live.fake_engines import STEP_S, load_paced
from tests.live.live_services import FRONT, Services, ask, engine_settings, unit_of


@pytest.fixture(scope="module")
def local(services: Services) -> Iterator[LiveServer]:
    """What is on the box of a gateway without a model, and in the cloud."""
    yield services.server(engine_settings(load_paced))


def before_a_service(services: Services, url: str, expected_hash: str | None = None) -> LiveGateway:
    """A gateway whose own device is a service of its box."""
    settings = GatewaySettings(unit_of("@open-loop"), "edge", {"cloud": url}, FRONT, any_model=True)
    profile = settings.unit.case.targets[0].profile
    return services.gateway(settings, None, ServiceEngine(url, Api(), profile, expected_hash=expected_hash))


def test_sentences_wait_for_the_service_of_the_box_one_after_another(services: Services, local: LiveServer) -> None:
    """The gateway sends one at a time, so that it knows the queue: here of one and of two executions of ten steps."""
    gateway = before_a_service(services, local.http.url)
    answers = services.translate(gateway.http.url, *[ask("a b c", 9)] * 3)
    assert gateway.health()["local_server"] == local.http.url
    times = [answer.answer.times for answer in answers if isinstance(answer, Exchange)]
    queues_s = sorted(exchange.queue_s for exchange in times if exchange is not None)
    assert [queue_s >= 10 * STEP_S * number for number, queue_s in enumerate(queues_s)] == [True] * 3
    assert queues_s[0] < 10 * STEP_S
    assert [answer.answer.lengths[:2] for answer in answers if isinstance(answer, Exchange)] == [(4, 10)] * 3
    refused, done = services.translate(gateway.http.url, ask("w " * 600), ask("a b"))
    assert getattr(refused, "status", None) == 400 and isinstance(done, Exchange)


def test_a_service_with_another_engine_or_none_is_refused_before_the_gateway_listens(
    services: Services, local: LiveServer
) -> None:
    url = local.http.url
    with pytest.raises(InputError, match=rf"^{url} runs engine [0-9a-f]{{16}}, the profile is of engine 0123 .*--any-model"):
        before_a_service(services, url, "0123")
    with pytest.raises(InputError, match=r"cannot be reached: .*start the service first"):
        before_a_service(services, "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"health": "", "languages": None}, "the service refused the request"),
        ({"health": "[]", "languages": {"status": "ok"}}, "/languages is no list of languages"),
    ],
    ids=["neither", "other JSON"],
)
def test_a_service_of_the_box_that_does_not_speak_the_api_is_refused_with_its_address(
    services: Services, fields: dict[str, Any], message: str
) -> None:
    with stub_service(**fields) as stub, pytest.raises(InputError, match="start the service first") as caught:
        before_a_service(services, stub.url)
    assert stub.url in str(caught.value) and message in str(caught.value)


def test_lengths_are_counted_in_the_unit_of_the_profile() -> None:
    target = unit_of("@open-loop").case.targets[0]
    assert unit_of_lengths(target) == "word"
    with pytest.raises(InputError, match=r"counts in char, and profile tx2-bilstm in word"):
        unit_of_lengths(target, "char")
    unit = target.profile.length_unit.model_copy(update={"src": "sentencepiece 0123456789abcdef"})
    other = dataclasses.replace(target, profile=target.profile.model_copy(update={"length_unit": unit}))
    with pytest.raises(InputError, match=r"whose tokeniser is not known \(give --local-unit sentencepiece:PATH"):
        unit_of_lengths(other)
