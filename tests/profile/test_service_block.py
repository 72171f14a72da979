"""Executions in service in a profile: what it charges by them, what is refused, and how its residual is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.profile.blocks import CellSample, ProfileError
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.profile_file import checked_profile
from simnmt.profile.profile_summary import as_json, facts
from simnmt.profile.service_block import ResidualQuantiles
from tests.profile.made_profile import whole_profile


def service(level: float = 1.25, **keys: Any) -> dict[str, Any]:
    """Content of a block `in_service` of the made profile: `level` times as slow as its bench."""
    bench = checked_profile(whole_profile()).execution.plane
    plane = {name: level * value for name, value in bench.model_dump().items()}
    cells = [CellSample.of([0.02 * level, 0.03 * level], src_len=10, tgt_len=tgt) for tgt in (2, 5, 20)]
    conditions = {"gaps": "poisson", "rate_rps": 12.0, "mean_gap_s": 0.04, "idled_share": 0.7, "load": 0.4, "lengths": "spread"}
    return {
        "kind": "measured",
        "conditions": conditions | keys.pop("conditions", {}),
        "plane": plane,
        "residual": {"shares": [0.0, 0.5, 1.0], "factors": [0.6, 0.8, 1.8]},
        "executions": 6,
        "heldout_error": 0.03,
        "samples": [cell.model_dump(mode="json") for cell in cells],
        **keys,
    }


def profile(**keys: Any) -> DeviceProfile:
    return checked_profile(whole_profile() | {"in_service": service(**keys)})


@settings(max_examples=25)
@given(
    times=st.lists(st.floats(0.1, 50.0), min_size=30, max_size=300),
)
def test_the_residual_has_the_mean_one_and_the_quantiles_of_its_executions(times: list[float]) -> None:
    factors = np.array(times)
    residual = ResidualQuantiles.of(factors)
    grid = (np.arange(50_000) + 0.5) / 50_000
    drawn = np.interp(grid, residual.shares, residual.factors)
    assert drawn.mean() == pytest.approx(1.0, abs=1e-4)
    assert drawn.std() == pytest.approx(residual.relative_sd, rel=1e-2, abs=1e-4)
    scale = residual.factors[-1] / factors.max()
    for share in (0.05, 0.5, 0.95, 0.99):
        assert np.quantile(drawn, share) == pytest.approx(scale * np.quantile(factors, share), rel=1e-2, abs=0.02)


@settings(max_examples=10)
@given(st.integers(0, 2**16))
def test_a_factor_is_drawn_at_the_quantile_of_its_normal_number(seed: int) -> None:
    residual = ResidualQuantiles.of(np.random.default_rng(seed).lognormal(0.0, 0.3, 500))
    normal = np.random.default_rng(seed + 1).standard_normal(50_000)
    drawn = residual.factor(normal)
    assert (np.argsort(drawn) == np.argsort(normal)).mean() > 0.99, "the same requests are slow on every device profile"
    assert np.quantile(drawn, 0.99) == pytest.approx(np.interp(0.99, residual.shares, residual.factors), rel=0.05)
    assert drawn.mean() == pytest.approx(1.0, abs=0.01)


def test_a_serving_profile_charges_what_was_measured_in_service() -> None:
    bench, serving = profile().in_bench, profile().serving
    src, tgt = np.array([10, 40]), np.array([3, 40])
    assert profile().service_level == pytest.approx(1.25)
    assert serving.plane.seconds(src, tgt) == pytest.approx(1.25 * bench.plane.seconds(src, tgt))
    normal = np.random.default_rng(0).standard_normal(200_000)
    lengths = np.full(normal.size, 10)
    charged_s = serving.execution_s(lengths, lengths, normal)
    assert charged_s.mean() == pytest.approx(float(serving.plane.seconds(10, 10)), rel=2e-3)
    assert charged_s.max() <= 1.8 * float(serving.plane.seconds(10, 10))
    assert serving.serving == serving, "it is charged once"


def test_costs_of_batches_are_multiplied_by_the_level() -> None:
    bench, serving = profile().in_bench, profile().serving
    for batch in (1, 4, 32):
        before, after = (cost.decoding_cost for cost in (bench, serving))
        assert after.step.seconds(batch, 10) == pytest.approx(1.25 * before.step.seconds(batch, 10))
        assert after.encoder.seconds(batch, 10) == pytest.approx(1.25 * before.encoder.seconds(batch, 10))
    assert serving.overheads is not None
    assert serving.overheads.decision_s == bench.overheads.decision_s, "a decision is no cost of batches"


def test_a_profile_without_the_block_serves_as_it_is() -> None:
    plain = checked_profile(whole_profile())
    assert plain.serving is plain
    assert plain.in_bench is plain
    assert plain.service_level is None
    normal, lengths = np.random.default_rng(0).standard_normal(100), np.arange(1, 101)
    assert (plain.serving.execution_s(lengths, lengths, normal) == plain.execution_s(lengths, lengths, normal)).all()


def test_a_beams_steps_are_charged_in_service_too() -> None:
    beam = {"beam_overrun": {"kind": "measured", "steps_per_token": 1.5}}
    serving = checked_profile(whole_profile() | beam | {"in_service": service()}).serving
    assert serving.plane.s_per_tgt_token == pytest.approx(1.5 * serving.execution.plane.s_per_tgt_token)


def test_a_summary_shows_conditions_level_and_spread() -> None:
    shown = profile()
    lines = dict(facts(shown))
    assert lines["in service"].startswith("executions take 1.25 times as long as in the bench; measured: ")
    assert "1 % above 1.78" in lines["in service"]
    assert lines["in service holds for"] == (
        "Poisson arrivals of 12/s (idle 40 ms before an execution, load 0.40), lengths spread; 6 executions"
    )
    document = as_json(shown)
    assert document["service_level"] == pytest.approx(1.25)
    assert "samples" not in document["cost_models"]["in_service"]
    assert not any(doubt.source == "in_service" for doubt in profile_doubts(shown))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"heldout_error": 0.3}, "in_service: a held-out error of 30 %"),
        ({"short_over_plane": 1.3}, "in service: short targets take 1.3 times the plane"),
    ],
)
def test_measurements_in_service_that_do_not_hold_are_doubted(keys: dict[str, Any], message: str) -> None:
    doubts = profile_doubts(profile(**keys), ("in_service",))
    assert [message in doubt.message for doubt in doubts] == [True]
    assert not [doubt for doubt in profile_doubts(profile(**keys), ("step",)) if message in doubt.message]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"residual": {"shares": [0.0, 1.0], "factors": [0.5, 1.6]}}, "their mean is 1.05, and must be 1"),
        ({"residual": {"shares": [0.0, 1.0], "factors": [1.5, 0.5]}}, "no factor may be below the one before it"),
        ({"residual": {"shares": [0.1, 1.0], "factors": [0.5, 1.5]}}, "the first must be 0 and the last 1"),
        ({"residual": {"shares": [0.0, 0.5, 1.0], "factors": [0.5, 1.5]}}, "3 shares and 2 factors"),
        ({"conditions": {"rate_rps": None}}, "rate_rps: given with gaps poisson"),
        ({"conditions": {"gap_s": 0.1}}, "gap_s: given with gaps fixed"),
        ({"samples": []}, "in_service.samples: "),
        ({"conditions": {"loads": 1.0}}, "unknown key here (did you mean load?)"),
    ],
)
def test_a_block_that_cannot_be_is_refused_with_its_key(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError) as refused:
        profile(**keys)
    assert message in str(refused.value)
