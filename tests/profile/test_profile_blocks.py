"""Profiles of version 2: every block written, read back, refused when wrong, and computing; version 1 is still read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simnmt.base import shipped_files
from simnmt.profile.blocks import ProfileError
from simnmt.profile.profile_file import checked_profile, read_profile, write_profile
from tests.profile.made_profile import whole_profile

WHOLE = whole_profile()


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return WHOLE


def changed(content: dict[str, Any], place: tuple[Any, ...], value: object) -> dict[str, Any]:
    found = copy.deepcopy(content)
    block: Any = found
    for key in place[:-1]:
        block = block[key]
    block[place[-1]] = value
    return found


def test_what_was_written_is_read_back_byte_for_byte(whole: dict[str, Any], tmp_path: Path) -> None:
    profile = checked_profile(whole)
    write_profile(tmp_path / "one.json", profile)
    again = read_profile(tmp_path / "one.json")
    assert again == profile
    write_profile(tmp_path / "two.json", again)
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(share=st.floats(0.0, 0.999))
def test_a_profile_cut_off_anywhere_is_refused_in_one_line(whole: dict[str, Any], tmp_path: Path, share: float) -> None:
    text = json.dumps(whole, indent=1)
    path = tmp_path / "cut.json"
    path.write_text(text[: int(share * len(text))], encoding="utf-8")
    with pytest.raises(ProfileError, match="no JSON") as caught:
        read_profile(path)
    assert "\n" not in str(caught.value)


WRONG = [
    (("step", "batch"), [4, 2, 1, 8, 16, 32], "step.batch: values must rise"),
    (("encoder", "coefficients", "s_fixed"), -1.0, "encoder.coefficients.s_fixed: "),
    (("energy", "j_fixed"), 1.0, "energy: j_per_src_token, j_per_tgt_token and j_fixed go together"),
    (("encoder", "coefficients", "s_fixed"), 1e-310, "encoder.coefficients.s_fixed: 1e-310 s is no cost"),
    (("schema_version",), 3, "schema_version: 3 where this simnmt reads 1"),
]


@pytest.mark.parametrize(("place", "value", "says"), WRONG, ids=[".".join(map(str, place)) for place, _, _ in WRONG])
def test_a_wrong_block_is_named_by_its_key(
    whole: dict[str, Any], tmp_path: Path, place: tuple[Any, ...], value: object, says: str
) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(changed(whole, place, value)), encoding="utf-8")
    with pytest.raises(ProfileError) as caught:
        read_profile(path)
    assert caught.value.what.startswith(says)


def test_a_fit_and_conditions_may_say_more_than_is_known_here(whole: dict[str, Any]) -> None:
    more = changed(changed(whole, ("execution", "fit", "heldout_error_six_cells"), 0.03), ("conditions", "fans"), "loud")
    more["execution"]["fit"]["fans"] = 3
    profile = checked_profile(more)
    assert profile.execution.fit.heldout_error_six_cells == 0.03
    assert profile.execution.fit.model_dump()["fans"] == 3
    assert profile.execution.fit.mode == "full_grid"


def test_the_cost_models_of_a_profile_compute(whole: dict[str, Any]) -> None:
    profile = checked_profile(whole)
    assert profile.step.cost.seconds(8, 16) == pytest.approx(0.003 + 8e-4 + 128e-6, rel=0.03)
    assert profile.encoder.cost.seconds(8, 16) == pytest.approx(0.002 + 8e-4 + 1280e-6, rel=0.03)
    assert profile.disk.seconds(50e6) == pytest.approx(0.101, rel=1e-3)
    tabled = changed(whole, ("disk", "form"), "table")
    assert checked_profile(tabled).disk.seconds([2**20, 2**26]) == pytest.approx([0.00310, 0.1382], rel=0.01)
    with pytest.raises(ProfileError, match="samples: form table needs two at least"):
        checked_profile(changed(tabled, ("disk", "samples"), tabled["disk"]["samples"][:1]))
    assert profile.energy_cost is not None
    assert profile.energy_cost.joules(5, 5, 0.5) == pytest.approx(20.0)
    src, tgt = np.array([10]), np.array([20])
    assert profile.execution_s(src, tgt, np.zeros(1)) == pytest.approx([0.07 * 1.02], rel=0.02)


@pytest.mark.parametrize("name", shipped_files.names("calibration"))
def test_shipped_profiles_are_written_as_they_were(name: str, tmp_path: Path) -> None:
    path = shipped_files.find("calibration", name)
    profile = read_profile(path)
    write_profile(tmp_path / "again.json", profile)
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
