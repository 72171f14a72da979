"""Services of others in place of a device: what they are asked, what a gateway learns of them, and a validation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.base.errors import InputError
from simnmt.batching.slots import SlotLimits
from simnmt.devices.device import Clock, Execution
from simnmt.devices.slots import SlotBox, SlotRequest, Slots
from simnmt.live.validation import Validation, validate
from simnmt.live.validation_runs import REFERENCES
from simnmt.profile.device_profile import read_profile
from simnmt.profile.slots_block import SlotsCost
from simnmt.service.apis import Api
from simnmt.service.client import Exchange
from simnmt.service.load import run_precisely
from tests.calibrate.endpoint_stub import StubService, stub_service
from tests.command_line import Outcome, simnmt  # noqa: F401 - a fixture
from tests.live.fake_engines import load_paced
from tests.live.live_services import ask, engine_settings, plan_of, together

GRU = {"profile": "@cpu1-gru", "outside_range_share": 1.0}
SLOTS = {
    "kind": "synthetic",
    "slots": 1,
    "chunk": 64,
    "step_s": [1e-3, 1e-3],
    "s_per_prompt_token": 0,
    "s_per_context_token": 0,
}
COPYING: dict[str, Any] = {"translate": str, "seconds": lambda src_len, tgt_len: 1e-3 * tgt_len}
"""A service that copies, a millisecond for each word."""


def scenario_of(*devices: str, **keys: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "services",
        "requests": 12,
        "replications": 2,
        "workloads": {"de-en": {"lengths": "@de-en-tatoeba", "arrivals": {"kind": "poisson", "rate_rps": 30}}},
        "networks": {"lan": {"rtt": {"constant_ms": 0.1}}},
        "devices": dict.fromkeys(devices, GRU),
        "policies": {"edge": {}},
    } | keys


def profile_of(path: Path, **blocks: Any) -> Path:
    """Write a profile of an unknown engine with further blocks."""
    document = read_profile("calibration/cpu1-gru.json").model_dump(mode="json")
    path.write_text(json.dumps(document | {"engine": None} | blocks), encoding="utf-8")
    return path


@pytest.fixture
def chat_profile(tmp_path: Path) -> Path:
    """A profile with slots, of which each word of an answer is two tokens and its end one."""
    return profile_of(tmp_path / "chat.json", slots=SLOTS | {"output": {"fixed": 1, "per_token": 2}})


def validated(service: StubService, scenario: dict[str, Any], device: str, api: str, **others: Any) -> Validation:
    return validate(plan_of(scenario), services={device: (service.url, Api.of(api))}, any_model=True, **others)


def test_a_validation_asks_a_single_service_directly() -> None:
    lines = {" ".join(["wort"] * length): 0 for length in (2, 5, 9)}
    with stub_service(**COPYING) as service:
        messages: list[str] = []
        (row,) = validated(service, scenario_of("cloud"), "cloud", "libretranslate", lines=lines, progress=messages.append).rows
    assert any("words on average" in line for line in messages), "the service copies, whatever length is wanted"
    assert {text for text in service.asked if not text.startswith("first")} == {*lines}
    assert row.live[0] > 2e-3 and row.live[3] == 0.0
    assert np.isnan(row.errors["structural"][:3]).all(), "the service states no executions"
    assert np.isfinite(row.errors["predicted"][:3]).all() and np.isnan(row.live[5:]).all(), "nothing is streamed"


def test_forced_lengths_of_a_chat_are_tokens_of_its_model(chat_profile: Path) -> None:
    scenario = scenario_of("cloud", devices={"cloud": {"profile": str(chat_profile), "outside_range_share": 1.0}})
    with stub_service(**COPYING) as service:
        (row,) = validated(service, scenario, "cloud", "openai").rows
    assert 0.0 < row.live[5] < row.live[0], "the first token comes before the last one"
    counted = [content["max_tokens"] for content in service.options]
    assert all(content["ignore_eos"] and content["model"] == "stub" for content in service.options)
    assert all(tokens % 2 for tokens in counted) and len({*counted}) > 2


def test_a_gateway_offloads_to_a_chat(chat_profile: Path) -> None:
    devices = {"gateway": GRU, "cloud": GRU | {"profile": str(chat_profile)}}
    scenario = scenario_of(devices=devices, policies={"edge": {}, "cloud": {}})
    engines = {"gateway": engine_settings(load_paced)}
    with stub_service(**COPYING) as service:
        edge, cloud = validated(service, scenario, "cloud", "openai", engines=engines).rows
    assert (edge.live[3], cloud.live[3]) == (0.0, 1.0) and np.isnan(cloud.live[5]), "a gateway answers with whole texts"
    streamed = sum("stream" in content for content in service.options)
    assert streamed == 4 * 2 * REFERENCES, "of four runs, the reference requests"


@pytest.mark.parametrize("is_behind", [False, True], ids=["alone", "behind a gateway"])
def test_a_service_is_asked_for_the_languages_it_was_measured_with_and_its_executions_are_not_known(
    tmp_path: Path, is_behind: bool
) -> None:
    measured = {"kind": "measured", "api": "libretranslate", "url": "http://x", "sentences": 4, "requests": 4, "mean_s": 0.1}
    french = profile_of(tmp_path / "service.json", endpoint=measured | {"source": "fr", "target": "en"})
    devices = ({"gateway": GRU} if is_behind else {}) | {"cloud": GRU | {"profile": str(french)}}
    scenario = scenario_of(devices=devices, policies={"cloud": {}} if is_behind else {"edge": {}}, replications=1)
    scenario["workloads"] = {"news-small": scenario["workloads"]["de-en"]}
    with stub_service(languages=[{"code": "fr", "targets": ["en"]}], **COPYING) as service:
        (row,) = validated(service, scenario, "cloud", "libretranslate", engines={"gateway": engine_settings(load_paced)}).rows
    assert {(content["source"], content["target"]) for content in service.options} == {("fr", "en")}
    assert row.live[3] == is_behind and np.isnan(row.errors["structural"][:3]).all()


def test_an_answer_of_a_chat_reports_what_it_leaves_as_the_simulation_does(chat_profile: Path) -> None:
    """Six requests at once to four slots. The stub executes them one by one, and the simulation ends them one by one."""
    document = json.loads(chat_profile.read_text())
    profile_of(chat_profile, slots=document["slots"] | {"slots": 4, "step_s": [1e-3] * 5})
    clock, simulated = Clock(), list[tuple[int, int]]()
    kind = Slots(SlotLimits(4, 64), SlotsCost((1.0,) * 5, 0.0, 0.0))
    box = SlotBox(clock, kind, 0, lambda request: simulated.append(request.execution.report))
    for number in range(6):
        box.arrive(SlotRequest(Execution(clock, number, 0), 1, 3 + number))
    clock.run(until=100.0)

    async def reports(url: str) -> list[tuple[int, ...]]:
        async with Api("openai").connect(url, ("de", "en"), slots=read_profile(chat_profile).slots) as client:
            await client.greet("", "")
            answers = await together(client, [ask(forced=20)] * 6)
        exchanges = sorted((one for one in answers if isinstance(one, Exchange)), key=lambda one: one.received_s)
        return [exchange.answer.report for exchange in exchanges]

    with stub_service(waits_for=6, **COPYING) as service:
        live = run_precisely(reports(service.url))
    assert live == simulated == [(3, 2), (3, 1), (3, 0), (2, 0), (1, 0), (0, 0)]


def test_the_transfer_of_a_chat_is_the_round_trip_to_it(chat_profile: Path) -> None:
    async def exchanged(url: str) -> tuple[float, float, float]:
        async with Api("openai").connect(url, ("de", "en"), slots=read_profile(chat_profile).slots) as client:
            await client.greet("", "")
            exchange = await client.translate(ask(forced=21))
        assert exchange.answer.times is not None
        return exchange.transfer_s, client.round_trip_s, exchange.answer.times.execution_s

    with stub_service(pace=5.0, **COPYING) as service:
        transfer_s, round_trip_s, execution_s = run_precisely(exchanged(service.url))
    assert transfer_s == pytest.approx(round_trip_s) and execution_s > 0.1


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ("--service cloud=http://127.0.0.1:9 --api cloud=grpc", "grpc is not a known API"),
        ("--service cloud=http://127.0.0.1:9 --api gateway=openai", "--api names gateway, which has no --service"),
        ("--service gateway=http://127.0.0.1:9", "other devices behind it"),
        ("--service far=http://127.0.0.1:9", "no device far"),
    ],
)
def test_a_service_that_cannot_be_used_is_one_line(
    simnmt: Callable[..., Outcome],  # noqa: F811
    tmp_path: Path,
    arguments: str,
    fault: str,
) -> None:
    done = simnmt("validate", "@live-smoke", "--out", str(tmp_path / "out"), *arguments.split())
    assert done.status == 2 and re.search(fault, done.err)


def test_a_service_without_the_model_is_refused(chat_profile: Path) -> None:
    scenario = scenario_of("cloud", devices={"cloud": {"profile": str(chat_profile), "outside_range_share": 1.0}})
    with stub_service() as service, pytest.raises(InputError, match="no model huge"):
        validated(service, scenario, "cloud", "openai:huge")
