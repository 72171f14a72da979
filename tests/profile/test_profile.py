"""The device profile file: written and read back, and one clear line for each that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.base.errors import InputError
from simnmt.base.shipped_files import find, names
from simnmt.profile.blocks import EnergyBlock, ProfileError, Shown
from simnmt.profile.device_profile import DeviceProfile, checked_profile, read_profile, write_profile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.origin import EndpointBlock, LengthUnit
from simnmt.profile.profile_summary import facts, numbers
from simnmt.profile.streaming_block import TokenBucket
from tests.profile.made_profile import whole_profile

MakeProfile = Callable[..., DeviceProfile]


def complaint(path: Path) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        read_profile(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}:")
    assert isinstance(caught.value, InputError)
    assert caught.value.exit_status == 2
    return caught.value


def test_what_was_written_is_read_back(tmp_path: Path, make_profile: MakeProfile) -> None:
    profile = make_profile((0.0001, 1 / 3, -0.25), 0.07, device={"name": "größer", "details": "4 threads"})
    path = tmp_path / "profile.json"
    write_profile(path, profile)
    assert read_profile(path) == profile
    first = path.read_bytes()
    write_profile(path, read_profile(path))
    assert path.read_bytes() == first
    assert [file.name for file in tmp_path.iterdir()] == ["profile.json"]


SLOTS = {"kind": "measured", "slots": 2, "chunk": 8, "step_s": [1, 2, 3], "s_per_prompt_token": 1, "s_per_context_token": 0}
BAD_VALUES = [
    (("schema_version",), 1, "schema_version: 1 where this simnmt reads 2"),
    (("colour",), "red", "colour: "),
    (("execution", "kind"), "guessed", "execution.kind: "),
    (("execution", "plane", "s_per_src_token"), -0.001, "execution.plane.s_per_src_token: "),
    (("execution", "plane", "s_per_tgt_token"), "0.1", "execution.plane.s_per_tgt_token: "),
    (("valid_range", "src_len"), [9, 3], "valid_range.src_len: [9, 3] is not a range within 0 and 1e9"),
    (("execution", "residual_quantiles"), {"shares": [0.0, 1.0], "factors": [3.0, 3.0]}, "execution.residual_quantiles: "),
    (("execution", "residual_relative_sd"), 11.0, "execution.residual_relative_sd: "),
    (("energy", "idle_w"), 0.0, "energy.idle_w: "),
    (("step", "judged_cells"), [[8, 0, 0.004]], "step: "),
    (("step", "batch"), [4, 2, 1, 8, 16, 32], "step.batch: values must rise"),
    (("encoder", "seconds", 0), [1.0], "encoder: seconds: 6 rows (batch) of 3 (src_len) are needed"),
    (("slots",), SLOTS | {"chunk": 1}, "slots: chunk: must be at least slots, 2 (got 1)"),
    (("slots",), SLOTS | {"context": 1}, "slots.context: "),
]


@pytest.mark.parametrize(("keys", "value", "says"), BAD_VALUES, ids=[".".join(map(str, keys)) for keys, _, _ in BAD_VALUES])
def test_a_wrong_value_is_named_by_its_key(tmp_path: Path, keys: tuple[Any, ...], value: object, says: str) -> None:
    block: Any = (content := whole_profile())
    for key in keys[:-1]:
        block = block[key]
    block[keys[-1]] = value
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert complaint(path).what.startswith(says)


NO_PROFILES = {
    "empty": (b"", "no JSON"),
    "truncated": (json.dumps(whole_profile()).encode()[:-9], "no JSON"),
    "binary": (b"\x89PNG\r\n\x1a\n\xff\xfe", "no UTF-8 text at byte 0"),
    "deep": (b"[" * 100_000, ""),
    "endless-number": (b'{"schema_version": ' + b"9" * 5_000 + b"}", ""),
    "long-version": (b'{"schema_version": "' + b"x" * 5_000 + b'"}', "schema_version: 'xxxx"),
}


@pytest.mark.parametrize(("content", "says"), NO_PROFILES.values(), ids=NO_PROFILES)
def test_a_file_that_is_not_a_profile_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    error = complaint(path)
    assert error.what.startswith(says)
    assert len(str(error)) < 400


def counting(profile: DeviceProfile, end_of_sentence: str) -> DeviceProfile:
    return profile.counted_in(profile.length_unit.model_copy(update={"end_of_sentence": end_of_sentence}))


def test_a_plane_holds_for_lengths_that_count_the_end_of_the_sentence_otherwise() -> None:
    profile = read_profile(find("calibration", "@tx2-gru"))
    moved = counting(profile, "both")
    assert profile.length_unit.end_of_sentence == "none" and moved.length_unit.end_of_sentence == "both"
    assert moved.plane.seconds(11, 21) == pytest.approx(profile.plane.seconds(10, 20))
    assert moved.valid_range.src_len == tuple(end + 1 for end in profile.valid_range.src_len)
    assert counting(moved, "none").plane.seconds(10, 20) == pytest.approx(profile.plane.seconds(10, 20))
    with pytest.raises(ProfileError, match=r"state length_unit\.end_of_sentence alike"):
        counting(read_profile(find("calibration", "@cpu1-gru")), "none")


BEAM = {"kind": "measured", "steps_per_token": 1.25, "sentences": 200}


def of_a_beam(end_of_sentence: str) -> DeviceProfile:
    """A profile without costs of steps, whose beam takes a quarter more steps than its best output has tokens."""
    content = {name: block for name, block in whole_profile().items() if name not in ("step", "encoder")}
    unit = {"src": "char", "tgt": "char", "end_of_sentence": end_of_sentence}
    return checked_profile(content | {"length_unit": unit, "beam_overrun": BEAM})


def test_a_beam_keeps_its_steps_where_lengths_are_counted_otherwise() -> None:
    """Another count of the end of the sentence, or another unit, does not change the time of a sentence."""
    unconverted = of_a_beam("none")
    moved = counting(unconverted, "both")
    assert moved.beam_overrun == unconverted.beam_overrun is not None
    counted = of_a_beam("both")
    words = counted.counted_in(LengthUnit(src="word", tgt="word", end_of_sentence="both"), 3.0, 5.0)
    assert words.beam_overrun == counted.beam_overrun
    # Of 4 and 6 tokens in words, one of either side ends the sentence; the others make 9 and 25 characters.
    assert words.plane.seconds(4, 6) == pytest.approx(counted.plane.seconds(9 + 1, 25 + 1))
    assert moved.plane.seconds(11, 21) == pytest.approx(unconverted.plane.seconds(10, 20))


def block(**fields: Any) -> EndpointBlock:
    given = {"kind": "measured", "api": "libretranslate", "url": "http://box:5000", "source": "de", "target": "en"}
    numbers = {"sentences": 12, "requests": 48, "mean_s": 0.1}
    return EndpointBlock.model_validate(given | numbers | fields)


def test_a_profile_shows_its_service_and_repeats_its_doubts(make_profile: Any) -> None:
    profile = make_profile((0.001, 0.008, 0.010)).model_copy(update={"endpoint": block(doubts=("answers are cut",))})
    included, recorded = profile_doubts(profile, ["execution"])
    assert included.effect and not recorded.effect and recorded.message == "answers are cut"
    shown = facts(profile)
    place = [label for label, _ in shown].index("endpoint")
    assert ("warning", "answers are cut") in shown[place + 1 : place + 3]
    assert dict(shown)["endpoint"].endswith("48 requests; round trip: 0 ms taken off all times")


def test_a_new_quantity_is_a_field_and_appears_in_the_summary() -> None:
    class Fans(EnergyBlock):
        noise_db: Annotated[float | None, Shown("{:.0f} dB of noise")] = None

    block = Fans(kind="measured", source="rapl", idle_w=5.0, active_w=9.0, noise_db=31.0)
    assert dict(block.lines("energy"))["energy"].endswith("31 dB of noise")
    profile = checked_profile(whole_profile()).model_copy(update={"energy": block})
    assert numbers(profile)["energy.noise_db"] == 31.0


@pytest.mark.parametrize("name", names("calibration"))
def test_shipped_profiles_are_written_as_they_were(name: str, tmp_path: Path) -> None:
    path = find("calibration", name)
    write_profile(tmp_path / "again.json", read_profile(path))
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


READS = st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 5_000)), min_size=1, max_size=30)


@given(READS, st.floats(10.0, 5_000.0))
def test_no_window_holds_more_than_the_rate_and_no_read_waits_longer_than_it_must(
    reads: list[tuple[float, int]], rate: float
) -> None:
    bucket, free_s = TokenBucket(rate), 0.0
    begins = list(accumulate(gap for gap, _ in reads))
    ends = [bucket.end_s(begin, size) for begin, (_, size) in zip(begins, reads, strict=True)]
    for first, begin in enumerate(begins):
        free_s = max(free_s, begin) + reads[first][1] / rate
        assert ends[first] == pytest.approx(free_s)
        total = 0.0
        for (_, size), end in zip(reads[first:], ends[first:], strict=True):
            total += size
            assert total <= rate * (end - begin) * (1.0 + 1e-9) + 1e-6
