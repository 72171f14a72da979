"""A running service is measured through HTTP: its plane, and what becomes of a calibration that is interrupted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simnmt.base.errors import SimnmtError
from simnmt.calibrate import endpoint
from simnmt.calibrate.calibration import Calibrated
from simnmt.calibrate.endpoint import EndpointSettings, ServiceTimes, calibrate_endpoint
from simnmt.calibrate.endpoint_load import Loads, LoadSizes
from simnmt.calibrate.journal import journal_path
from simnmt.calibrate.settings import CalibrationError
from tests.calibrate.endpoint_stub import FIXED_S, SRC_S, TGT_S, StubService, stub_service, translation

FAST = 0.02
"""Pace of a stub whose times do not matter."""
LINES = [" ".join(f"n{line}x{place}" for place in range(1 + 5 * line)) for line in range(6)]
"""The stub's translations have 4 to 33 words, whatever the sentence's length."""
SRC, TGT = (np.array([len(side(line).split()) for line in LINES]) for side in (str, translation))


SHORT = LoadSizes(knee_s=0.1, loop_s=0.1, least=5, most=10, most_s=0.5, alone=2)
"""Loads whose results do not matter."""


@pytest.fixture
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Calibrated]:
    """Calibrates a stub with these settings, to the same file each time."""
    (tmp_path / "text.de").write_text("\n".join(LINES))
    monkeypatch.setattr(endpoint, "QUICK", SHORT)

    def one(service: StubService, api: str = "libretranslate", **settings: Any) -> Calibrated:
        given = {"quick": True, "model": "stub" if api == "openai" else None, **settings}
        whole = EndpointSettings(service.url, api, str(tmp_path / "text.de"), **given)
        return calibrate_endpoint(whole, tmp_path / f"{api}.json")

    return one


@pytest.mark.parametrize("api", ["libretranslate", "openai"])
def test_the_plane_of_a_service_is_measured_through_http(calibrated: Any, api: str) -> None:
    """On a busy box sentences and echoes are late: the bounds are wide, those of the made times below narrow."""
    with stub_service(pace=0.3) as service:
        profile = calibrated(service, api).profile
    ratio = profile.plane.seconds(SRC, TGT) / (0.3 * (FIXED_S + SRC_S * SRC + TGT_S * TGT))
    assert 0.5 < ratio.mean() < 4.0
    assert "measured through HTTP, round trip of" in profile.provenance.source


def requests(noise: Callable[[], float], echo_s: float = 0.001, rounds: int = 20) -> pd.DataFrame:
    """Times of a known plane, with a factor on each, and the echo on top."""
    exact = pd.DataFrame({"case": range(len(LINES)), "src_len": SRC, "tgt_len": TGT, "echo_s": echo_s})
    exact["seconds"] = FIXED_S + SRC_S * SRC + TGT_S * TGT
    times = pd.concat([exact] * rounds, ignore_index=True)
    return times.assign(seconds=[second * noise() + echo_s for second in times["seconds"]])


@pytest.mark.parametrize("echo_s", [0.001, 0.2])
def test_the_plane_is_at_the_level_of_the_median_request_less_an_echo_that_is_shorter(echo_s: float) -> None:
    random = np.random.default_rng(3)
    times = ServiceTimes(requests(lambda: random.uniform(0.97, 1.03)).assign(echo_s=echo_s))
    plane = times.execution().plane
    kept_s = 0.0 if echo_s == 0.001 else 0.001  # of the way there and back
    assert times.round_trip_s == 0.001 - kept_s and not times.remembers
    assert plane.s_per_tgt_token == pytest.approx(TGT_S, rel=0.02)
    assert plane.seconds(SRC, TGT) == pytest.approx(kept_s + FIXED_S + SRC_S * SRC + TGT_S * TGT, rel=0.02)


def test_a_service_that_remembers_is_known_by_its_later_answers_and_no_cold_one_is_taken_for_it() -> None:
    first = requests(lambda: 1.0, rounds=1)
    remembered = ServiceTimes(pd.concat([first, first.assign(seconds=0.0012), first.assign(seconds=0.0013)]))
    assert remembered.remembers and len(remembered.counted) == len(LINES)
    cold = pd.concat([first.assign(seconds=20.0 * first["seconds"]), first, first])
    assert not ServiceTimes(cold).remembers


def test_an_interrupted_calibration_goes_on_and_asks_no_finished_round_twice(
    calibrated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loads, "measure", lambda loads, workers: loads.profile)
    with stub_service(pace=2.0, api_fault="fail after 17") as service:
        with pytest.raises(CalibrationError, match=r"out of memory \(HTTP 500\)"):
            calibrated(service)
        journal = journal_path(tmp_path / "libretranslate.json")
        _, *stretches = map(json.loads, journal.read_text().splitlines())
        kept = sum(len(stretch["rows"]) for _, stretch in stretches)
        service.api_fault, service.pace, service.asked[:] = "", FAST, []
        profile = calibrated(service).profile
    assert kept >= 6 and len(service.asked) == 2 + profile.endpoint.requests - kept
    assert not journal.exists()


@pytest.mark.parametrize("api", ["libretranslate", "openai"])
def test_any_number_of_requests_are_sent_at_once(api: str) -> None:
    """The service answers none before the seventieth is there."""

    async def measured(url: str) -> list[Any]:
        async with EndpointSettings(url, api, "", "stub", timeout_s=10.0).connect() as client:
            return await asyncio.gather(*(client.measure("a") for _ in range(70)))

    with stub_service(waits_for=70, pace=0.0) as service:
        assert len(asyncio.run(measured(service.url))) == 70


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_service_of_a_small_context_is_measured_even_if_it_streams(calibrated: Any, is_streamed: bool) -> None:
    with stub_service(pace=FAST, context=2048, is_streamed=is_streamed, reasoning="hm") as service:
        done = calibrated(service, "openai")
    assert {asked["max_tokens"] for asked in service.options} == {1024}
    assert done.profile.valid_range.tgt_len == (TGT.min(), TGT.max())
    assert any("the model thinks" in text for text in done.warnings)


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (b'data: {"text": "out of memory", "error_code": 50002}\n\ndata: [DONE]\n\n', "out of memory"),
        (b'event: error\ndata: {"details": "engine died"}\n\ndata: [DONE]\n\n', "engine died"),
        (b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n', "in the middle of an answer"),
    ],
)
def test_an_error_at_the_end_of_a_stream_is_no_short_answer(calibrated: Any, end: bytes, error: str) -> None:
    with stub_service(pace=FAST, is_streamed=True, stream_end=end) as service, pytest.raises(SimnmtError, match=error):
        calibrated(service, "openai")


@pytest.mark.parametrize(
    ("service_facts", "warning"),
    [
        ({"thoughts": 60 * "hm " + "</think>\n\n"}, "the model thinks"),  # the prompt opened them
        ({"reasoning": 60 * "hm "}, "the model thinks"),
        ({"finish_reason": "length"}, "are cut"),
        ({"translate": lambda text: "of course " * (11 + 3 * len(text.split()))}, "implausibly long"),
    ],
)
def test_thinking_and_answers_that_are_cut_or_far_too_long_are_warned_of(
    calibrated: Any, service_facts: dict[str, Any], warning: str
) -> None:
    with stub_service(pace=FAST) as service:
        assert not any("the model thinks" in text or "are cut" in text for text in calibrated(service, "openai").warnings)
        for name, fact in service_facts.items():
            setattr(service, name, fact)
        done = calibrated(service, "openai")
    assert any(warning in text for text in done.warnings)
    if warning != "implausibly long":
        assert done.profile.valid_range.tgt_len == (TGT.min(), TGT.max()), "thinking is no part of a translation"


@pytest.mark.parametrize("option", ["temperature", "max_tokens"])
def test_a_refused_option_is_left_out_of_all_later_requests(calibrated: Any, option: str) -> None:
    with stub_service(pace=FAST, refused_option=option) as service:
        calibrated(service, "openai")
    kept = {"model", "messages", "temperature", "max_tokens"} - {option}
    assert {frozenset(asked) for asked in service.options} == {frozenset(kept)}
