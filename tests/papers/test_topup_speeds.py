"""Speeds and limits of refills against closed forms, and the decoders that profiles give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simnmt.base.errors import InputError
from simnmt.base.random_streams import stream
from simnmt.batching import mini
from simnmt.devices.batch import decode_all
from simnmt.papers.fni.devices import UNCHARGED, Decoder, decoders, named_profiles, with_beam
from simnmt.papers.fni.offline import Speed, gain, lengths_of, refill_limit, speed, step_occupancy
from simnmt.papers.fni.online import HALVINGS, STEP, load_limits, p95_of_rate, rate_limit, rising_rates, run_sentences, solo_s
from simnmt.profile.blocks import BeamOverrun
from simnmt.profile.cost import CostTable
from simnmt.profile.profile_file import write_profile
from tests.papers.fni_stand_ins import BATCH, OVERHEADS, cost, decoder, profile

SENTENCES, SEEDS = 1_500, (1, 2)


def speed_with(device: Decoder, strategy: str) -> Speed:
    return speed(device, "opensubtitles", strategy, SEEDS, SENTENCES)


def test_speed_depends_on_the_number_of_steps_alone_if_every_step_costs_the_same() -> None:
    flat = decoder(cost(fixed_ms=10.0, row_ms=0.0))
    for strategy in ("half-empty", "immediate", "maxi"):
        steps = [step_occupancy("opensubtitles", key, SEEDS, SENTENCES, BATCH).steps[0] for key in ("mini", strategy)]
        assert gain(speed_with(flat, strategy), speed_with(flat, "mini")).mean == pytest.approx(
            steps[0] / steps[1] - 1.0, rel=1e-9
        )


def test_no_strategy_gains_if_a_step_is_proportional_to_its_batch() -> None:
    linear = decoder(cost(fixed_ms=0.0, row_ms=1.0))
    assert speed_with(linear, "immediate").total_s == pytest.approx(speed_with(linear, "mini").total_s, rel=1e-9)


def test_the_seconds_of_all_activities_sum_to_the_total() -> None:
    timed = speed_with(decoder(cost(10.0, 1.0, encode_ms=5.0, refill_ms=2.0)), "half-empty")
    assert timed.encode_s + timed.refill_s + timed.decode_s == pytest.approx(sum(timed.total_s), rel=1e-9)
    assert timed.refill_s == pytest.approx(2e-3 * sum(timed.refills), rel=1e-9)
    assert timed.sentences_per_s == pytest.approx(2 * SENTENCES / sum(timed.total_s))


def test_at_its_limit_of_a_refill_topping_up_is_exactly_as_fast() -> None:
    """The limit is a closed form; a server with refills dearer by the limit must agree."""
    plain = cost(10.0, 1.0, encode_ms=5.0)
    cheap = decoder(plain)
    limit = refill_limit(speed_with(cheap, "half-empty"), speed_with(cheap, "mini"), cheap)
    assert limit.limit_s is not None and limit.limit_s > 0.0
    assert limit.limit_steps == pytest.approx(limit.limit_s / 0.026), "a step of 16 sentences"
    dear = decoder(replace(plain, refill_s_fixed=limit.limit_s))
    assert sum(speed_with(dear, "half-empty").total_s) == pytest.approx(sum(speed_with(dear, "mini").total_s), rel=1e-9)
    never = refill_limit(speed_with(cheap, "mini"), speed_with(cheap, "mini"), cheap)
    assert never.limit_s is None and never.limit_steps is None


def test_a_beam_made_of_rows_costs_as_much_as_that_many_sentences() -> None:
    plain = cost(10.0, 1.0)
    assert with_beam(plain, 5).steps_at(4)(0, 9) == pytest.approx(plain.steps_at(20)(0, 9))
    table = CostTable.of((1, 10, 40), (0, 50), [[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]])
    tabled = replace(plain, step=table, gap_s_per_sentence=0.1)
    assert with_beam(tabled, 5).steps_at(4)(3, 7) == pytest.approx(tabled.steps_at(20)(3, 7))
    sourced = replace(plain, src_len=10, s_per_row_src_token=1e-4)
    assert with_beam(sourced, 5).source_s(4, 30) == pytest.approx(sourced.source_s(20, 30)) == pytest.approx(0.04)
    assert with_beam(plain, 5).step.batch_range == (1, 25) and with_beam(plain, 5).beam == 5


def test_profiles_of_one_box_and_model_give_one_decoder_per_beam() -> None:
    profiles = [
        profile("plain", step=False),
        profile("alpha"),
        profile("five-beams", beam=5, most=64),
        profile("beta", box="another box", most=64, overheads={}),
    ]
    by_beam = {(device.device, device.beam): device for device in decoders(profiles)}
    assert list(by_beam) == [("alpha", 1), ("alpha", 5), ("beta", 1), ("beta", 5)]
    assert not by_beam["alpha", 1].guessed and by_beam["alpha", 1].batch == 128
    five = by_beam["alpha", 5]
    assert (five.profile, five.guessed, five.batch) == ("five-beams", False, 64)
    assert "batches of 64 sentences, no more were measured" in five.remarks
    guessed = by_beam["beta", 5]
    assert guessed.guessed and guessed.batch == 12
    assert "batches of 12 sentences: each takes 5 of the 64 rows measured with beam 1" in guessed.remarks
    assert by_beam["alpha", 1].refills_known and not by_beam["beta", 1].refills_known
    assert "joining a batch was not measured" in " ".join(by_beam["beta", 1].remarks)
    assert "not measured" not in " ".join(by_beam["alpha", 1].remarks), "a measured 0 s is known"
    assert guessed.remarks[0] == "beam 5 from the steps of 5 times as many sentences with beam 1"
    for key in OVERHEADS:
        (partly, _) = decoders([profile("partly", overheads={key: 0.0})])
        assert not partly.refills_known, f"{key} alone is not the whole cost of topping up"


def test_a_beam_whose_steps_beyond_its_best_output_are_not_charged_has_a_remark() -> None:
    """Either its own profile does not count them, or it is made of beam 1; doubts are those of the profile."""
    beam_overrun = BeamOverrun(kind="measured", steps_per_token=1.3)
    counted = profile("counted", beam=5, box="c").model_copy(update={"beam_overrun": beam_overrun})
    uncounted = profile("uncounted", beam=5, box="u")
    remarked = {
        (device.device, device.beam): UNCHARGED in device.remarks for device in decoders([profile("plain"), counted, uncounted])
    }
    assert remarked == {("plain", 1): False, ("plain", 5): True, ("counted", 5): False, ("uncounted", 5): True}


def test_long_outputs_extrapolate_only_if_a_step_changes_with_the_position() -> None:
    """A step that grows by a hundredth with each position, measured up to the 51st token."""
    growing = CostTable.of_line((1, 128), (0, 50), 10e-3, 0.0, 1e-4)
    device = decoder(replace(cost(10.0, 0.0), step=growing))
    assert device.prolonged("europarl") == pytest.approx(20.0 / 15.0 - 1.0) and device.extrapolates("europarl")
    assert device.prolonged("opensubtitles") == 0.0 and not device.extrapolates("opensubtitles")
    flat = decoder(replace(cost(10.0, 0.0), step=CostTable.of((1, 128), (0, 50), 10e-3)))
    assert not flat.extrapolates("europarl")


def test_two_profiles_of_one_box_and_beam_are_two_devices_with_distinct_names(tmp_path: Path) -> None:
    devices = decoders([profile("before"), profile("after"), profile("five", beam=5)], beams=(1, 5))
    assert [(device.device, device.beam, device.guessed) for device in devices] == [
        ("before", 1, False), ("before", 5, False), ("after", 1, False), ("after", 5, True),
    ]  # fmt: skip
    for file in ("one.json", "two.json"):
        write_profile(tmp_path / file, profile("twice"))
    with pytest.raises(InputError, match="two profiles of twice"):
        named_profiles([str(tmp_path / "one.json"), str(tmp_path / "two.json")])


NEAR = STEP ** (0.5**HALVINGS)
"""Factor within which a load is known."""


def hyperbola(rate: float) -> float:
    """Return the latency of a queue that takes 1 s alone and is infinite at 10 a second."""
    return 10.0 / (10.0 - rate) if rate < 10.0 else float("inf")


def test_the_load_is_where_the_p95_crosses_its_bound() -> None:
    rates, p95s = rising_rates([hyperbola], 0.5, 50.0, 20.0)
    assert rates[1] == pytest.approx(STEP * rates[0]) and p95s[-1] > 50.0 >= p95s[-2]
    limit = rate_limit(hyperbola, rates, 4.0)
    assert not limit.saturated and not limit.dips
    assert limit.rate <= 7.5 < limit.rate * NEAR, "10 / (10 - 7.5) = 4"


def test_a_p95_that_dips_holds_up_to_its_last_crossing() -> None:
    def dips(rate: float) -> float:
        return 5.0 if rate < 2.0 else hyperbola(rate)

    rates, _ = rising_rates([dips], 0.5, 50.0, 20.0)
    limit = rate_limit(dips, rates, 4.0)
    assert limit.rate * NEAR > 7.5 and limit.dips


def test_a_p95_that_never_holds_gives_zero_and_one_that_always_holds_gives_the_capacity() -> None:
    rates, _ = rising_rates([hyperbola], 0.5, 50.0, 20.0)
    assert rate_limit(hyperbola, rates, 0.9) == (0.0, False, False)
    rates, p95s = rising_rates([lambda rate: 0.1], 0.5, 50.0, 20.0)
    assert rates[-1] == 20.0 and len(rates) == len(p95s)
    assert rate_limit(lambda rate: 0.1, rates, 0.9) == (20.0, True, False)


def test_no_load_counts_beyond_the_capacity_with_all_sentences_at_hand() -> None:
    """One at a time, a step of 10 ms: 100 tokens a second. A run that ends could hold any p95 at any load."""
    curves, limits = load_limits(decoder(cost(10.0, 0.0)), "opensubtitles", [60.0], (1,), 300)
    (curve,) = (curve for curve in curves if curve.strategy == "single")
    (single,) = (limit for limit in limits if limit.strategy == "single")
    tokens = lengths_of("opensubtitles", 1, 1_200)[1].mean()
    assert curve.capacity_rps == pytest.approx(100.0 / tokens) and max(curve.rate_rps) == curve.capacity_rps
    assert single.up_to_rps == (curve.capacity_rps,) and single.saturated
    assert (curve.beam, single.beam) == (1, 1)


def test_the_first_tenth_of_a_run_does_not_count() -> None:
    device = decoder(cost(10.0, 0.0))
    arrival_s = np.cumsum(stream(1, 0, "topup arrivals opensubtitles").standard_exponential(200)) / 50.0
    finish_s = decode_all(mini(1, 0.0), device.cost, *lengths_of("opensubtitles", 1, 200), arrival_s).finish_s
    run = p95_of_rate(device, mini(1, 0.0), "opensubtitles", 1, 200)
    assert run(50.0) == pytest.approx(np.quantile((finish_s - arrival_s)[20:], 0.95))
    assert run_sentences(128) * 0.9 > 40 * 128 and run_sentences(1) == 1_500 and run_sentences(128, 700) == 700


def test_topping_up_carries_far_more_than_single_sentences_if_larger_batches_cost_nothing() -> None:
    """Steps cost the same at any batch: a server of 16 slots against a server of one slot."""
    device = decoder(cost(10.0, 0.0))
    curves, limits = load_limits(device, "opensubtitles", None, (1,), 300)
    load_rps = {(limit.strategy, round(limit.over_solo)): limit.estimate.mean for limit in limits}
    assert solo_s(device, "opensubtitles") == pytest.approx(0.1), "a mean sentence takes ten steps"
    assert load_rps["half-empty", 8] > 4 * load_rps["single", 8] > 0.0
    assert load_rps["single", 3] < load_rps["single", 8] < 1.1 / 0.1, "the capacity of one slot"
    assert {curve.strategy for curve in curves} == {"single", "mini", "maxi", "half-empty", "immediate"}
    for curve in curves:
        assert curve.p95_ms[-1] > 1.5 * 800.0 >= curve.p95_ms[-2] or curve.rate_rps[-1] == curve.capacity_rps


def test_a_given_p95_is_the_only_bound() -> None:
    _, limits = load_limits(decoder(cost(10.0, 0.0)), "opensubtitles", [0.5], (1,), 200)
    assert {limit.p95_ms for limit in limits} == {500.0} and len(limits) == 5
    assert all(limit.estimate.low is None for limit in limits), "one seed shows no spread"
