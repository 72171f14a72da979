"""Top-up batching reproduced (`simnmt reproduce topup`): occupancies by lengths alone, and speeds on each device.

Shows FNI-10, 12, 14 and 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from simnmt.papers.fni import simulation
from simnmt.papers.fni.simulation import (
    NAMES,
    SETS,
    STRATEGIES,
    TOPUP,
    Device,
    Row,
    by_case,
    chosen_profiles,
    decoders,
    doubtful_profiles,
    gains,
    span,
)
from simnmt.papers.kit.claims import Claim, Effect, Facts, Result, Undecided, above, at_most, below, judge, of_paper
from simnmt.papers.kit.rendering import Report, grouped, record

PRINTED = TOPUP.table("occupancies")
WITH_FIGURE = [row for row in PRINTED.rows if row["published"] is not None]
NEAR_STATED, NEAR_PUBLISHED = 0.02, 0.04
"""Largest difference of a share from the stated mean over seeds and from the paper's figure (FNI-12)."""
NEAR_STEPS = 0.03
"""Largest relative difference from a number of steps that is stated as `about`."""
NEAR_MOMENT = 0.02
"""FNI-14's accept."""
MEASURES = {"full_share": "full", "below_8_share": "below 8", "mean_active": "mean active", "steps": "steps"}
"""Measures of an occupancy: shares of the steps, active sentences, number of steps."""


# The claims on lengths alone.


class Lengths(Facts):
    """The sets as drawn, and how full their batches are."""

    basis = "synthetic"

    def __init__(self, occupancies: pd.DataFrame, moments: Sequence[Row]) -> None:
        """Take the frames of `simulation.step_occupancy` and the rows of `drawn_moments`."""
        self.moments, self.by_cell = moments, _cells(occupancies)
        self.rows: dict[tuple[str, str, str], Row] = {}
        """Each of `MEASURES` of each set and strategy, beside the printed figures."""
        for key, strategy, measure in product(SETS, STRATEGIES, MEASURES):
            printed, values = PRINTED.row(key, strategy, measure), self.by_cell[key, strategy][measure]
            names = {"set": key, "strategy": strategy, "measure": measure}
            theirs = {name: printed.get(name) for name in ("published", "stated")}
            ours = {"ours": float(values.mean()), "least": float(values.min()), "greatest": float(values.max())}
            name = {"name": f"{SETS[key].name} {strategy}, {MEASURES[measure]}"}
            self.rows[key, strategy, measure] = names | name | theirs | ours

    def stated(self, measure: str) -> list[Row]:
        places = [(row["set"], row["strategy"], measure) for row in PRINTED.rows if row["measure"] == measure]
        return [self.rows[place] for place in places]


