"""Sentences decoded in batches: devices, plain and with a fused output layer, occupancies and speeds (FNI-12 to 17)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.base.random_streams import stream
from simnmt.batching import Batching, half_empty, immediate, maxi, mini, top_up
from simnmt.papers.kit.claims import Effect, Facts, Result, Undecided
from simnmt.papers.kit.paper import read_paper
from simnmt.papers.kit.rendering import grouped
from simnmt.papers.kit.study import read_distinct
from simnmt.profile.blocks import ProfileError
from simnmt.profile.cost import CostTable, DecodingCost
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile, read_profile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.profile_variant import DecoderChoice, with_decoder
from simnmt.report.table import Column, Table
from simnmt.results.run import group_doubts
from simnmt.results.statistics import Estimate
from simnmt.workload.lengths import MIXES, SENTENCES
from simnmt.world.engine import decode_all

TOPUP, FUSED = read_paper("topup"), read_paper("fused")
BATCH, COLLECTED, BEAM, VOCAB = (TOPUP[name] for name in ("batch", "collected", "beam", "vocab"))
SETS = {row["set"]: SimpleNamespace(**row) for row in TOPUP.table("table-1").rows}
"""Table 1 by set: name, sentences, subwords, and their mean and standard deviation a sentence."""
BEAMS = (1, BEAM)
LONG_OUTPUT = {"europarl": 100, "opensubtitles": 40}
"""Tokens of a long output. About one sentence in three hundred is longer, so a batch that is topped up usually holds one."""
MOST_PROLONGED = 0.10
"""Largest relative change of a full batch's step from the last measured position to that of a long output."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """One device with one model and one measured beam."""

    device: str
    """Name of the device's first profile."""
    profile: DeviceProfile
    cost: DecodingCost
    batch: int
    """Sentences of a mini-batch: the paper's, or the largest measured batch if that is smaller."""
    doubts: tuple[str, ...] = ()
    """Reasons to doubt the step costs."""
    choice: DecoderChoice | None = None
    """Stages of a decoder with or without the fused output layer; None: the profile's decoder as it is."""

    @property
    def fused(self) -> bool:
        return self.choice is not None and self.choice.settings.fused

    @property
    def beam(self) -> int:
        return self.cost.beam

    @property
    def kind(self) -> str:
        """Origin of the step costs: measured, inferred or synthetic."""
        assert self.profile.step is not None, "its cost was computed"
        return self.profile.step.kind

    @property
    def shown_kind(self) -> str:
        """`kind` for readers: `measured, doubtful` if the profile has warnings."""
        return f"{self.kind}, doubtful" if self.doubts else self.kind

    @property
    def refills_known(self) -> bool:
        """True if both costs of topping up were measured: of joining a batch, and of each sentence between two steps."""
        names = ("step_gap_s_per_sentence", "refill_s_fixed", "refill_s_per_sentence")
        gap, *joining = (name in self.profile.overheads_s for name in names)
        return gap and any(joining)

    def prolonged(self, test_set: str) -> float:
        """Return the relative change of a full batch's step from the last measured position to that of a long output."""
        last, long = self.cost.step.length_range[1], LONG_OUTPUT[test_set]
        seconds = self.cost.steps_at(self.batch)
        return 0.0 if long <= last else seconds(long, long) / seconds(last, last) - 1.0

    def extrapolates(self, test_set: str) -> bool:
        """Return whether figures on a test set rest on more than measured costs."""
        return abs(self.prolonged(test_set)) > MOST_PROLONGED


def case_name(beam: int, test_set: str) -> str:
    return f"{SETS[test_set].name}, beam {beam}"


def chosen_profiles(names: Sequence[str] | None) -> list[DeviceProfile]:
    """Read profiles by file or `@name`, by default all shipped ones; raise `InputError` for a repeated name."""
    paths = (
        shipped_files.find("calibration", name) if not names or name.startswith("@") else Path(name)
        for name in names or shipped_files.names("calibration")
    )
    return read_distinct(paths, read_profile, lambda profile: profile.name, "profiles")


def decoders(profiles: Sequence[DeviceProfile]) -> list[Decoder]:
    """Return one decoder per profile with batched step costs, device by device and with rising beam.

    Profiles of one box and model with different beams are one device, named after the first of them.
    """
    devices: dict[str, dict[int, Decoder]] = {}
    for profile in profiles:
        try:
            cost = profile.decoding_cost
        except ProfileError:
            continue
        engine = profile.engine
        engine_key = engine and (engine.backend, engine.compute_type, engine.threads, engine.architecture)
        # A second profile of the same beam is a separate device, even if it names the same box.
        place = 0
        while cost.beam in devices.get(key := repr((profile.device.name, profile.model.name, engine_key, place)), {}):
            place += 1
        device = devices.setdefault(key, {})
        name = next((decoder.device for decoder in device.values()), profile.name)
        device[cost.beam] = Decoder(name, profile, cost, min(BATCH, cost.most_batch), _doubts(profile))
    return [device[beam] for device in devices.values() for beam in sorted(device)]


