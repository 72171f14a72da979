"""Top-up batching: speeds against closed forms, claims that hold on the paper's figures alone, and the whole in small."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simnmt.base.errors import InputError
from simnmt.papers.fni import simulation
from simnmt.papers.fni.simulation import SETS, STRATEGIES, Decoder, Device, chosen_profiles, decoders, speeds, step_occupancy
from simnmt.papers.fni.topup import LENGTH_CLAIMS, MEASURES, PRINTED, SPEED_CLAIMS, Lengths, refill_limit, reproduce
from simnmt.papers.kit.claims import ClaimRecord, judge
from simnmt.papers.kit.rendering import Report
from simnmt.profile.cost import DecodingCost
from simnmt.profile.device_profile import write_profile
from tests.papers.fni_stand_ins import profile, timed, written
from tests.profile.made_profile import line_table
from tests.world.batched_worlds import cost

SENTENCES, BATCH = 1_500, 16
PAPER = {
    ("europarl", 1): {"half-empty": 0.89, "maxi": 0.91, "maxi half-empty": 0.95, "immediate": 0.93},
    ("europarl", 5): {"half-empty": 0.92, "maxi": 0.91, "maxi half-empty": 1.05, "immediate": 0.96},
    ("opensubtitles", 1): {"half-empty": 0.89, "maxi": 0.9, "maxi half-empty": 0.895, "immediate": 0.95},
    ("opensubtitles", 5): {"half-empty": 0.95, "maxi": 0.9, "maxi half-empty": 0.9, "immediate": 0.98},
}
"""Total times over those of mini-batching for which all statements of the paper's text hold."""


def decoder(costs: DecodingCost) -> Decoder:
    (known,) = decoders([profile("box")])
    return replace(known, cost=costs, batch=BATCH)


def costs(fixed_ms: float, row_ms: float, encode_ms: float = 0.0, refill_s: float = 0.0) -> DecodingCost:
    return cost((1e-3 * fixed_ms, 1e-3 * row_ms, 0.0, 0.0), (1e-3 * encode_ms, 0.0, 0.0, 0.0), (0.0, 0.0), (refill_s, 0.0))


def on(costs: DecodingCost) -> Device:
    made = decoder(costs)
    return Device([made], speeds([made], STRATEGIES, SENTENCES))


def gain(device: Device, ours: str, theirs: str = "mini") -> Any:
    return device.gain(1, "opensubtitles", ours, theirs)


def limit(device: Device, ours: str) -> Any:
    return refill_limit(device.timed, (1, "opensubtitles", ours), (1, "opensubtitles", "mini"))


def test_speed_depends_on_the_number_of_steps_alone_if_every_step_costs_the_same() -> None:
    flat = on(costs(10.0, 0.0))
    for strategy in ("half-empty", "immediate", "maxi"):
        mini, other = (
            step_occupancy("opensubtitles", name, (1, 2), SENTENCES, BATCH).steps.sum() for name in ("mini", strategy)
        )
        assert gain(flat, strategy).mean == pytest.approx(mini / other - 1.0, rel=1e-9)


def test_at_its_limit_of_a_refill_topping_up_is_exactly_as_fast() -> None:
    """The limit is a closed form; a server with refills dearer by the limit must agree."""
    limit_s, by_seed_s = limit(on(costs(10.0, 1.0, 5.0)), "half-empty")
    assert limit_s is not None and min(by_seed_s) <= limit_s <= max(by_seed_s)
    dear = on(costs(10.0, 1.0, 5.0, limit_s))
    assert gain(dear, "half-empty").mean == pytest.approx(0.0, abs=1e-9)
    assert limit(dear, "mini")[0] is None


def test_profiles_of_one_box_and_model_are_one_device_with_a_decoder_per_measured_beam(tmp_path: Path) -> None:
    profiles = [
        profile("plain", step=None),
        profile("five", beam=5),
        profile("alpha"),
        profile("again"),
        profile("beta", box="another box", overheads={}),
    ]
    known = decoders(profiles)
    assert [(decoder.device, decoder.beam, decoder.profile.name) for decoder in known] == [
        ("five", 1, "alpha"), ("five", 5, "five"), ("again", 1, "again"), ("beta", 1, "beta"),
    ]  # fmt: skip
    assert [decoder.refills_known for decoder in known] == [True, True, True, False]
    for file in ("one.json", "two.json"):
        write_profile(tmp_path / file, profile("twice"))
    with pytest.raises(InputError, match="two profiles of twice"):
        chosen_profiles([str(tmp_path / "one.json"), str(tmp_path / "two.json")])


def test_long_outputs_extrapolate_only_if_a_step_changes_with_the_position() -> None:
    def of_slope(s_per_token: float) -> Decoder:
        growing = cost((10e-3, 0.0, s_per_token, 0.0), gap_s=(0.0, 0.0))
        return decoder(replace(growing, step=line_table((1, 129), (0, 50), 10e-3, 0.0, s_per_token)))

    assert of_slope(1e-4).prolonged("europarl") == pytest.approx(20.0 / 15.0 - 1.0) and of_slope(1e-4).extrapolates("europarl")
    assert not of_slope(1e-4).extrapolates("opensubtitles") and not of_slope(0.0).extrapolates("europarl")


