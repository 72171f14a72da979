"""Speeds, what a refill may cost, and which profiles tell of batches, against what costs of a simple form imply."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simnmt.base.errors import InputError
from simnmt.papers.fni.devices import UNCHARGED, decoders, named_profiles, with_beam
from simnmt.papers.fni.offline import Speed, gain, lengths_of, refill_limit, speed, step_occupancy
from simnmt.profile.batch_cost import LinearSurface, TableSurface
from simnmt.profile.blocks import BeamOverrun
from simnmt.profile.profile_file import write_profile
from tests.papers.fni_stand_ins import BATCH, OVERHEADS, cost, decoder, profile

SENTENCES, SEEDS = 1_500, (1, 2)


def of(own: object, strategy: str) -> Speed:
    return speed(own, "opensubtitles", strategy, SEEDS, SENTENCES)  # type: ignore[arg-type]


def test_where_a_step_costs_the_same_whatever_its_batch_speed_is_a_matter_of_steps_alone() -> None:
    flat = decoder(cost(fixed_ms=10.0, row_ms=0.0))
    for strategy in ("half-empty", "immediate", "maxi"):
        steps = [step_occupancy("opensubtitles", each, SEEDS, SENTENCES, BATCH).steps[0] for each in ("mini", strategy)]
        assert gain(of(flat, strategy), of(flat, "mini")).mean == pytest.approx(steps[0] / steps[1] - 1.0, rel=1e-9)


def test_where_small_batches_waste_nothing_no_strategy_gains() -> None:
    linear = decoder(cost(fixed_ms=0.0, row_ms=1.0))
    assert of(linear, "immediate").total_s == pytest.approx(of(linear, "mini").total_s, rel=1e-9)


def test_a_speed_is_accounted_for_to_the_last_second() -> None:
    own = of(decoder(cost(10.0, 1.0, encode_ms=5.0, refill_ms=2.0)), "half-empty")
    assert own.encode_s + own.refill_s + own.decode_s == pytest.approx(sum(own.total_s), rel=1e-9)
    assert own.refill_s == pytest.approx(2e-3 * sum(own.refills), rel=1e-9)
    assert own.sentences_per_s == pytest.approx(2 * SENTENCES / sum(own.total_s))


def test_at_its_limit_of_a_refill_topping_up_is_exactly_as_fast() -> None:
    """The limit is a closed form; the server, asked again with that much dearer refills, must agree."""
    plain = cost(10.0, 1.0, encode_ms=5.0)
    cheap = decoder(plain)
    limit = refill_limit(of(cheap, "half-empty"), of(cheap, "mini"), cheap)
    assert limit.limit_s is not None and limit.limit_s > 0.0
    assert limit.limit_steps == pytest.approx(limit.limit_s / 0.026), "a step of 16 sentences"
    dear = decoder(replace(plain, refill_s_fixed=limit.limit_s))
    assert sum(of(dear, "half-empty").total_s) == pytest.approx(sum(of(dear, "mini").total_s), rel=1e-9)
    never = refill_limit(of(cheap, "mini"), of(cheap, "mini"), cheap)
    assert never.limit_s is None and never.limit_steps is None


def test_the_same_seed_gives_the_same_sentences() -> None:
    first, again, other = (lengths_of("europarl", seed, 50) for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert len(lengths_of("opensubtitles", 1)[0]) == 50_000


def test_a_beam_made_of_rows_costs_what_so_many_sentences_cost() -> None:
    plain = cost(10.0, 1.0)
    assert with_beam(plain, 5).steps_at(4)(0, 9) == pytest.approx(plain.steps_at(20)(0, 9))
    table = TableSurface(np.array([1.0, 10.0, 40.0]), np.array([0.0, 50.0]), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]]))
    tabled = replace(plain, step=replace(plain.step, surface=table), gap_s_per_sentence=0.1)
    assert with_beam(tabled, 5).steps_at(4)(3, 7) == pytest.approx(tabled.steps_at(20)(3, 7))
    sourced = replace(plain, src_len=10, s_per_row_src_token=1e-4)
    assert with_beam(sourced, 5).source_s(4, 30) == pytest.approx(sourced.source_s(20, 30)) == pytest.approx(0.04)
    assert with_beam(plain, 5).step.batch_range == (1, 25) and with_beam(plain, 5).beam == 5


def test_profiles_are_found_by_what_they_hold() -> None:
    profiles = [
        profile("plain", step=False),
        profile("alpha"),
        profile("named-by-nobody", beam=5, most=64),
        profile("beta", box="another box", most=64, overheads={}),
    ]
    by_beam = {(device.device, device.beam): device for device in decoders(profiles)}
    assert list(by_beam) == [("alpha", 1), ("alpha", 5), ("beta", 1), ("beta", 5)]
    assert not by_beam["alpha", 1].guessed and by_beam["alpha", 1].batch == 128
    five = by_beam["alpha", 5]
    assert (five.profile, five.guessed, five.batch) == ("named-by-nobody", False, 64)
    assert "batches of 64 sentences, no more were measured" in five.remarks
    guessed = by_beam["beta", 5]
    assert guessed.guessed and guessed.batch == 12
    assert "batches of 12 sentences: each takes 5 of the 64 rows measured with beam 1" in guessed.remarks
    assert by_beam["alpha", 1].refills_known and not by_beam["beta", 1].refills_known
    assert "join a batch was not measured" in " ".join(by_beam["beta", 1].remarks)
    assert "not measured" not in " ".join(by_beam["alpha", 1].remarks), "a measured 0 s is known"
    assert guessed.remarks[0] == "beam 5 from the steps of 5 times as many sentences with beam 1"
    for key in OVERHEADS:
        (partly, _) = decoders([profile("partly", overheads={key: 0.0})])
        assert not partly.refills_known, f"{key} alone is not all that topping up costs"


def test_a_beam_whose_steps_beyond_its_best_output_are_not_charged_says_so() -> None:
    """Whether it has a profile of its own that did not count them, or is made of beam 1; doubts are those of the profile."""
    beam_overrun = BeamOverrun(kind="measured", steps_per_token=1.3)
    counted = profile("counted", beam=5, box="c").model_copy(update={"beam_overrun": beam_overrun})
    uncounted = profile("uncounted", beam=5, box="u")
    remarked = {
        (each.device, each.beam): UNCHARGED in each.remarks for each in decoders([profile("plain"), counted, uncounted])
    }
    assert remarked == {("plain", 1): False, ("plain", 5): True, ("counted", 5): False, ("uncounted", 5): True}


def test_long_outputs_beyond_what_was_measured_count_where_a_step_changes_with_them() -> None:
    """A step that grows by a hundredth of itself with each position, measured up to the 51st token."""
    growing = replace(cost(10.0, 0.0).step, surface=LinearSurface(10e-3, 0.0, 1e-4, 0.0), length_range=(0, 50))
    own = decoder(replace(cost(10.0, 0.0), step=growing))
    assert own.prolonged("europarl") == pytest.approx(20.0 / 15.0 - 1.0) and own.extrapolates("europarl")
    assert own.prolonged("opensubtitles") == 0.0 and not own.extrapolates("opensubtitles")
    flat = decoder(replace(cost(10.0, 0.0), step=replace(cost(10.0, 0.0).step, length_range=(0, 50))))
    assert not flat.extrapolates("europarl")


def test_two_profiles_of_one_box_and_beam_are_two_devices_and_names_are_not_shared(tmp_path: Path) -> None:
    found = decoders([profile("before"), profile("after"), profile("five", beam=5)], beams=(1, 5))
    assert [(each.device, each.beam, each.guessed) for each in found] == [
        ("before", 1, False), ("before", 5, False), ("after", 1, False), ("after", 5, True),
    ]  # fmt: skip
    for file in ("one.json", "two.json"):
        write_profile(tmp_path / file, profile("twice"))
    with pytest.raises(InputError, match="a second profile named twice"):
        named_profiles([str(tmp_path / "one.json"), str(tmp_path / "two.json")])


def test_a_profile_that_tells_nothing_of_batches_is_refused_when_it_is_asked_for() -> None:
    with pytest.raises(InputError, match="no costs of decode steps"):
        named_profiles(["@tx2-gru"])
    with pytest.raises(InputError, match="did you mean @cpu1-gru"):
        named_profiles(["@cpu1-grue"])