def fused_decoders(profiles: Sequence[DeviceProfile]) -> tuple[list[Decoder], list[str]]:
    """Return the plain and the fused decoder per profile and beam, and messages about the profiles without both.

    Batches are the paper's, or of the most sentences that the variants were measured with.
    """
    known, not_fused, left_out = list[Decoder](), list[str](), list[str]()
    for profile in profiles:
        if profile.decoder is None or not any(variant.fused for variant in profile.decoder.measured):
            not_fused.append(profile.name)
            continue
        for beam in BEAMS:
            settings = [DecoderSettings(beam=beam, fused=fused, candidates=None) for fused in (False, True)]
            try:
                variants = [with_decoder(profile, variant) for variant in settings]
                costs = [moved.decoding_cost for moved, _ in variants]
            except ProfileError as error:
                left_out.append(f"Left out: {profile.name}, beam {beam}: {error.what}.")
                continue
            # The steps of the base may be known for larger batches than the variants, and batches decide speeds.
            batch = min(BATCH, max(profile.decoder.steps(profile.decoder.base)), *(cost.most_batch for cost in costs))
            doubts = _doubts(profile, "decoder")
            known += [
                Decoder(profile.name, moved, cost, batch, doubts, choice)
                for (moved, choice), cost in zip(variants, costs, strict=True)
            ]
    if not_fused:
        left_out.append(f"Profiles without a fused variant of their decoder are passed over: {', '.join(not_fused)}.")
    return known, left_out


def _doubts(profile: DeviceProfile, *more: str) -> tuple[str, ...]:
    return tuple(doubt.message for doubt in profile_doubts(profile, ("step", "encoder", "overheads", *more)))


def doubtful_profiles(decoders: Iterable[Decoder]) -> list[dict[str, Any]]:
    return group_doubts((decoder.device, decoder.profile.name, decoder.kind, decoder.doubts) for decoder in decoders)


COLLECT = COLLECTED // BATCH
"""Batches in a maxi-batch: ten, whatever the size of a batch."""
LEAST_BATCHES = 40
"""Fewest batches that decide a verdict: with fewer, the first and the last batch would weigh too much."""
LEAST_SENTENCES = 100
"""Fewest sentences that a user may ask for."""
SEEDS = (1, 2, 3, 4, 5)
SPEED_SEEDS = SEEDS[:2]
"""Seeds of speeds. Speeds hardly differ between seeds, since 30,000 sentences average out more than a seed moves."""
STRATEGIES: dict[str, Callable[[int], Batching]] = {
    "mini": lambda size: mini(size),
    "half-empty": lambda size: top_up(size, half_empty(size)),
    "immediate": lambda size: top_up(size, immediate(size)),
    "maxi": lambda size: maxi(size, COLLECT * size),
    "maxi half-empty": lambda size: top_up(size, half_empty(size), COLLECT * size, inf),
    "maxi immediate": lambda size: top_up(size, immediate(size), COLLECT * size, inf),
}
"""The batchings of the paper's figures by size: all sentences at hand, no batch waits."""
NAMES = {
    "half-empty": "topped up",
    "immediate": "topped up at once",
    "maxi half-empty": "maxi, topped up",
    "maxi immediate": "maxi, topped up at once",
}
"""Strategies in words, where they differ."""
KINDS = ("synthetic", "published", "inferred", "measured")
"""Origins of figures, the least certain first."""

Row = Mapping[str, Any]
Progress = Callable[[int, int], None]
"""Called with the number of tasks done and the number of all tasks."""


def check_requests(requests: int | None) -> None:
    if requests is not None and requests < LEAST_SENTENCES:
        remedy = f"give {LEAST_SENTENCES} or more; verdicts need {LEAST_BATCHES} batches"
        raise InputError(f"{requests} requests: too few to form batches", remedy=remedy)


