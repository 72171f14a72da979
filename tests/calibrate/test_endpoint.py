"""A running service is measured through HTTP: its plane, and what becomes of a calibration that is interrupted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.calibrate import endpoint_calibration, processor_use
from simnmt.calibrate.calibration import Calibrated
from simnmt.calibrate.endpoint_apis import APIS, Reply
from simnmt.calibrate.endpoint_calibration import calibrate_endpoint
from simnmt.calibrate.endpoint_settings import EndpointSettings
from simnmt.calibrate.journal import journal_path
from simnmt.calibrate.measurement import Listener, Silent
from simnmt.calibrate.settings import CalibrationError
from simnmt.profile.profile_file import read_profile
from tests.calibrate.endpoint_stub import (
    FIXED_S,
    SRC_S,
    TGT_S,
    Noise,
    SimulatedService,
    StubService,
    run_simulated,
    stub_service,
    translation,
)

FAST = 0.02
"""Pace of a stub whose times do not matter."""
LINES = [" ".join(f"n{line}x{place}" for place in range(1 + 5 * line)) for line in range(6)]
"""The stub's translations have 4 to 33 words, whatever the sentence's length."""


@pytest.fixture
def calibrated(tmp_path: Path) -> Callable[..., Calibrated]:
    """Calibrates a stub with these settings, to the same file each time."""
    (tmp_path / "text.de").write_text("\n".join(LINES))

    def one(
        service: StubService,
        api: str = "libretranslate",
        listener: Listener = Silent,
        replaces_journal: bool = False,
        **settings: Any,
    ) -> Calibrated:
        model = "stub" if api == "openai" else None
        target = "eng_Latn" if api == "ctranslate2-server" else "en"
        given = {"quick": True, "model": model, "target": target, **settings}
        whole = EndpointSettings(service.url, api, str(tmp_path / "text.de"), **given)
        return calibrate_endpoint(whole, tmp_path / f"{api}.json", listener=listener, replaces_journal=replaces_journal)

    return one


class Remarks:
    """The lines of a calibration."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def measured(self, part: str, done_s: float, left_s: float) -> None:
        pass


@pytest.mark.parametrize("api", ["libretranslate", "openai"])
def test_the_plane_of_a_service_is_measured_through_http(calibrated: Any, api: str) -> None:
    """On a busy box sentences and echoes are late: the bounds are wide, those of the simulated services below narrow."""
    with stub_service(pace=0.3) as service:
        profile = calibrated(service, api).profile
    src, tgt = (np.array([len(side(line).split()) for line in LINES]) for side in (str, translation))
    ratio = profile.plane.seconds(src, tgt) / (0.3 * (FIXED_S + SRC_S * src + TGT_S * tgt))
    assert 0.5 < ratio.mean() < 4.0
    assert "measured through HTTP, round trip of" in profile.provenance.source
    if api == "openai":
        tokens = profile.endpoint.streamed
        assert 0.5 < tokens.between_tokens.median_s / (0.3 * TGT_S) < 5.0
        assert tokens.first_token.median_s > tokens.between_tokens.median_s


def test_a_ctranslate2_server_is_asked_for_the_bare_sentence_and_the_models_own_language(calibrated: Any) -> None:
    with stub_service(pace=FAST) as service:
        endpoint = calibrated(service, "ctranslate2-server").profile.endpoint
        assert set(" ".join(service.asked).split()) == set(" ".join(LINES).split())  # and no word of an instruction
        assert set(service.target_langs) == {"eng_Latn"}
        assert (endpoint.round_trip.echo, endpoint.streamed) == ("GET /health", None)
        service.target_langs.clear()
        calibrated(service, "ctranslate2-server", target="default")
    assert set(service.target_langs) == {None}  # that of the service's configuration


class NoisyService:
    """Answers at once, and states the times of a known plane with noise: by up to 3 % around it, or only above it."""

    echo_name, remarks = "nothing", ()
    noise: Callable[[], float]

    def __init__(self, settings: EndpointSettings) -> None:
        self.client = nullcontext()

    async def check(self) -> bool:
        return True

    async def echo(self) -> float:
        return 0.001

    async def ask(self, text: str) -> Reply:
        exact_s = FIXED_S + SRC_S * len(text.split()) + TGT_S * len(translation(text).split())
        return Reply(0.0, 0.001 + exact_s * type(self).noise(), translation(text))


