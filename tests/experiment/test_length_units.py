"""Devices whose profiles count other tokens than the workload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.experiment.inputs import read_inputs
from simnmt.profile.blocks import ProfileError
from simnmt.profile.device_profile import write_profile
from simnmt.profile.origin import LengthUnit
from simnmt.scenario.configuration import ScenarioConfiguration

SPACED = ["one two three four", "five six", "seven eight nine", "ten"] * 9


@pytest.fixture
def made_scenario(tmp_path: Path, make_profile: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """A text of words of two pieces each, a profile that counts words, and one of another unit."""

    def made(second: tuple[str, str], lengths: dict[str, Any] | None = None, **device: Any) -> dict[str, Any]:
        (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in SPACED))
        (tmp_path / "b.txt").write_text("".join(f"{line} and\n" for line in SPACED))
        for name, unit in (("words", ("word", "word")), ("other", second)):
            profile = make_profile().model_copy(update={"length_unit": LengthUnit(src=unit[0], tgt=unit[1])})
            write_profile(tmp_path / f"{name}.json", profile)
        text = {"source": str(tmp_path / "a.txt"), "target": str(tmp_path / "b.txt"), "src_unit": "word", "tgt_unit": "word"}
        profiles = {name: str(tmp_path / f"{name}.json") for name in ("words", "other")}
        cloud = {"profile": profiles["other"], "outside_range_share": 1.0, **device}
        devices = {"gateway": {"profile": profiles["words"]}, "cloud": cloud}
        return {
            "version": 1,
            "name": "own",
            "requests": 200,
            "replications": 1,
            "workloads": {"w": {"lengths": lengths or text}},
            "networks": {"n": {"rtt": {"constant_ms": 1.0}}},
            "devices": devices,
            "policies": {"edge": {}, "oracle": {}, "cnmt": {}},
        }

    return made


def plan_of(scenario: dict[str, Any], base: Path) -> Any:
    return read_inputs(ScenarioConfiguration.model_validate(scenario), base)


def test_costs_per_another_token_are_converted_by_the_stated_fertility(made_scenario: Any, tmp_path: Path) -> None:
    scenario = made_scenario(("char", "char"))
    with pytest.raises(ProfileError):
        plan_of(scenario, tmp_path)
    scenario["workloads"]["w"]["lengths"]["fertility"] = {"src": {"char": 4.0}, "tgt": {"char": 5.0}}
    case = plan_of(scenario, tmp_path).cases["w"]
    gateway, cloud = case.profiles
    assert (gateway.execution.kind, cloud.execution.kind) == ("synthetic", "synthetic")
    assert (cloud.length_unit.src, cloud.length_unit.tgt) == ("word", "word")
    one_sentence = cloud.plane.seconds(np.array([10]), np.array([20]))
    assert one_sentence == pytest.approx(gateway.plane.seconds(np.array([40]), np.array([100])))
    assert case.targets[0].conversion is None
    assert (case.targets[1].conversion.src, case.targets[1].conversion.tgt) == (4.0, 5.0)


def test_the_end_of_a_sentence_stays_one_token_in_any_unit(make_profile: Callable[..., Any]) -> None:
    profile = make_profile()
    counted = profile.model_copy(update={"length_unit": LengthUnit(src="char", tgt="char", end_of_sentence="both")})
    words = counted.counted_in(LengthUnit(src="word", tgt="word", end_of_sentence="both"), 3.0, 5.0)
    # Of 4 and 6 tokens in words, one of either side ends the sentence; the others make 9 and 25 characters.
    in_chars = counted.plane.seconds(np.array([9 + 1]), np.array([25 + 1]))
    assert words.plane.seconds(np.array([4]), np.array([6])) == pytest.approx(in_chars)
    assert words.length_unit.end_of_sentence == "both"
    assert words.valid_range.tgt_len == (0, 81)  # 80 words of the 399 characters beside the end


def test_batches_need_lengths_in_the_profiles_own_tokens(made_scenario: Any, tmp_path: Path) -> None:
    batched = made_scenario(("char", "char"), batching={"kind": "mini", "size": 2})
    with pytest.raises(ProfileError):
        plan_of(batched, tmp_path)