def lengths_of(test_set: str, seed: int, sentences: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return src_len and tgt_len of a set's first `sentences` (None: all); the same seed gives the same sentences."""
    size = SENTENCES[test_set] if sentences is None else sentences
    return MIXES[test_set].draw(stream(seed, 0, f"topup {test_set}"), size)


ONE_SECOND_A_STEP = DecodingCost(step=CostTable.of((1, BATCH), (0, 1), 1.0), encoder=CostTable.of((1, BATCH), (0, 1), 0.0))
"""Costs of no device: which sentences are decoded together does not depend on costs if all are at hand."""


def step_occupancy(
    test_set: str, strategy: str, seeds: Sequence[int] = SEEDS, sentences: int | None = None, batch: int = BATCH
) -> pd.DataFrame:
    """Decode a set, all of it at hand, and return how full the steps' batches are, a row per seed (FNI-12).

    The columns: shares of steps with a full batch and with fewer than 8 sentences, sentences on average, the number of steps,
    and the shares of steps with 1 to `batch` sentences.
    """
    rows = []
    for seed in seeds:
        lengths = lengths_of(test_set, seed, sentences)
        account = decode_all(STRATEGIES[strategy](batch), ONE_SECOND_A_STEP, *lengths).account
        steps = float(account.steps.sum())
        rows.append(
            {"set": test_set, "strategy": strategy, "seed": seed}
            | account.shares()
            | {"mean_active": account.mean_active, "steps": steps}
            | {"share_by_active": account.steps[1:] / steps}
        )
    return pd.DataFrame(rows)


def speeds(decoders: Sequence[Decoder], strategies: Iterable[str], sentences: int | None = None) -> pd.DataFrame:
    """Decode the sets, all sentences at hand, on the decoders of one device.

    Returns seconds and refills of each beam, set, run and seed; a run is a strategy, or `STRATEGY, fused`. The index is the
    first three.
    """
    rows = []
    for variants, test_set, strategy in product(grouped(decoders, "beam").values(), SETS, strategies):
        for decoder, seed in product(variants, SPEED_SEEDS):
            run = decode_all(STRATEGIES[strategy](decoder.batch), decoder.cost, *lengths_of(test_set, seed, sentences))
            names = {"beam": decoder.beam, "set": test_set, "run": f"{strategy}, fused" if decoder.fused else strategy}
            figures = {"total_s": run.total_s, "sentences": len(run.finish_s), "refills": run.account.refills}
            rows.append(names | {"seed": seed} | figures)
    return pd.DataFrame(rows).set_index(["beam", "set", "run"])


class Gain(NamedTuple):
    """Relative gain in speed of one run over another on the same sentences: the ratio of their times less one."""

    mean: float
    by_seed: NDArray[np.float64]

    @property
    def text(self) -> str:
        return f"{100 * self.mean:+.1f} %"

    def __str__(self) -> str:
        return f"{self.text} ({100 * self.by_seed.min():+.1f} to {100 * self.by_seed.max():+.1f})"


class Device(Facts):
    """The speeds of one device, by which claims are judged."""

    def __init__(self, decoders: Sequence[Decoder], timed: pd.DataFrame, sentences: int | None = None) -> None:
        """Take decoders by rising beam, with and without the fused output layer if both are timed, and the frame of `speeds`.

        `sentences`: most sentences timed per set; None: the paper's.
        """
        self.decoders, self.timed, self.sentences = decoders, timed, sentences
        self.device = decoders[0].device
        self.basis = min((decoder.kind for decoder in decoders), key=KINDS.index)
        self.facts: dict[str, Any] = {}
        """Values for the words of the paper's data."""

    def gain(self, beam: int, test_set: str, ours: str, theirs: str) -> Gain:
        fast, slow = (self.timed.loc[[(beam, test_set, run)]].total_s.to_numpy() for run in (ours, theirs))
        return Gain(float(slow.sum() / fast.sum() - 1.0), slow / fast - 1.0)

    def undecided(self, decoder: Decoder, test_set: str, *, costs: bool = True, refills: bool = True) -> Undecided | None:
        """Return the reason why speeds on a set decide no verdict; None if they do.

        Without `costs`, outputs beyond the last measured step are no reason; without `refills`, unknown costs of refills.
        """
        if costs and decoder.extrapolates(test_set):
            return Undecided("extrapolated")
        if refills and not decoder.refills_known:
            return Undecided("without the cost of refills and of the gaps between steps, which was not measured")
        if self.sentences is not None and self.sentences < LEAST_BATCHES * decoder.batch:
            return Undecided(f"of fewer than {LEAST_BATCHES} batches")
        return None

    def by_case(
        self,
        judge: Callable[[int, str], tuple[str, Effect]],
        sets: Iterable[str],
        beams: Collection[int],
        undecided: Callable[[Decoder, str], Undecided | None],
        why: str = "",
    ) -> Result:
        """Return the result over all sets and beams (`beams`: those that count, empty: all) that something decides.

        `judge` gives our figures on a beam and a set as text, and the effect that decides.
        """
        effects: dict[str, Effect] = {}
        texts = []
        for decoder, key in product(self.decoders, sets):
            if decoder.fused or (beams and decoder.beam not in beams):
                continue
            name, reason = case_name(decoder.beam, key), undecided(decoder, key)
            if reason is None:
                text, effects[name] = judge(decoder.beam, key)
                texts.append(f"{name}: {text}")
            else:
                effects[name] = reason
        return Result(effects, "; ".join(texts), why, facts=self.facts)


def by_case(
    sets: Iterable[str] = tuple(SETS), beams: Collection[int] = (), *, timed: bool = True, **needed: bool
) -> Callable[[Callable[..., tuple[str, Effect]]], Callable[[Any], Result]]:
    """Make a claim's value of a function that judges a device on a beam and a set (`Device.by_case`).

    `needed`: see `Device.undecided`; without `timed` every case is decided.
    """

    def value_of(judge: Callable[..., tuple[str, Effect]]) -> Callable[[Any], Result]:
        def undecided(device: Device, decoder: Decoder, test_set: str) -> Undecided | None:
            return device.undecided(decoder, test_set, **needed) if timed else None

        return lambda device: device.by_case(partial(judge, device), sets, beams, partial(undecided, device))

    return value_of


def gains(*pairs: tuple[str, str], ours: str = "{0}", noise: float = 0.0, **cases: Any) -> Callable[[Any], Result]:
    """Return what judges, case by case, by how much the first of some gains exceeds the others, or 0.

    `pairs`: our run and theirs, for each gain; `ours`: how a text shows the gains; `noise`: the least difference that counts;
    `cases`: see `by_case`.
    """

    @by_case(**cases)
    def judge(device: Device, beam: int, test_set: str) -> tuple[str, Effect]:
        first, *others = values = [device.gain(beam, test_set, *runs) for runs in pairs]
        least = np.min([first.by_seed - other.by_seed for other in others] or [first.by_seed], axis=0)
        return ours.format(*values), span(least, noise)

    return judge


def span(by_seed: NDArray[np.float64], noise: float = 0.0) -> Estimate:
    """Return mean, least and greatest over seeds, wider by `noise` on both sides."""
    return Estimate(float(by_seed.mean()), float(by_seed.min()) - noise, float(by_seed.max()) + noise)


def speed_rows(devices: Iterable[Device], baseline: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return a row per device, beam, set and run with its speed over that of its baseline, as tables and charts show it."""
    rows = []
    for device in devices:
        by_beam = {decoder.beam: decoder for decoder in device.decoders}
        for beam, test_set, run in dict.fromkeys(device.timed.index):
            gained, same = device.gain(beam, test_set, run, baseline(run)), device.timed.loc[[(beam, test_set, run)]]
            strategy, _, fused = run.partition(", ")
            names = {"device": device.device, "beam": beam, "batch": by_beam[beam].batch, "set": test_set}
            names |= {"strategy": strategy, "fused": bool(fused), "name": NAMES.get(strategy, strategy) + run[len(strategy) :]}
            speed = {"sentences_per_s": float(same.sentences.sum() / same.total_s.sum()), "relative": 1.0 + gained.mean}
            least, greatest = (1.0 + float(end) for end in (gained.by_seed.min(), gained.by_seed.max()))
            spread = {"relative_least": least, "relative_greatest": greatest}
            rows.append(names | speed | spread | {"extrapolated": by_beam[beam].extrapolates(test_set)})
    return rows


def speed_table(title: str, rows: Sequence[Row], note: str = "") -> Table:
    """Return the table of speeds with a line for each device, beam and set."""

    def name(line: Mapping[str, Row]) -> str:
        row = line["mini"]
        mark = "*" if row["extrapolated"] else ""
        return f"{case_name(row['beam'], row['set'])}{mark}, {row['device']}, batches of {row['batch']}"

    def column(run: str) -> Column:
        def published(line: Mapping[str, Row]) -> str:
            theirs = line[run].get("published")
            return "" if theirs is None else f"published up to {1 + theirs:.2f}"

        ends = f"{run}.relative_least", f"{run}.relative_greatest"
        return Column(run, f"{run}.relative", 3, interval=ends, small=published)

    lines = [{row["name"]: row for row in group} for group in grouped(rows, "device", "beam", "set").values()]
    runs = dict.fromkeys(row["name"] for row in rows if row["relative"] != 1.0)
    first = [Column("set, device (* extrapolated)", name), Column("mini/s", "mini.sentences_per_s", 1)]
    note = f"Sentences a second with mini-batching, and speeds over {note}; brackets: least and greatest over seeds."
    return Table(title, [*first, *map(column, runs)], lines, note, id="speeds")