def lengths(changed: Mapping[tuple[str, str, str], float] | None = None, sd: float = 6.1) -> Lengths:
    """Return every occupancy as the paper prints it, else as it is stated."""
    values = {(row["set"], row["strategy"], row["measure"]): row["stated"] for row in PRINTED.rows} | dict(changed or {})
    rows = [
        {"set": name, "strategy": strategy, "seed": 1, "share_by_active": [1.0]}
        | {measure: values.get((name, strategy, measure), 0.5) for measure in MEASURES}
        for name in SETS
        for strategy in STRATEGIES
    ]
    moments = [
        {"set": printed.name, "published_mean": printed.mean, "published_sd": printed.sd, "mean": printed.mean}
        | {"sd": sd if printed.set == "opensubtitles" else printed.sd, "sentences": 1, "subwords": 1}
        for printed in SETS.values()
    ]
    return Lengths(pd.DataFrame(rows), moments)


def verdicts(records: list[ClaimRecord]) -> dict[str, str]:
    return {record.identifier: record.verdict for record in records}


@pytest.mark.parametrize(
    ("letter", "place", "value"),
    [
        ("a", ("europarl", "maxi", "full_share"), 0.447),  # 2.2 points from the stated figure
        ("b", ("europarl", "maxi", "below_8_share"), 0.17),
        ("c", ("opensubtitles", "mini", "below_8_share"), 0.455),  # 4.5 from the paper
        ("d", ("europarl", "mini", "full_share"), 0.40),  # figure 2 might then be of mini-batching
        ("d", ("europarl", "mini", "full_share"), 0.09),  # 2.1 points from the stated figure
        ("e", ("opensubtitles", "half-empty", "below_8_share"), 0.012),
        ("e", ("europarl", "half-empty", "mean_active"), 95.0),
        ("f", ("europarl", "immediate", "steps"), 6_700.0),
    ],
)
def test_an_occupancy_claim_fails_if_its_figure_is_changed(letter: str, place: tuple[str, str, str], value: float) -> None:
    assert verdicts(judge(LENGTH_CLAIMS, [lengths({place: value})]))[f"FNI-12 ({letter})"] == "does not hold"


def device(
    changed: Mapping[tuple[str, int, str], float | tuple[float, float]] | None = None,
    sentences: int | None = None,
    **profile_changes: Any,
) -> Device:
    """Return the speeds of `PAPER` with these changes, on a box with two measured beams."""
    known = decoders([profile("box", **profile_changes), profile("five", beam=5, **profile_changes)])
    totals = {
        (beam, name, strategy): (changed or {}).get((name, beam, strategy), total)
        for (name, beam), totals in PAPER.items()
        for strategy, total in ({"mini": 1.0} | totals).items()
    }
    refills = {"half-empty": 40, "maxi half-empty": 40, "immediate": 400}
    return Device(known, timed(totals, refills), sentences)


@pytest.mark.parametrize(
    ("bare", "changed"),
    [
        ("FNI-16 (a)", {("opensubtitles", 5, "half-empty"): 1.01}),
        ("FNI-16 (b)", {("opensubtitles", 1, "maxi half-empty"): 0.70}),
        ("FNI-16 (c)", {("europarl", 1, "maxi half-empty"): 0.90}),
        ("FNI-16 (d)", {("europarl", 1, "maxi half-empty"): 0.80}),  # it bears a dearer refill with maxi than alone
        ("FNI-16 (e)", {("opensubtitles", 5, "maxi half-empty"): 0.92}),
        ("FNI-16 (f)", {("europarl", 5, "half-empty"): 0.95}),
        ("FNI-16 (g)", {("europarl", 5, "half-empty"): 0.88}),
        ("FNI-16 (g)", {("europarl", 1, "half-empty"): 0.915}),  # slower than maxi-batching, however fast beside mini
        ("FNI-10", {("europarl", 1, "immediate"): 0.88}),
    ],
)
def test_a_claim_on_speed_fails_if_one_total_is_changed(bare: str, changed: dict[tuple[str, int, str], float]) -> None:
    assert verdicts(judge(SPEED_CLAIMS, [device(changed)]))[bare] == "does not hold"


def test_seeds_with_different_signs_give_no_verdict() -> None:
    (alone, *_) = judge(SPEED_CLAIMS, [device({("europarl", 1, "half-empty"): (0.9, 1.021)})])
    assert (alone.identifier, alone.verdict) == ("FNI-16 (a)", "not distinguishable")
    assert "unclear with Europarl, beam 1" in alone.why


def test_refill_costs_that_were_not_measured_decide_nothing() -> None:
    outcomes = verdicts(judge(SPEED_CLAIMS, [device(overheads={})]))
    assert {bare for bare, verdict in outcomes.items() if verdict == "not measurable here"} == {
        *(f"FNI-16 ({letter})" for letter in "cdefg"), "FNI-10",
    }  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def small_sizes() -> Iterator[None]:
    """Use one seed of a fifth of the paper's sets, whose occupancies are within the claims' bounds."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(simulation, "SEEDS", (1,))
        patched.setattr(simulation, "SENTENCES", {"europarl": 6_000, "opensubtitles": 10_000})
        yield


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    profiles = [profile("box"), profile("five", beam=5)]
    return reproduce(profile=written(tmp_path_factory.mktemp("profiles"), *profiles), requests=120)
