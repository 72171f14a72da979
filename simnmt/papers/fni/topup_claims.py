"""The claims on top-up batching: occupancies by lengths alone, and speeds on each device (FNI-10, 12, 14, 16)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simnmt.papers.fni import simulation
from simnmt.papers.fni.cases import Case, DeviceFacts, result_of
from simnmt.papers.fni.published import SETS, TOPUP, case_name
from simnmt.papers.fni.simulation import Key
from simnmt.papers.kit.claims import Claim, Facts, Result, Undecided, above, at_most, below, of_paper

Row = Mapping[str, Any]
PRINTED = TOPUP.table("occupancies")
NEAR_STATED, NEAR_PUBLISHED = 0.02, 0.04
"""Largest difference of a share from the stated mean over seeds and from the paper's figure (FNI-12)."""
NEAR_STEPS = 0.03
"""Largest relative difference from a number of steps that is stated as `about`."""
NEAR_MOMENT = 0.02
"""FNI-14's accept."""


@dataclass(frozen=True)
class Lengths(Facts):
    """The sets as drawn, and how full their batches are."""

    occupancies: pd.DataFrame
    """See `simulation.step_occupancy`."""
    moments: Sequence[Row]
    """See `simulation.drawn_moments`."""
    basis = "synthetic"

    def by_seed(self, test_set: str, strategy: str, measure: str) -> pd.Series:
        """Return one of `simulation.MEASURES` by seed."""
        rows = self.occupancies
        values: pd.Series = rows.loc[(rows.set == test_set) & (rows.strategy == strategy), measure]
        return values

    def mean(self, test_set: str, strategy: str, measure: str) -> float:
        """Return one of `simulation.MEASURES`, mean over seeds."""
        return float(self.by_seed(test_set, strategy, measure).mean())

    def stated(self, measure: str) -> list[tuple[str, str, float, float]]:
        """Return set, strategy, our mean and the stated value of each printed row of a measure."""
        rows = [(row["set"], row["strategy"], row["stated"]) for row in PRINTED.rows if row["measure"] == measure]
        return [(key, strategy, self.mean(key, strategy, measure), stated) for key, strategy, stated in rows]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _moments(lengths: Lengths) -> Result:
    off = {
        row["set"]: max(abs(row["mean"] / row["published_mean"] - 1.0), abs(row["sd"] / row["published_sd"] - 1.0))
        for row in lengths.moments
    }
    worst = max(off, key=lambda name: off[name])
    ours = "; ".join(f"{row['set']} {row['mean']:.2f} and {row['sd']:.2f}" for row in lengths.moments)
    why = f"at most {100 * off[worst]:.1f} % off, on {worst}; drawn log-normal, the paper's sentences are not at hand"
    return Result(off, ours, why, words=None)


def _near_printed(row: Row, lengths: Lengths) -> Result:
    """Compare a share of steps with the paper's figure and with the stated one."""
    values = lengths.by_seed(row["set"], row["strategy"], row["measure"])
    from_stated, from_published = (abs(values.mean() - row[key]) for key in ("stated", "published"))
    why = f"{100 * from_published:.1f} points from the paper, {100 * from_stated:.1f} from the {_percent(row['stated'])} that "
    why += "simulation of such lengths is known to give, of which 2 are allowed"
    ours = f"{_percent(values.mean())} ({_percent(values.min())} to {_percent(values.max())} over seeds)"
    return Result(from_published <= NEAR_PUBLISHED and from_stated <= NEAR_STATED, ours, why)


def _figure_two(lengths: Lengths) -> Result:
    printed, stated = (
        PRINTED["europarl", "maxi", "full_share", "published"],
        PRINTED["europarl", "mini", "full_share", "stated"],
    )
    full = {strategy: lengths.mean("europarl", strategy, "full_share") for strategy in ("mini", "maxi")}
    off, nearest = abs(full["mini"] - stated), min(full, key=lambda strategy: abs(full[strategy] - printed))
    ours = f"full with maxi-batching {_percent(full['maxi'])}, with mini-batching {_percent(full['mini'])}"
    why = f"{nearest}-batching comes nearest; mini-batching is {100 * off:.1f} points from the stated figure"
    holds = nearest == "maxi" and abs(full["mini"] - printed) > NEAR_PUBLISHED and off <= NEAR_STATED
    return Result(holds, ours, why)


def _hardly_few(lengths: Lengths) -> Result:
    few_of = {key: lengths.mean(key, "half-empty", "below_8_share") for key in SETS}
    cells = [(key, few_of[key], mean, stated) for key, _, mean, stated in lengths.stated("mean_active")]
    ours = "; ".join(f"{SETS[key].name} {_percent(few)}, mean {mean:.1f}" for key, few, mean, _ in cells)
    holds = all(few < 0.01 and abs(mean - stated) <= 100 * NEAR_STATED for _, few, mean, stated in cells)
    return Result(holds, ours, "the steps that remain with few are the last ones, when nothing is left to refill with")


def _as_many_steps(lengths: Lengths) -> Result:
    cells = lengths.stated("steps")
    off = {f"{SETS[key].name}, {strategy}": steps / stated - 1.0 for key, strategy, steps, stated in cells}
    worst = max(off, key=lambda name: abs(off[name]))
    ours = "; ".join(f"{SETS[key].name} {strategy} {steps:,.0f}" for key, strategy, steps, _ in cells)
    return Result(abs(off[worst]), ours, f"furthest off: {worst}, {100 * off[worst]:+.1f} %")