def _cells(occupancies: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    groups: Any = occupancies.groupby(["set", "strategy"], sort=False)
    return dict(iter(groups))


def drawn_moments(test_set: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Return mean and standard deviation of a set's source lengths as drawn, over seeds, beside the printed ones (FNI-14)."""
    drawn, printed = [simulation.lengths_of(test_set, seed)[0] for seed in seeds], SETS[test_set]
    return {
        "set": printed.name,
        "sentences": printed.sentences,
        "subwords": printed.subwords,
        "published_mean": printed.mean,
        "published_sd": printed.sd,
        "mean": float(np.mean([src_len.mean() for src_len in drawn])),
        "sd": float(np.mean([src_len.std() for src_len in drawn])),
    }


def _moments(lengths: Lengths) -> Result:
    off = {row["set"]: max(abs(row[key] / row[f"published_{key}"] - 1.0) for key in ("mean", "sd")) for row in lengths.moments}
    ours = "; ".join(f"{row['set']} {row['mean']:.2f} and {row['sd']:.2f}" for row in lengths.moments)
    return Result(off, ours, words=None, facts={"percent": 100 * max(off.values())})


def _near_printed(printed: Row, lengths: Lengths) -> Result:
    """Compare a share of steps with the paper's figure and with the stated one."""
    row = lengths.rows[printed["set"], printed["strategy"], printed["measure"]]
    from_stated, from_published = (abs(row["ours"] - row[key]) for key in ("stated", "published"))
    ours = f"{100 * row['ours']:.1f} % ({100 * row['least']:.1f} % to {100 * row['greatest']:.1f} % over seeds)"
    why = f"{100 * from_published:.1f} points from the paper, {100 * from_stated:.1f} from the known result of simulation"
    return Result(from_published <= NEAR_PUBLISHED and from_stated <= NEAR_STATED, ours, why)


def _figure_two(lengths: Lengths) -> Result:
    mini, maxi = (lengths.rows["europarl", strategy, "full_share"] for strategy in ("mini", "maxi"))
    off = abs(mini["ours"] - mini["stated"])
    mini_off, maxi_off = (abs(row["ours"] - maxi["published"]) for row in (mini, maxi))
    nearest = "maxi" if maxi_off < mini_off else "mini"
    holds = nearest == "maxi" and mini_off > NEAR_PUBLISHED and off <= NEAR_STATED
    return Result(holds, facts={"nearest": nearest, "off": 100 * off, "mini": 100 * mini["ours"], "maxi": 100 * maxi["ours"]})


def _hardly_few(lengths: Lengths) -> Result:
    few = {key: lengths.rows[key, "half-empty", "below_8_share"]["ours"] for key in SETS}
    means = lengths.stated("mean_active")
    ours = "; ".join(f"{SETS[row['set']].name} {100 * few[row['set']]:.1f} %, mean {row['ours']:.1f}" for row in means)
    return Result(
        max(few.values()) < 0.01 and all(abs(row["ours"] - row["stated"]) <= 100 * NEAR_STATED for row in means), ours
    )


def _as_many_steps(lengths: Lengths) -> Result:
    rows = lengths.stated("steps")
    off = {f"{SETS[row['set']].name}, {row['strategy']}": row["ours"] / row["stated"] - 1.0 for row in rows}
    worst = max(off, key=lambda name: abs(off[name]))
    ours = "; ".join(f"{SETS[row['set']].name} {row['strategy']} {row['ours']:,.0f}" for row in rows)
    return Result(abs(off[worst]), ours, f"furthest off: {worst}, {100 * off[worst]:+.1f} %")


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


# The claims on speeds.


def refill_limit(timed: pd.DataFrame, ours: tuple[int, str, str], theirs: tuple[int, str, str]) -> tuple[float | None, Any]:
    """Return the cost that may be added to each refill of `ours`, which tops up, until it is as slow as `theirs`; and by seed.

    With all sentences at hand the order of events does not depend on their costs, so a total time is linear in the cost of a
    refill and the limit is exact. Below 0: slower already. None: it refills no more often, so no cost of a refill decides.
    """
    (ours_s, refills), (theirs_s, less) = (timed.loc[[key]][["total_s", "refills"]].to_numpy().T for key in (ours, theirs))
    more = refills - less
    if more.min() <= 0:
        return None, None
    return float((theirs_s - ours_s).sum() / more.sum()), (theirs_s - ours_s) / more


@by_case()
def _refill_limits(device: Device, beam: int, test_set: str) -> tuple[str, Effect]:
    limits = [refill_limit(device.timed, *((beam, test_set, run) for run in pair)) for pair in (TOPPED_UP, WITH_MAXI)]
    texts = ["at no cost of a refill" if s is None else f"{1e3 * s:,.2f} ms more a refill" for s, _ in limits]
    (_, alone_s), (_, beside_s) = limits
    more = False if alone_s is None or beside_s is None else span(alone_s - beside_s.clip(min=0.0))
    return f"{texts[0]} alone, {texts[1]} with maxi", more


def _small_beams(device: Device) -> Result:
    """Compare the smallest with the largest beam that decide anything."""
    sound = [decoder for decoder in device.decoders if not device.undecided(decoder, "europarl")]
    if len(sound) < 2:
        reasons = dict.fromkeys(str(device.undecided(decoder, "europarl") or "") for decoder in device.decoders)
        raise Undecided("; ".join(filter(None, ["needs two beams of which enough was measured", *reasons])))
    first, last = sound[0], sound[-1]
    small, large = (device.gain(decoder.beam, "europarl", "half-empty", "maxi") for decoder in (first, last))
    gained = {first.beam: (str(small), span(small.by_seed)), last.beam: (str(large), span(small.by_seed - large.by_seed))}
    batches = f"batches of {first.batch} and of {last.batch}" if first.batch != last.batch else ""
    return device.by_case(lambda beam, key: gained[beam], EUROPARL, (first.beam, last.beam), lambda *at: None, batches)


EUROPARL, SUBTITLES = ("europarl",), ("opensubtitles",)
TOPPED_UP, WITH_MAXI = ("half-empty", "mini"), ("maxi half-empty", "maxi")
SPEED_CLAIMS: list[Claim[Device]] = of_paper(
    TOPUP,
    [
        Claim("FNI-16 (a)", value=gains(TOPPED_UP, refills=False), holds=above(0.0)),
        Claim(
            "FNI-16 (b)",
            value=gains(TOPPED_UP, WITH_MAXI, ours="{0.text} alone, {1.text} with maxi", refills=False),
            holds=above(0.0),
        ),
        Claim("FNI-16 (c)", value=gains(WITH_MAXI, sets=EUROPARL), holds=below(0.0)),
        Claim("FNI-16 (d)", value=_refill_limits, holds=above(0.0)),
        Claim("FNI-16 (e)", value=gains(WITH_MAXI, sets=SUBTITLES), holds=above(-0.01)),
        Claim("FNI-16 (f)", value=gains(("half-empty", "maxi"), sets=EUROPARL), holds=above(-0.03)),
        Claim("FNI-16 (g)", value=_small_beams, holds=above(0.0)),
        Claim("FNI-10", value=gains(("half-empty", "immediate")), holds=above(0.0)),
    ],
)


# The reproduction.


def reproduce(
    *,
    profile: Annotated[
        list[str] | None, typer.Option(metavar="FILE|@NAME", help="Use this instead of the shipped ones; repeatable.")
    ] = None,
    requests: Annotated[int | None, typer.Option(metavar="N", help="Sentences timed at most, of each set.")] = None,
    progress: simulation.Progress = lambda done, tasks: None,
) -> Report:
    """Simulate the paper's batches and time them on profiles, by default all shipped ones.

    Profiles without batched step costs are skipped. With few `requests` a set has fewer than `LEAST_BATCHES` batches, which
    decide no verdict; occupancies always cover the paper's whole sets. Raises `InputError` for too few requests.
    """
    simulation.check_requests(requests)
    groups = [*grouped(decoders(chosen_profiles(profile)), "device").values()]
    occupancies = [simulation.step_occupancy(key, strategy, simulation.SEEDS) for key in SETS for strategy in STRATEGIES]
    devices = []
    for done, group in enumerate(groups):
        progress(done, len(groups))
        devices.append(Device(group, simulation.speeds(group, STRATEGIES, requests), requests))
    return report_of(Lengths(pd.concat(occupancies), [drawn_moments(key, simulation.SEEDS) for key in SETS]), devices)


def report_of(lengths: Lengths, devices: Sequence[Device]) -> Report:
    known = [decoder for device in devices for decoder in device.decoders]
    speeds = simulation.speed_rows(devices, lambda run: "mini")
    active = _active_rows(lengths)
    keys = "device box=profile.device.name model=profile.model.name beam profile=profile.name batch kind=shown_kind"
    return Report(
        TOPUP,
        [*judge(LENGTH_CLAIMS, [lengths]), *judge(SPEED_CLAIMS, devices)],
        [
            TOPUP.shown_table("table-1", lengths.moments),
            TOPUP.shown_table("occupancies", [*lengths.rows.values()]),
            TOPUP.shown_table("active", active),
            simulation.speed_table("Speed with all sentences at hand (figures 6, 7)", speeds, "it"),
            TOPUP.shown_table("devices", [record(decoder, keys) for decoder in known]),
        ],
        [],
        [] if known else ["No device profile at hand has costs of decode steps and of the encoder: no speeds are known."],
        values={"seeds": len(simulation.SEEDS), "least_batches": simulation.LEAST_BATCHES},
        rows={"speeds": speeds},
        more={"doubts": doubtful_profiles(known)},
    )


def _active_rows(lengths: Lengths) -> list[Row]:
    return [
        {"set": key, "strategy": strategy, "name": NAMES.get(strategy, strategy)}
        | {"share_by_active": np.mean([*rows["share_by_active"]], axis=0).tolist()}
        for (key, strategy), rows in lengths.by_cell.items()
    ]