@pytest.mark.parametrize("box", ["quiet", "busy"])
def test_the_plane_is_at_the_median_on_a_quiet_box_and_at_the_least_on_a_busy_one(
    calibrated: Any, monkeypatch: pytest.MonkeyPatch, box: str
) -> None:
    random = np.random.default_rng(3)
    quiet = box == "quiet"
    monkeypatch.setattr(processor_use, "others_cpus", lambda: 0.0 if quiet else 2.0)
    noise = (lambda: random.uniform(0.97, 1.03)) if quiet else (lambda: 1.0 + max(random.exponential(0.3) - 0.1, 0.0))
    monkeypatch.setattr(NoisyService, "noise", staticmethod(noise), raising=False)
    monkeypatch.setitem(APIS, "libretranslate", NoisyService)
    plane = calibrated(StubService(url="http://localhost"), quick=False).profile.plane
    src, tgt = (np.array([len(side(line).split()) for line in LINES]) for side in (str, translation))
    assert plane.s_per_tgt_token == pytest.approx(TGT_S, rel=0.02)
    assert plane.seconds(src, tgt) == pytest.approx(FIXED_S + SRC_S * src + TGT_S * tgt, rel=0.02)


def test_a_run_takes_the_profile_of_a_service(calibrated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_calibration.asyncio, "run", run_simulated)
    monkeypatch.setitem(APIS, "libretranslate", lambda settings: SimulatedService(Noise(), 1))
    calibrated(StubService(url="http://localhost"))
    (tmp_path / "all.de").write_text("".join(f"{line}\n" for line in LINES * 40))
    (tmp_path / "all.en").write_text("".join(f"{translation(line)}\n" for line in LINES * 40))
    profile = read_profile(tmp_path / "libretranslate.json")
    corpus = {side: str(tmp_path / f"all.{code}") for side, code in (("source", "de"), ("target", "en"))}
    corpus |= {"src_unit": "word", "tgt_unit": "word"}
    result = simnmt.run(
        {
            "version": 1,
            "name": "endpoint",
            "requests": 100,
            "replications": 1,
            "workloads": {"news": {"lengths": corpus}},
            "networks": {"lan": {"rtt": "@cp1"}},
            "devices": {
                "gateway": {"profile": str(tmp_path / "libretranslate.json")},
                "cloud": {"profile": str(tmp_path / "libretranslate.json"), "workers": 2},
            },
            "policies": {"edge": {}},
        }
    )
    executed = result.requests
    expected_s = profile.plane.seconds(executed["src_len"].to_numpy(), executed["tgt_len"].to_numpy())
    ratio = executed["t_exe_s"].to_numpy() / expected_s  # the residuals of the fit are drawn
    assert ratio.mean() == pytest.approx(1.0, rel=0.05)


def test_an_interrupted_calibration_goes_on_and_asks_nothing_twice(calibrated: Any, tmp_path: Path) -> None:
    with stub_service(pace=FAST, api_fault="fail after 17") as service:
        with pytest.raises(CalibrationError, match=r"out of memory \(HTTP 500\)"):
            calibrated(service)
        journal = journal_path(tmp_path / "libretranslate.json")
        kept = [line for line in journal.read_text().splitlines() if "alone" in line]
        assert len(kept) == 17 - 2  # those that warmed up do not count
        service.api_fault, service.asked[:] = "", []
        profile = calibrated(service).profile
    assert len(service.asked) == 2 + profile.endpoint.requests - 15
    assert not journal.exists()


def test_without_an_echo_the_round_trip_is_stated_as_included(calibrated: Any) -> None:
    with stub_service(pace=FAST) as service:
        service.languages = None
        done = calibrated(service)
    assert done.profile.endpoint.round_trip.how == "included"
    assert "network included" in done.profile.provenance.source
    assert any("contain the network's round trip" in warning for warning in done.warnings)


def test_an_echo_that_is_longer_than_a_sentence_is_not_taken_off(calibrated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_calibration.asyncio, "run", run_simulated)
    monkeypatch.setitem(APIS, "libretranslate", lambda settings: SimulatedService(Noise(echo_s=0.2, http_s=0.001), 1))
    done = calibrated(StubService(url="http://localhost"))
    round_trip = done.profile.endpoint.round_trip
    assert (round_trip.how, round_trip.taken_off_s, round_trip.echo) == ("included", 0.0, "GET /languages")
    assert any("takes longer than the shortest sentence" in warning for warning in done.warnings)
    assert done.profile.plane.s_per_tgt_token == pytest.approx(0.003, rel=0.02)


