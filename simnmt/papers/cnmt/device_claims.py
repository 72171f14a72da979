"""Judge the claims on devices by measured profiles: time over target length, cost of a decision (CNMT-06, 12, 18)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from simnmt.papers.cnmt.claims import TRANSFORMER, basis_of
from simnmt.papers.kit.claim import Claim, ClaimRecord, Judgement, Undecided, holds_if
from simnmt.profile.blocks import CellSample
from simnmt.profile.device_profile import DeviceProfile
from simnmt.workload.length_table import LengthTable

QUARTILES_OF_SD = 1.349
"""Distance of a normal law's quartiles in standard deviations."""


class PublishedLine(NamedTuple):
    """Printed fit of a line of mean times."""

    r2: float
    mse_ms2: float


PUBLISHED = {"gateway": PublishedLine(0.99, 0.13), "cloud": PublishedLine(0.85, 1.2)}
"""The Transformer's lines on Jetson and Titan; the errors are printed in ms and meant in ms squared."""


@dataclass(frozen=True, slots=True)
class TimeOverLength:
    """Mean measured execution times per target length, and the line through them."""

    tgt_len: tuple[int, ...]
    mean_ms: tuple[float, ...]
    sd_ms: tuple[float, ...]
    """Standard deviation of single inferences, over the source lengths and the repeats of each."""
    ms_per_token: float
    ms_fixed: float
    r2: float
    """Coefficient of determination of the line for the means."""
    mse_ms2: float


def samples_of(profile: DeviceProfile) -> list[CellSample]:
    """Return the profile's raw samples of single sentences; empty if it holds none."""
    return [sample for sample in profile.execution.samples if sample.batch == 1]


def time_over_length(samples: Sequence[CellSample]) -> TimeOverLength | None:
    """Return the means per target length and their line; None if the samples have fewer than three target lengths."""
    lengths = sorted({sample.tgt_len for sample in samples})
    if len(lengths) < 3:
        return None
    means, deviations = [], []
    for length in lengths:
        cells = [sample for sample in samples if sample.tgt_len == length]
        repeats = [sample.repeats for sample in cells]
        cell_ms, within_ms = (
            1e3 * np.array(values) for values in zip(*((cell.mean_s, _sd_s(cell)) for cell in cells), strict=True)
        )
        means.append(float(np.average(cell_ms, weights=repeats)))
        deviations.append(float(np.sqrt(np.average((cell_ms - means[-1]) ** 2 + within_ms**2, weights=repeats))))
    slope, offset = (float(number) for number in np.polyfit(lengths, means, 1))
    mse = float(np.mean((np.array(means) - (slope * np.array(lengths) + offset)) ** 2))
    spread = float(np.var(means))
    r2 = 1.0 - mse / spread if spread > 0 else 0.0
    return TimeOverLength(tuple(lengths), tuple(means), tuple(deviations), slope, offset, r2, mse)


def _sd_s(sample: CellSample) -> float:
    """Return the standard deviation over the repeats of a cell: as stated, else from the quartiles, else 0."""
    if sample.sd_s is not None:
        return sample.sd_s
    if sample.p25_s is None or sample.p75_s is None:
        return 0.0
    return (sample.p75_s - sample.p25_s) / QUARTILES_OF_SD


@dataclass(frozen=True, slots=True)
class TimesRow:
    """Measured mean times per target length of one device of a data set (figure 2a)."""

    workload: str
    device: str
    profile: DeviceProfile
    line: TimeOverLength

    @property
    def published(self) -> PublishedLine | None:
        """R2 and mean squared error that the paper prints for its own device; None for other models."""
        return PUBLISHED[self.device] if self.workload == TRANSFORMER else None


def times_over_length(profiles: Mapping[str, tuple[DeviceProfile, ...]]) -> list[TimesRow]:
    """Return the measured means per target length of all profiles that hold samples, by workload and device."""
    pairs = [(workload, *pair) for workload, both in profiles.items() for pair in zip(("gateway", "cloud"), both, strict=True)]
    lines = [(workload, device, profile, time_over_length(samples_of(profile))) for workload, device, profile in pairs]
    return [TimesRow(workload, device, profile, line) for workload, device, profile, line in lines if line is not None]


LEAST_R2 = 0.95
MOST_SRC_OVER_TGT = 0.2
MOST_OVERHEAD = 1e-3

Pair = tuple[DeviceProfile, ...]
"""The profiles of gateway and cloud."""
Pairs = Mapping[str, Pair]
"""By workload."""


def device_claims(profiles: Pairs, lengths: Mapping[str, LengthTable]) -> list[ClaimRecord]:
    """Judge the claims on devices; both arguments are by workload, of the data sets at hand."""
    basis = basis_of([profile.execution.kind for pair in profiles.values() for profile in pair]) if profiles else "measured"
    records = [claim.record(profiles, lengths, device="", basis=basis) for claim in _CLAIMS]
    return [replace(record, hardware_dependent=True) for record in records]