WITH_FIGURE = [row for row in PRINTED.rows if row["published"] is not None]
LENGTH_CLAIMS: list[Claim[Lengths]] = of_paper(
    TOPUP,
    [
        Claim("FNI-14", value=_moments, holds=at_most(NEAR_MOMENT)),
        *(
            Claim(f"FNI-12 ({letter})", value=partial(_near_printed, row))
            for letter, row in zip("abc", WITH_FIGURE, strict=True)
        ),
        Claim("FNI-12 (d)", value=_figure_two),
        Claim("FNI-12 (e)", value=_hardly_few),
        Claim("FNI-12 (f)", value=_as_many_steps, holds=at_most(NEAR_STEPS)),
    ],
)


def _gains(
    ours: str, theirs: str, sets: Collection[str] = tuple(SETS), *, refills: bool = True
) -> Callable[[DeviceFacts], Result]:
    """Return what measures one strategy's gain over another."""

    def value(speeds: DeviceFacts) -> Result:
        def case(beam: int, test_set: str) -> Case:
            gained = speeds.gain(beam, test_set, ours, theirs)
            return gained.percent(), gained.by_seed.tolist()

        return speeds.by_case(case, sets, undecided=partial(speeds.undecided, refills=refills))

    return value


def _advantages(speeds: DeviceFacts) -> Result:
    def case(beam: int, test_set: str) -> Case:
        alone = speeds.gain(beam, test_set, "half-empty", "mini")
        beside = speeds.gain(beam, test_set, "maxi half-empty", "maxi")
        text = f"{100 * alone.mean:+.1f} % alone, {100 * beside.mean:+.1f} % with maxi"
        return text, (alone.by_seed - beside.by_seed).tolist()

    return speeds.by_case(case, undecided=partial(speeds.undecided, refills=False))


def _refill_limits(speeds: DeviceFacts) -> Result:
    def limit(beam: int, test_set: str, *both: str) -> tuple[str, NDArray[np.float64] | None]:
        keys: list[Key] = [(speeds.device, beam, test_set, strategy, False) for strategy in both]
        limit_s, by_seed_s = simulation.refill_limit(speeds.timed, *keys)
        text = "at no cost of a refill" if limit_s is None else f"{1e3 * limit_s:,.2f} ms more a refill"
        return text, None if limit_s is None else by_seed_s

    def case(beam: int, test_set: str) -> Case:
        alone, alone_s = limit(beam, test_set, "half-empty", "mini")
        beside, beside_s = limit(beam, test_set, "maxi half-empty", "maxi")
        more = False if alone_s is None or beside_s is None else (alone_s - beside_s.clip(min=0.0)).tolist()
        return f"{alone} alone, {beside} with maxi", more

    return speeds.by_case(case, undecided=speeds.undecided)


def _small_beams(speeds: DeviceFacts) -> Result:
    """Compare the smallest with the largest beam that decide anything."""
    gains = {decoder.beam: speeds.gain(decoder.beam, "europarl", "half-empty", "maxi") for decoder in speeds.decoders}
    reasons = {decoder.beam: speeds.undecided(decoder, "europarl") for decoder in speeds.decoders}
    sound = [decoder for decoder in speeds.decoders if not reasons[decoder.beam]]
    names = {beam: case_name(beam, "europarl") for beam in gains}
    if len(sound) < 2:
        missing = Undecided("needs two beams of which enough was measured")
        judged: dict[str, Case] = {names[beam]: (gained.percent(), False) for beam, gained in gains.items()}
        return result_of(judged, {names[beam]: reason or missing for beam, reason in reasons.items()})
    first, last = sound[0], sound[-1]
    small, large = gains[first.beam], gains[last.beam]
    judged = {
        names[first.beam]: (small.percent(), small.by_seed.tolist()),
        names[last.beam]: (large.percent(), (small.by_seed - large.by_seed).tolist()),
    }
    return result_of(judged, {}, f"batches of {first.batch} and of {last.batch}" if first.batch != last.batch else "")


EUROPARL, SUBTITLES = ("europarl",), ("opensubtitles",)
SPEED_CLAIMS: list[Claim[DeviceFacts]] = of_paper(
    TOPUP,
    [
        Claim("FNI-16 (a)", value=_gains("half-empty", "mini", refills=False), holds=above(0.0)),
        Claim("FNI-16 (b)", value=_advantages, holds=above(0.0)),
        Claim("FNI-16 (c)", value=_gains("maxi half-empty", "maxi", EUROPARL), holds=below(0.0)),
        Claim("FNI-16 (d)", value=_refill_limits, holds=above(0.0)),
        Claim("FNI-16 (e)", value=_gains("maxi half-empty", "maxi", SUBTITLES), holds=above(-0.01)),
        Claim("FNI-16 (f)", value=_gains("half-empty", "maxi", EUROPARL), holds=above(-0.03)),
        Claim("FNI-16 (g)", value=_small_beams, holds=above(0.0)),
        Claim("FNI-10", value=_gains("half-empty", "immediate"), holds=above(0.0)),
    ],
)
