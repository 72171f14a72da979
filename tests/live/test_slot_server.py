"""A live server of a decoder-only model, on real sockets: company, lines, times, and prompts beyond the context."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.errors import InputError
from simnmt.batching.slots import SlotLimits
from simnmt.devices.slots import Slots
from simnmt.live.deployment import engine_settings, served_target
from simnmt.live.engine import EngineSettings, TextCodec, load_model
from simnmt.live.engine_process import EngineProcess
from simnmt.live.model_engines import ModelEngines
from simnmt.live.server import LiveServer
from simnmt.nmt.errors import NmtError
from simnmt.profile.slots_block import SlotsCost
from simnmt.service.client import Exchange
from simnmt.service.messages import ServiceError
from tests.live.live_services import Services, ask, plan_of
from tests.nmt.pretrained_folders import llama_folder, text

SLOTS = SlotLimits(slots=2, chunk=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama_folder(tmp_path_factory.mktemp("llama") / "model")


SETTINGS: dict[str, Any] = {"threads": 1, "batching": SLOTS, "src_lang": "Elvish", "tgt_lang": "English", "nice": 0}


@pytest.fixture(scope="module")
def server(services: Services, folder: Path) -> Iterator[LiveServer]:
    engine = EngineProcess(EngineSettings(str(folder), max_len=12, **SETTINGS))
    services.run(engine.ready(), timeout_s=120.0)
    yield services.server(engine)
    services.run(engine.close())


def answers(services: Services, server: LiveServer, *texts: str, forced: int | None = None) -> list[Exchange]:
    exchanges = services.translate(server.http.url, *(ask(one, forced) for one in texts))
    return [exchange for exchange in exchanges if isinstance(exchange, Exchange)]


def test_translations_do_not_depend_on_company_and_state_their_times(services: Services, server: LiveServer) -> None:
    texts = text("de")[:5]
    alone = [answers(services, server, one)[0].answer for one in texts]
    together = [exchange.answer for exchange in answers(services, server, *texts)]
    assert [answer.texts for answer in together] == [answer.texts for answer in alone]
    assert len({answer.texts for answer in alone}) > 1
    assert [answer.lengths[2] for answer in alone] == [1] * 5
    assert max(answer.lengths[2] for answer in together) == 2, "slots"
    for answer in together:
        times = answer.times
        assert times is not None
        assert times.first_token_s is not None
        assert times.queue_s < times.first_token_s <= times.queue_s + times.execution_s <= times.total_s


def test_a_text_of_several_lines_is_one_prompt_and_is_answered_with_as_many(services: Services, server: LiveServer) -> None:
    lines = text("de")[:3]
    packed, single = answers(services, server, "\n".join(lines), lines[0])
    assert packed.answer.texts[0].count("\n") == 2
    assert "\n" not in single.answer.texts[0]
    assert packed.answer.lengths[0] > single.answer.lengths[0]


def test_a_prompt_beyond_the_context_is_refused_and_nothing_else_is_lost(services: Services, server: LiveServer) -> None:
    long, text_before, forced, text_after = services.translate(
        server.http.url, ask("ba " * 300), ask("ba"), ask("ba", forced=250), ask("be")
    )
    for refused, what in ((long, "more than the 255 tokens"), (forced, "256 together")):
        assert isinstance(refused, ServiceError)
        assert refused.status == 400
        assert what in refused.message
        assert "\n" not in refused.message
    assert isinstance(text_before, Exchange)
    assert isinstance(text_after, Exchange)
    assert answers(services, server, "ba", forced=3)[0].answer.lengths[1] == 3
    assert server.health()["waiting"] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam": 2}, "greedily"),
        ({"fused": True}, "fused"),
        ({"prompt": "Translate!"}, "once"),
        ({"src_lang": None}, "--src-lang"),
    ],
)
def test_what_slots_do_not_do_is_refused(folder: Path, settings: dict[str, object], message: str) -> None:
    given = EngineSettings(str(folder), **SETTINGS | settings)
    with pytest.raises(NmtError, match=message):
        TextCodec(given, (model := load_model(given)).engine), model.new_decoder(given.batching)


def test_slots_are_for_one_model_and_one_class(folder: Path) -> None:
    settings = EngineSettings(str(folder), batching=SLOTS)
    with pytest.raises(InputError, match="one model"):
        ModelEngines({"de-en": settings})
    with pytest.raises(InputError, match="classes"):
        settings.with_classes((1.0, 2.0))


def test_a_device_with_slots_is_served_with_its_limits(folder: Path, tmp_path: Path) -> None:
    cost = SlotsCost((0.01,) * 5, 1e-4, 1e-6)
    target = replace(served_target(plan_of("@live-smoke"), "cloud"), slots=Slots(SlotLimits(4, 64), cost))
    settings = engine_settings(target, tmp_path, any_model=True, model=str(folder))
    assert settings.batching == SlotLimits(4, 64)