def _judgement(figures: Mapping[str, str], holds: bool, why: str) -> Judgement:
    """Return the judgement with our figures by data set or profile."""
    return Judgement(", ".join(f"{name} {figure}" for name, figure in figures.items()), holds_if(holds), why)


def _r2_of_means(profile: DeviceProfile) -> float | None:
    """Return R2 as the profile states it, else from its samples; None without either."""
    stated = profile.execution.fit.r2_of_means_per_tgt_len
    if stated is not None:
        return stated
    line = time_over_length(samples_of(profile))
    return None if line is None else line.r2


def _linear_in_tgt_len(profiles: Pairs, _: Mapping[str, LengthTable]) -> Judgement:
    r2_by_workload = {workload.upper(): _r2_of_means(gateway) for workload, (gateway, _) in profiles.items()}
    known = {workload: r2 for workload, r2 in r2_by_workload.items() if r2 is not None}
    if not known:
        raise Undecided("no profile at hand holds samples over several target lengths")
    low = [workload for workload, r2 in known.items() if r2 < LEAST_R2]
    why = f"below {LEAST_R2} for {', '.join(low)}" if low else "each target token is one more decoding step"
    # Rounded down, so that only a perfect fit prints as 1.
    return _judgement({workload: f"{math.floor(1e4 * r2) / 1e4:.4f}" for workload, r2 in known.items()}, not low, why)


def _src_over_tgt(profile: DeviceProfile) -> float:
    plane = profile.plane
    return plane.s_per_src_token / plane.s_per_tgt_token if plane.s_per_tgt_token else float("inf")


def _flat_encoder_on_a_gpu(profiles: Pairs, _: Mapping[str, LengthTable]) -> Judgement:
    cost_ratios = {
        profile.name: _src_over_tgt(profile)
        for profile in profiles.get(TRANSFORMER, ())
        if profile.engine is not None and profile.engine.device.startswith("cuda") and profile.execution.kind == "measured"
    }
    if not cost_ratios:
        raise Undecided("needs a profile of the Transformer measured on a CUDA device")
    return _judgement(
        {name: f"{ratio:.4f}" for name, ratio in cost_ratios.items()},
        max(cost_ratios.values()) < MOST_SRC_OVER_TGT,
        "a GPU takes all source tokens at once, and the target tokens one after another",
    )


def _recurrent_encoders_cost_more(profiles: Pairs, _: Mapping[str, LengthTable]) -> Judgement:
    cost_ratios = {workload: _src_over_tgt(gateway) for workload, (gateway, _) in profiles.items()}
    recurrent = [ratio for workload, ratio in cost_ratios.items() if workload != TRANSFORMER]
    if not recurrent or TRANSFORMER not in cost_ratios:
        raise Undecided("needs the Transformer and a recurrent model beside it")
    holds = min(recurrent) > cost_ratios[TRANSFORMER]
    why = "a recurrent encoder steps through the words as its decoder does"
    if not holds:
        why = (
            "not on this gateway: without a parallel device the Transformer's encoder, too, takes time for every source "
            "token, and a recurrent decoder's step is dear by its product with the whole vocabulary, which no encoder has"
        )
    return _judgement({workload.upper(): f"{ratio:.4f}" for workload, ratio in cost_ratios.items()}, holds, why)


def _decisions_cost_nothing(profiles: Pairs, lengths: Mapping[str, LengthTable]) -> Judgement:
    share: dict[str, float] = {}
    for workload, pair in profiles.items():
        overheads, table = pair[0].overheads, lengths[workload]
        decision_s = None if overheads is None or overheads.decision_s is None else overheads.decision_s.value
        if decision_s is not None:
            mean_s = (
                float(np.average(profile.plane.seconds(table.src_len, table.tgt_len), weights=table.count)) for profile in pair
            )
            share[workload.upper()] = decision_s / min(mean_s)
    if not share:
        raise Undecided("no gateway profile at hand holds the time of a decision")
    high = [workload for workload, ratio in share.items() if ratio >= MOST_OVERHEAD]
    why = f"not for {', '.join(high)}" if high else "the rule is a few multiplications; against the faster device's mean time"
    return _judgement({workload: f"{ratio:.3g}" for workload, ratio in share.items()}, not high, why)


_CLAIMS = (
    Claim(
        "CNMT-06 (linear in M)",
        f"On the slower device the mean time per target length M is linear in M: R2 of at least {LEAST_R2}",
        "Transformer on the Jetson 0.99",
        _linear_in_tgt_len,
    ),
    Claim(
        "CNMT-06 (Transformer on a GPU)",
        f"On a GPU a source token costs the Transformer less than {MOST_SRC_OVER_TGT} of a target token",
        "encoder about constant in N below 100 tokens",
        _flat_encoder_on_a_gpu,
    ),
    Claim(
        "CNMT-06 (recurrent encoders)",
        "A source token costs a recurrent model a larger part of a target token than it costs the Transformer",
        "RNN encoders linear in N, the Transformer's about constant",
        _recurrent_encoders_cost_more,
    ),
    Claim(
        "CNMT-12",
        "A decision takes less than a thousandth of the mean inference time",
        "negligible",
        _decisions_cost_nothing,
    ),
)