def test_on_a_busy_box_the_least_echo_is_taken_off_the_least_times(calibrated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_use, "others_cpus", lambda: 2.0)
    monkeypatch.setattr(endpoint_calibration.asyncio, "run", run_simulated)
    monkeypatch.setitem(APIS, "libretranslate", lambda settings: SimulatedService(Noise(relative=0.0, jitter_s=0.003), 2))
    done = calibrated(StubService(url="http://localhost"))
    round_trip = done.profile.endpoint.round_trip
    assert round_trip.taken_off_s < 0.7 * round_trip.seconds.median_s
    assert done.profile.plane.s_per_tgt_token == pytest.approx(0.003, rel=0.02)


def test_empty_data_ahead_of_a_stream_is_left_out(calibrated: Any) -> None:
    with stub_service(pace=FAST, prelude="data: \n\ndata:\n\nevent: ping\ndata: {}\n\n") as service:
        profile = calibrated(service, "openai").profile
    assert profile.valid_range.tgt_len[1] == max(len(translation(line).split()) for line in LINES)


@pytest.mark.parametrize(
    ("interruption", "message"),
    [
        ('data: {"text": "out of memory", "error_code": 50002}\n\n', "out of memory"),  # FastChat
        ('event: error\ndata: {"code": 500, "details": "engine died"}\n\n', "engine died"),  # TGI, LMDeploy
        ('data: {"object": "error", "message": "out of memory", "code": 500}\n\n', "out of memory"),  # early vLLM
        ('data: {"error": {"message": "engine died"}}\n\n', "engine died"),
        ('data: {"error": {"code": 7}}\n\n', '{"code": 7}'),
    ],
)
def test_an_error_within_a_stream_is_the_services_own_and_leaves_no_profile(
    calibrated: Any, tmp_path: Path, interruption: str, message: str
) -> None:
    with stub_service(pace=FAST, interruption=interruption) as service, pytest.raises(CalibrationError) as refused:
        calibrated(service, "openai")
    assert message in refused.value.what and refused.value.remedy is None
    assert not (tmp_path / "openai.json").exists()


def delta(**content: Any) -> str:
    return f"data: {json.dumps({'choices': [{'delta': content, 'finish_reason': None}]})}\n\n"


THOUGHTS = {
    "mark": delta(content="<think>\n") + 60 * delta(content="hm ") + delta(content="</think>\n\n"),
    "mark of the prompt": 60 * delta(content="hm ") + delta(content="</think>\n\n"),
    "field": 60 * delta(reasoning_content="hm "),
    "part": 20 * delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm hm hm "}]}]),
}


@pytest.mark.parametrize("kind", THOUGHTS)
def test_thinking_is_no_part_of_a_translation_and_is_warned_of(calibrated: Any, kind: str) -> None:
    with stub_service(pace=FAST, prelude=THOUGHTS[kind]) as service:
        done = calibrated(service, "openai")
        with pytest.raises(CalibrationError, match="thinking"):
            calibrated(service, "openai", src_unit="service", tgt_unit="service")  # which counts thinking as translation
    lengths = [len(translation(line).split()) for line in LINES]
    assert done.profile.valid_range.tgt_len == (min(lengths), max(lengths))
    assert any("the model thinks" in warning for warning in done.warnings)


@pytest.mark.parametrize("api", ["openai", "ctranslate2-server"])
def test_answers_that_the_limit_of_tokens_cuts_are_warned_of(calibrated: Any, api: str) -> None:
    with stub_service(pace=FAST) as service:
        whole = calibrated(service, api)
        service.finish_reason = "length"
        cut = calibrated(service, api)
    assert [sum("are cut" in warning for warning in done.warnings) for done in (whole, cut)] == [0, 1]


def test_a_translation_far_longer_than_its_source_is_warned_of(calibrated: Any) -> None:
    with stub_service(pace=FAST, translate=lambda text: "of course " * (11 + 3 * len(text.split()))) as service:
        done = calibrated(service)
    assert any("implausibly long" in warning for warning in done.warnings)


@pytest.mark.parametrize(
    ("option", "refusal", "sent"),
    [
        ("stream_options", "'stream_options': Extra inputs are not permitted", {"max_tokens"}),
        ("max_tokens", "This model's maximum context length is 2048 tokens", {"stream_options"}),
        ("max_tokens", "use 'max_completion_tokens' instead of 'max_tokens'", {"stream_options", "max_completion_tokens"}),
    ],
)
def test_a_refused_option_is_left_out_of_all_later_requests(calibrated: Any, option: str, refusal: str, sent: set[str]) -> None:
    remarks = Remarks()
    with stub_service(pace=FAST, refused_option=option, refusal=refusal) as service:
        calibrated(service, "openai", remarks, max_tokens=99)
        options = service.options
    kept = {"model", "messages", "temperature", "stream"} | sent
    assert {frozenset(asked) for asked in options} == {frozenset(kept)}
    assert {asked.get("max_tokens", asked.get("max_completion_tokens", 99)) for asked in options} == {99}
    assert [refusal in remark for remark in remarks.lines if "refuses" in remark] == [True]


