"""A running service with slots is measured through HTTP, and one that cannot be measured so gives one line and no profile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.batching.slots import SlotLimits
from simnmt.calibrate import slot_ladder
from simnmt.calibrate.endpoint import EndpointSettings
from simnmt.profile.device_profile import DeviceProfile, read_profile
from tests.calibrate.fake_slots import COST, TEMPLATE, FakeSlots, fake_slots
from tests.command_line import Command, assert_complaint

WORDS = 600


@pytest.fixture
def measure(simnmt: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the command with a small ladder; the second option is the profile's path."""
    monkeypatch.chdir(tmp_path)
    lines = [" ".join(f"n{9 * line + place}" for place in range(4 + line % 11)) for line in range(WORDS // 9)]
    Path("text.de").write_text("\n".join(lines))
    for name, value in {"MOST_OUTPUT": 12, "LONG": 2, "QUICK_ROUNDS": 2, "MOST_PROMPT": 80}.items():
        monkeypatch.setattr(slot_ladder, name, value)

    def command(service: FakeSlots, *options: str) -> Any:
        endpoint = ("--endpoint", service.url, "--api", "openai", "--model", "fake", "--kind", "slots")
        return simnmt("calibrate", *endpoint, "--text", "text.de", "--quick", "--out", "slots.json", *options)

    return command


def test_the_costs_of_a_service_with_slots_are_measured_through_http(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy box iterations are late: the bounds are wide, and those of made times are narrow (`test_slots_fit`).

    Its answers of one token have no text, as if that was a part of a character.
    """
    monkeypatch.setattr(slot_ladder, "MOST_SPEED_CHANGE", 20.0)
    monkeypatch.setattr(slot_ladder, "MOST_STALLED", 1.0)
    with fake_slots(fault="silent") as service:
        assert measure(service).status == 0
    profile: DeviceProfile = read_profile("slots.json")
    block = profile.slots
    assert block is not None and profile.endpoint is not None
    assert (block.slots, block.context, block.chunk, block.cached_prefix) == (2, 512, 2048, TEMPLATE)
    assert block.prompt.per_token == pytest.approx(1.0, abs=0.01) and block.prompt.fixed == pytest.approx(TEMPLATE, abs=0.1)
    assert block.output.per_token == pytest.approx(1.0, abs=0.01)
    for measured_s, true_s in zip(block.step_s[1:], COST.step_s[1:], strict=True):
        assert 0.5 * true_s < measured_s < 10.0 * true_s
    assert profile.plane.s_per_tgt_token > 0.001
    assert any("are assumed" in note for note in block.notes)


def test_the_plane_of_a_model_that_never_ends_counts_its_tokens(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer tells how many tokens a word has, so that no length of the plane may be in words."""
    monkeypatch.setattr(slot_ladder, "MOST_SPEED_CHANGE", 20.0)
    monkeypatch.setattr(slot_ladder, "MOST_STALLED", 1.0)
    with fake_slots(fault="endless") as service:
        assert measure(service).status == 0
    profile = read_profile("slots.json")
    assert profile.valid_range.tgt_len[0] == 3, "the fewest tokens of a request alone; each answer has one word"


def assert_refused(done: Any, line: str) -> None:
    """Progress may come first; the last line is the error."""
    assert done.status == 2
    assert_complaint(done.err.splitlines()[-1] + "\n")
    assert line in done.err.splitlines()[-1]


@pytest.mark.parametrize("sound", [0, 12])
@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("close", "closed the connection"),
        ("stream", "refuses stream"),
        ("piece", "tokens arrived at 1 moments"),
        ("buffer", "tokens arrived at 1 moments"),
        ("usage", "states no numbers of tokens"),
        ("context", "exceeds the available context size"),
        ("cut", "its context is smaller"),
        ("cache", "from a cache"),
        ("empty", "empty translation"),
        ("break", "ended a stream in the middle"),
    ],
)
def test_a_service_that_cannot_be_measured_gives_one_line_and_no_profile(
    measure: Any, fault: str, sound: int, line: str
) -> None:
    with fake_slots(fault=fault, sound=sound) as service:
        done = measure(service)
    assert_refused(done, line)
    assert not Path("slots.json").exists()


def test_a_service_that_changes_its_speed_between_blocks_gives_no_profile(measure: Any) -> None:
    with fake_slots(fault="speed", sound=45) as service:
        assert_refused(measure(service), "changed its speed between blocks")
    assert not list(Path().glob("slots.*"))


def test_a_text_that_would_run_out_is_refused_before_measuring(measure: Any) -> None:
    """Each of two rounds needs 24 prompts, beside 5 that size them."""
    Path("text.de").write_text("\n".join(f"n{line} n{line} n{line}" for line in range(16)))
    with fake_slots() as service:
        assert_refused(measure(service), "the text has 48 words, too few for prompts that differ from the first word on")
    assert service.asked == 5 and not list(Path().glob("slots.*"))


def test_prompts_that_take_several_iterations_are_noted(tmp_path: Path) -> None:
    """At least 20 words in two prompts at once, in iterations of 40 tokens."""
    (tmp_path / "text.de").write_text("\n".join(" ".join(f"n{9 * line + place}" for place in range(9)) for line in range(80)))

    async def notes(url: str, chunk: int) -> list[str]:
        settings = EndpointSettings(url, "openai", str(tmp_path / "text.de"), model="fake", quick=True)
        async with settings.connect() as service:
            ladder = slot_ladder.SlotLadder(settings, service)
            await ladder.plan(SlotLimits(2, chunk, 512))
            return ladder.notes

    with fake_slots() as service:
        assert asyncio.run(notes(service.url, 2048)) == []
        (note,) = asyncio.run(notes(service.url, 40))
    assert "took several iterations" in note


def test_iterations_with_fewer_tokens_than_slots_are_refused_before_the_ladder(measure: Any) -> None:
    with fake_slots() as service:
        assert_refused(measure(service, "--chunk", "1"), "--chunk must be at least the slots, 2 (got 1)")
    assert service.asked == 0


def test_slots_that_a_service_has_not_are_noticed(measure: Any) -> None:
    with fake_slots(slots=3) as service:
        assert_refused(measure(service), "decoded at most 2 requests together, not 3")


@pytest.mark.parametrize("option", [("--slots", "4"), ("--kind", "slots", "--workers", "2")])
def test_options_of_the_other_kind_are_refused(simnmt: Command, option: tuple[str, ...]) -> None:
    done = simnmt("calibrate", "--endpoint", "http://127.0.0.1:1", "--text", "text.de", "--out", "slots.json", *option)
    assert done.status == 2 and "--kind slots" in done.err
