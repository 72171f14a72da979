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
from simnmt.live.running_services import REFERENCES, Api
from simnmt.live.validation import Validation, validate
from simnmt.profile.device_profile import read_profile
from simnmt.service.load import run_precisely
from tests.command_line import Outcome, simnmt  # noqa: F401 - a fixture
from tests.live.fake_engines import load_paced
from tests.live.foreign_services import ForeignService, foreign
from tests.live.live_services import ask, engine_settings, plan_of

GRU = {"profile": "@cpu1-gru", "outside_range_share": 1.0}
SLOTS = {
    "kind": "synthetic",
    "slots": 1,
    "chunk": 64,
    "step_s": [1e-3, 1e-3],
    "s_per_prompt_token": 0,
    "s_per_context_token": 0,
}


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


@pytest.fixture
def chat_profile(tmp_path: Path) -> Path:
    """A profile with slots, of which each word of an answer is two tokens and its end one."""
    document = read_profile("calibration/cpu1-gru.json").model_dump(mode="json")
    path = tmp_path / "chat.json"
    document["slots"] = SLOTS | {"output": {"fixed": 1, "per_token": 2}}
    path.write_text(json.dumps(document | {"engine": None}), encoding="utf-8")
    return path


def validated(service: ForeignService, scenario: dict[str, Any], device: str, api: str, **others: Any) -> Validation:
    return validate(plan_of(scenario), services={device: (service.url, Api.of(api))}, any_model=True, **others)


def test_a_validation_asks_a_single_service_directly() -> None:
    lines = {" ".join(["wort"] * length): 0 for length in (2, 5, 9)}
    with foreign() as service:
        messages: list[str] = []
        (row,) = validated(service, scenario_of("cloud"), "cloud", "libretranslate", lines=lines, progress=messages.append).rows
    assert any("words on average" in line for line in messages), "the service copies, whatever length is wanted"
    assert {content["q"] for content in service.asked if not content["q"].startswith("first")} == {*lines}
    assert row.live[0] > 2e-3 and row.live[3] == 0.0
    assert np.isnan(row.errors["structural"][:3]).all(), "the service states no executions"
    assert np.isfinite(row.errors["predicted"][:3]).all() and np.isnan(row.live[5:]).all(), "nothing is streamed"


def test_forced_lengths_of_a_chat_are_tokens_of_its_model(chat_profile: Path) -> None:
    scenario = scenario_of("cloud", devices={"cloud": {"profile": str(chat_profile), "outside_range_share": 1.0}})
    with foreign() as service:
        (row,) = validated(service, scenario, "cloud", "openai").rows
    assert 0.0 < row.live[5] < row.live[0], "the first token comes before the last one"
    counted = [content["max_tokens"] for content in service.asked]
    assert all(content["ignore_eos"] and content["model"] == "tiny" for content in service.asked)
    assert all(tokens % 2 for tokens in counted) and len({*counted}) > 2


def test_a_gateway_offloads_to_a_chat(chat_profile: Path) -> None:
    devices = {"gateway": GRU, "cloud": GRU | {"profile": str(chat_profile)}}
    scenario = scenario_of(devices=devices, policies={"edge": {}, "cloud": {}})
    engines = {"gateway": engine_settings(load_paced)}
    with foreign() as service:
        edge, cloud = validated(service, scenario, "cloud", "openai", engines=engines).rows
    assert (edge.live[3], cloud.live[3]) == (0.0, 1.0) and np.isnan(cloud.live[5]), "a gateway answers with whole texts"
    streamed = sum("stream" in content for content in service.asked)
    assert streamed == 4 * 2 * REFERENCES, "of four runs, the reference requests"


def test_the_transfer_of_a_chat_is_the_round_trip_to_it(chat_profile: Path) -> None:
    async def exchanged(url: str) -> tuple[float, float, float]:
        async with Api("openai").connect(url, read_profile(chat_profile), "none") as client:
            _, round_trip_s = await client.greet(("de", "en"), "", "")
            exchange = await client.translate(ask(forced=21))
        assert exchange.answer.times is not None
        return exchange.transfer_s, round_trip_s, exchange.answer.times.execution_s

    with foreign(step_s=5e-3) as service:
        transfer_s, round_trip_s, execution_s = run_precisely(exchanged(service.url))
    assert transfer_s == pytest.approx(round_trip_s) and execution_s > 0.1


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ("--service cloud=http://127.0.0.1:9 --api cloud=grpc", "no API grpc"),
        ("--service cloud=http://127.0.0.1:9 --api gateway=openai", "--api is of no running service"),
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
    with foreign() as service, pytest.raises(InputError, match="no model huge"):
        validated(service, scenario, "cloud", "openai:huge")