def test_an_unknown_refusal_is_the_services_own(calibrated: Any) -> None:
    with stub_service(refused_option="model", refusal="out of credit") as service, pytest.raises(CalibrationError) as refused:
        calibrated(service, "openai")
    assert "out of credit" in refused.value.what


def test_two_translations_of_one_text_are_refused(calibrated: Any, tmp_path: Path) -> None:
    with stub_service(pace=FAST, answers=2) as service, pytest.raises(CalibrationError) as refused:
        calibrated(service)
    assert service.url in refused.value.what
    assert not list(tmp_path.glob("libretranslate*"))


def test_measurements_of_other_settings_are_removed_only_where_that_is_asked_for(calibrated: Any, tmp_path: Path) -> None:
    with stub_service(pace=FAST, api_fault="fail after 17") as service, pytest.raises(CalibrationError):
        calibrated(service)
    journal, remarks = journal_path(tmp_path / "libretranslate.json"), Remarks()
    before = journal.read_bytes()
    with stub_service(pace=FAST) as service:
        with pytest.raises(CalibrationError) as refused:
            calibrated(service)  # at another address
        assert refused.value.path == str(journal) and journal.read_bytes() == before
        calibrated(service, listener=remarks, replaces_journal=True)
    assert str(journal) in remarks.lines[0]  # before anything is measured
    assert not journal.exists()


def test_a_service_that_remembers_translations_is_found_out(calibrated: Any) -> None:
    with stub_service(remembers=True, pace=0.5) as service:
        done = calibrated(service)
    assert any("remembers translations" in warning for warning in done.warnings)
    assert done.profile.endpoint.requests > done.profile.execution.samples[0].repeats == 1


def test_a_service_that_is_slow_at_first_is_not_taken_for_one_that_remembers(calibrated: Any) -> None:
    with stub_service(cold_pace=2.0, pace=0.1) as service:
        done = calibrated(service)
    assert not any("remembers translations" in warning for warning in done.warnings)
    assert sum(sample.repeats for sample in done.profile.execution.samples) == done.profile.endpoint.requests


def test_lengths_may_be_counted_by_the_service(calibrated: Any) -> None:
    with stub_service(pace=FAST) as service:
        profile = calibrated(service, "openai", src_unit="service", tgt_unit="service").profile
    assert profile.length_unit.src == "token of stub"
    sources = [len(line.split()) for line in LINES]
    assert profile.valid_range.src_len == (2 * min(sources), 2 * max(sources))  # without the tokens of the prompt


@pytest.mark.deep
@pytest.mark.parametrize("api", ["libretranslate", "ctranslate2-server"])
def test_a_real_engine_stands_behind_the_api(
    calibrated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    """CTranslate2 decodes as many tokens as the stub's translation has; its profile predicts the engine's own times."""
    from simnmt.nmt.engine import Work
    from simnmt.nmt.engines import load_engine

    monkeypatch.setattr(processor_use, "others_cpus", lambda: 2.0)
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    engine = load_engine(str(tmp_path / "tiny.json"), backend="ctranslate2", device="cpu", threads=1, compute_type=None, seed=1)
    own_s: dict[tuple[int, int], list[float]] = {}

    def translate(text: str) -> str:
        src_len, tgt_len = len(text.split()), 4 * len(text.split())
        begin_s = time.monotonic()
        engine.run(Work(src_len, tgt_len, 1, 1))
        own_s.setdefault((src_len, tgt_len), []).append(time.monotonic() - begin_s)
        return "w " * tgt_len

    try:
        with stub_service(pace=0.0, translate=translate) as service:
            profile = calibrated(service, api).profile
    finally:
        engine.close()
    for sample in profile.execution.samples:
        own = min(own_s[sample.src_len, sample.tgt_len])
        assert 0.9 * own - 0.001 < sample.min_s < 3.0 * own + 0.02, (sample, own)  # HTTP and a thread add a little
    plane = profile.plane
    assert plane.seconds(26, 104) > 2.0 * plane.seconds(6, 24)


TINY = {
    "kind": "transformer", "encoder_layers": 1, "decoder_layers": 2, "d_model": 128, "heads": 2, "ffn": 512, "vocab": 4000,
}  # fmt: skip
