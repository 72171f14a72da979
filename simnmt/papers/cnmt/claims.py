"""The claims of C-NMT: signs and orders of Table I (CNMT-17, 20), and claims on devices (CNMT-06, 12, 18).

A claim on Table I holds or fails only beyond the noise of its differences, paired by replication: changes of total time for
(b) and (c), differences between two changes for (d) and (e). Cells where the oracle uses a single device are left out of (b),
(d) and (e): nothing can be gained there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from simnmt.papers.cnmt.table_one import CELLS, LABELS, NETWORKS, PAPER, TRANSFORMER, WORKLOADS, Cell, TableRun, name_cell
from simnmt.papers.kit.claims import (
    FAILS,
    HOLDS,
    UNCLEAR,
    UNKNOWN,
    Claim,
    ClaimRecord,
    Effect,
    Facts,
    Result,
    Several,
    Undecided,
    above,
    at_least,
    below,
    judge,
    of_paper,
)
from simnmt.profile.blocks import CellSample
from simnmt.profile.device_profile import DeviceProfile
from simnmt.results.number_text import percent_interval
from simnmt.results.statistics import Estimate
from simnmt.workload.length_table import LengthTable

DEVICES = ("edge", "cloud")
FITTED_REMARK = "fitted: the profiles were inferred from Table I itself, so this shows consistency, not proof"


def basis_of(profile_kinds: Collection[str]) -> str:
    """Return the basis of claims: `fitted` if any profile was inferred, else `measured` or `synthetic`, or `unknown`."""
    if any(kind.startswith("inferred") for kind in profile_kinds):
        return "fitted"
    if not profile_kinds:
        return "unknown"
    return "measured" if set(profile_kinds) == {"measured"} else "synthetic"


def table_claims(run: TableRun) -> list[ClaimRecord]:
    """Return a record for each claim on Table I; those on inferred profiles are marked as fitted."""
    return [
        replace(record, why=f"{record.why}; {FITTED_REMARK}")
        if run.basis == "fitted" and record.hardware_dependent and record.verdict != UNKNOWN
        else record
        for record in judge(TABLE_CLAIMS, [run])
    ]


def _percent(effect: Estimate, unit: str = "%") -> str:
    return percent_interval(effect.mean, effect.low, effect.high, unit=unit)


def _oracle_is_least(run: TableRun) -> Result:
    margins = {
        (cell, policy): run.excess(cell, policy, "oracle")
        for cell in run.cells("oracle")
        for policy in ("edge", "cloud", "naive", "cnmt")
        if (*cell, policy) in run.by_replication_s
    }
    if not margins:
        raise Undecided("no row of the oracle and of another policy")
    (cell, policy), least = min(margins.items(), key=lambda item: item[1].mean)
    effects: dict[str, list[float]] = {}
    for (at, _), margin in margins.items():
        effects.setdefault(name_cell(at), []).append(margin.mean)

    def ours(verdicts: Mapping[str, str]) -> str:
        where = f"{LABELS[policy]}, {name_cell(cell)}"
        return f"in {[*verdicts.values()].count(HOLDS)} of {len(verdicts)} cells, least margin {_percent(least)} ({where})"

    theorem = "a theorem back to back on one RTT clock: it holds for every request, so that chance has no part in it"
    return Result({name: min(means) for name, means in effects.items()}, ours, words=theorem)


def _least_saving(
    savings: Mapping[Cell, Estimate], effects: Mapping[str, Effect], words: str = "in every cell looked at"
) -> Result:
    """Return the result with the number of cells where the claim holds."""
    cell, least = min(savings.items(), key=lambda item: item[1].mean)

    def ours(verdicts: Mapping[str, str]) -> str:
        count = [*verdicts.values()].count(HOLDS)
        return f"in {count} of {len(savings)} cells, least saving {_percent(least)} ({name_cell(cell)})"

    return Result(effects, ours, words=words)


def _beats_both_devices(run: TableRun) -> Result:
    cells = run.cells("cnmt", *DEVICES, without=run.idle)
    if not cells:
        raise Undecided("needs rows of edge, cloud and cnmt in a cell where each device wins some requests")
    savings = {
        cell: min((run.saving(cell, "cnmt", device) for device in DEVICES), key=lambda saving: saving.mean) for cell in cells
    }
    effects = {name_cell(cell): Several([partial(run.saving, cell, "cnmt", device) for device in DEVICES]) for cell in cells}
    return _least_saving(savings, effects, "below both in every cell looked at")


def _beats_naive(run: TableRun) -> Result:
    cells = run.cells("cnmt", "naive")
    if len(cells) < len(CELLS):
        raise Undecided("needs rows of naive and cnmt in all six cells")
    effects = {name_cell(cell): partial(run.saving, cell, "cnmt", "naive") for cell in cells}
    savings = {cell: run.saving(cell, "cnmt", "naive") for cell in cells}
    return _least_saving(savings, effects)


def _gains_follow_the_network(run: TableRun) -> Result:
    cells = run.cells("cnmt", *DEVICES, without=run.idle)
    gains: list[str] = []
    effects: dict[str, Several] = {}
    differences: list[Estimate] = []
    for workload in WORKLOADS:
        slower, faster = ((workload, network) for network in NETWORKS)
        if slower not in cells or faster not in cells:
            continue
        server, gateway = (
            "/".join(f"{run.saving(cell, 'cnmt', device).mean:.2f}" for cell in (slower, faster))
            for device in ("cloud", "edge")
        )
        gains.append(f"{workload.upper()} Server {server}, GW {gateway}")
        # A gain is a negative excess: the larger gain on CP1 is the larger excess on CP2.
        pairs = ((faster, slower, "cloud"), (slower, faster, "edge"))
        effects[workload.upper()] = Several([partial(run.larger, *pair) for pair in pairs])
        differences += [run.larger(*pair) for pair in pairs]
    if not effects:
        raise Undecided("needs both networks of a data set, and each device winning some requests on both")
    least = min(differences, key=lambda difference: difference.mean)
    clear = (
        "the slower CP1 favours the gateway, the faster CP2 the server; nearly a theorem where the networks differ in hardly "
        "more than their level, so this tests little"
    )
    ours = f"{'; '.join(gains)} (% on CP1/CP2); least difference {_percent(least, 'points')}"
    return Result(effects, ours, words=clear)


def _gap_larger_for_the_transformer(run: TableRun) -> Result:
    cells = run.cells("cnmt", "oracle", without=run.idle)
    gaps = {cell: run.excess(cell, "cnmt", "oracle") for cell in cells}
    transformer = [cell for cell in cells if cell[0] == TRANSFORMER]
    recurrent = [cell for cell in cells if cell[0] != TRANSFORMER]
    if not transformer or not recurrent:
        raise Undecided("needs EN-ZH and a recurrent model beside it")
    least, greatest = min(transformer, key=lambda cell: gaps[cell].mean), max(recurrent, key=lambda cell: gaps[cell].mean)
    difference = run.larger(least, greatest, "oracle")
    by_lengths, cause = _lengths_explain(run)

    def why(verdicts: Mapping[str, str]) -> str:
        text = (
            f"EN-ZH's least gap, {gaps[least].mean:.2f} %, is {'' if difference.mean > 0.0 else 'not '}above the greatest of "
            f"the others, {gaps[greatest].mean:.2f} %: difference {_percent(difference, 'points')}"
        )
        if verdicts["order"] == HOLDS:
            text += ", beyond the noise of the replications as in all other pairs of cells"
        elif verdicts["order"] == UNCLEAR:
            text += ", but within the noise of the replications"
        if verdicts["order"] != FAILS and by_lengths is False:
            return f"{text}{cause}, which is not the paper's cause: that EN-ZH's lengths are harder to predict"
        return text + cause

    pairs = Several([partial(run.larger, *pair, "oracle") for pair in product(transformer, recurrent)])
    lengths = Undecided("", needed=True) if by_lengths is None else by_lengths
    ours = ", ".join(f"{name_cell(cell)} {_percent(gap)}" for cell, gap in gaps.items())
    return Result({"order": pairs, "lengths": lengths}, ours, why, words=None)


def _lengths_explain(run: TableRun) -> tuple[bool | None, str]:
    """Return whether the lengths make the largest part of EN-ZH's gap in every cell, and the shares; None if unknown."""
    parts = {cell: changes for cell, changes in run.gap_percent.items() if cell[0] == TRANSFORMER}
    if not parts:
        return None, "; the cause of the gap was not analysed"
    largest = {cell: min(changes, key=changes.__getitem__) for cell, changes in parts.items()}
    shares = ", ".join(f"{name_cell(cell)} {-parts[cell][source]:.2f} % by {source}" for cell, source in largest.items())
    return all(source == "length regression" for source in largest.values()), f"; most of the gap: {shares}"


def _largest_savings(run: TableRun) -> Result:
    """Return the sign, not the size, of the paper's headline figures: whether any cell of each data set saves time.

    The best of several cells is picked after the fact, so that a saving counts beyond an interval widened for their number.
    """
    candidates: dict[str, list[tuple[Cell, str]]] = {}
    for cell in run.cells("cnmt", *DEVICES):
        candidates.setdefault(cell[0].upper(), []).extend((cell, device) for device in DEVICES)
    # In points of the Server column, as the paper counts its 21 % (CNMT-20).
    ahead_points = {}
    for cell in run.cells("cnmt", "naive", "cloud"):
        naive_s, cnmt_s, cloud_s = (run.total_s(cell, policy) or 0.0 for policy in ("naive", "cnmt", "cloud"))
        ahead_points[cell] = 100.0 * (naive_s - cnmt_s) / cloud_s
    if not ahead_points or not candidates:
        raise Undecided("needs rows of edge, cloud, naive and cnmt")
    at_best = {
        name: max((run.saving(cell, "cnmt", device) for cell, device in pairs), key=lambda saving: saving.mean)
        for name, pairs in candidates.items()
    }
    best = max(ahead_points, key=ahead_points.__getitem__)
    ours = ", ".join(f"{name} {_percent(saving)}" for name, saving in at_best.items())
    ours += f", beyond Naive {ahead_points[best]:.2f} points of the Server column ({name_cell(best)})"
    candidates["against Naive"] = [(cell, "naive") for cell in ahead_points]
    effects = {
        name: Several([partial(run.saving, cell, "cnmt", baseline) for cell, baseline in pairs], any_will_do=True)
        for name, pairs in candidates.items()
    }
    return Result(effects, ours, words="the sign is the claim; sizes depend on the devices")


TABLE_CLAIMS: list[Claim[TableRun]] = of_paper(
    PAPER,
    [
        Claim("CNMT-17 (a)", value=_oracle_is_least, holds=at_least(-1e-10), hardware_dependent=False),  # sums are rounded
        Claim("CNMT-17 (b)", value=_beats_both_devices, holds=at_least(0.0), hardware_dependent=True),
        Claim("CNMT-17 (c)", value=_beats_naive, holds=above(0.0, needed=-1), hardware_dependent=True),
        Claim("CNMT-17 (d)", value=_gains_follow_the_network, holds=above(0.0), hardware_dependent=True),
        Claim("CNMT-17 (e)", value=_gap_larger_for_the_transformer, holds=above(0.0), hardware_dependent=True),
        Claim("CNMT-17 (reductions)", value=_largest_savings, holds=above(0.0), hardware_dependent=True),
    ],
)


# Claims on devices.

QUARTILES_OF_SD = 1.349
"""Distance of a normal law's quartiles in standard deviations."""


@dataclass(frozen=True, slots=True)
class TimeOverLength:
    """Mean measured execution times per target length, and the line through them (figure 2a)."""

    workload: str
    device: str
    profile: DeviceProfile
    tgt_len: tuple[int, ...]
    mean_ms: tuple[float, ...]
    sd_ms: tuple[float, ...]
    """Standard deviation of single inferences, over the source lengths and the repeats of each."""
    ms_per_token: float
    ms_fixed: float
    r2: float
    """Coefficient of determination of the line for the means."""
    mse_ms2: float

    @property
    def published(self) -> Mapping[str, float] | None:
        """R2 and mean squared error that the paper prints for its own device; None for other models."""
        return PAPER.table("figure-2a").row(self.device) if self.workload == TRANSFORMER else None


def time_over_length(profile: DeviceProfile, workload: str = "", device: str = "") -> TimeOverLength | None:
    """Return the means per target length and their line; None if the samples have fewer than three target lengths."""
    samples = [sample for sample in profile.execution.samples if sample.batch == 1]
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
    return TimeOverLength(workload, device, profile, tuple(lengths), tuple(means), tuple(deviations), slope, offset, r2, mse)


def _sd_s(sample: CellSample) -> float:
    """Return the standard deviation over the repeats of a cell: as stated, else from the quartiles, else 0."""
    if sample.sd_s is not None:
        return sample.sd_s
    if sample.p25_s is None or sample.p75_s is None:
        return 0.0
    return (sample.p75_s - sample.p25_s) / QUARTILES_OF_SD


@dataclass(frozen=True)
class Profiles(Facts):
    """The profiles of gateway and cloud, and the lengths of the requests, of the data sets at hand."""

    pairs: Mapping[str, tuple[DeviceProfile, ...]]
    lengths: Mapping[str, LengthTable]
    device: str = ""

    @property
    def basis(self) -> str:  # type: ignore[override]
        """Kinds of the profiles; `measured` without any."""
        kinds = [profile.execution.kind for pair in self.pairs.values() for profile in pair]
        return basis_of(kinds) if kinds else "measured"

    def lines(self) -> list[TimeOverLength]:
        """Return the measured means per target length of all profiles that hold samples."""
        lines = [
            time_over_length(profile, workload, device)
            for workload, pair in self.pairs.items()
            for device, profile in zip(("gateway", "cloud"), pair, strict=True)
        ]
        return [line for line in lines if line is not None]

    def r2_of_means(self) -> Result:
        """Return R2 by data set as the gateway's profile states it, else from its samples."""
        by_workload: dict[str, Effect] = {}
        for workload, (gateway, _) in self.pairs.items():
            r2, line = gateway.execution.fit.r2_of_means_per_tgt_len, time_over_length(gateway)
            if r2 is not None:
                by_workload[workload.upper()] = r2
            elif line is not None:
                by_workload[workload.upper()] = line.r2
        if not by_workload:
            raise Undecided("no profile at hand holds samples over several target lengths")
        # Rounded down, so that only a perfect fit prints as 1.
        ours = ", ".join(f"{name} {math.floor(1e4 * r2) / 1e4:.4f}" for name, r2 in by_workload.items())  # type: ignore[operator]
        return Result(by_workload, ours, words="each target token is one more decoding step")

    def flat_encoder(self) -> Result:
        """Return a source token's cost over a target token's of the Transformers measured on a GPU."""
        ratios: dict[str, Effect] = {
            profile.name: _src_over_tgt(profile)
            for profile in self.pairs.get(TRANSFORMER, ())
            if profile.engine is not None and profile.engine.device.startswith("cuda") and profile.execution.kind == "measured"
        }
        if not ratios:
            raise Undecided("needs a profile of the Transformer measured on a CUDA device")
        why = "a GPU takes all source tokens at once, and the target tokens one after another"
        return Result(ratios, why=why, words=None)

    def recurrent_encoders(self) -> Result:
        """Return by how much a source token's share of a target token's cost is larger with recurrent models."""
        ratios = {workload: _src_over_tgt(gateway) for workload, (gateway, _) in self.pairs.items()}
        recurrent = [ratio for workload, ratio in ratios.items() if workload != TRANSFORMER]
        if not recurrent or TRANSFORMER not in ratios:
            raise Undecided("needs the Transformer and a recurrent model beside it")
        holds = min(recurrent) > ratios[TRANSFORMER]
        why = (
            "a recurrent encoder steps through the words as its decoder does"
            if holds
            else "not on this gateway: without a parallel device the Transformer's encoder, too, takes time for every source "
            "token, and a recurrent decoder's step is dear by its product with the whole vocabulary, which no encoder has"
        )
        return Result(holds, ", ".join(f"{workload.upper()} {ratio:.4f}" for workload, ratio in ratios.items()), why)

    def decisions(self) -> Result:
        """Return the time of a decision over the faster device's mean inference time."""
        shares: dict[str, Effect] = {}
        for workload, pair in self.pairs.items():
            overheads, table = pair[0].overheads, self.lengths[workload]
            decision_s = None if overheads is None or overheads.decision_s is None else overheads.decision_s.value
            if decision_s is not None:
                times_s = [profile.plane.seconds(table.src_len, table.tgt_len) for profile in pair]
                mean_s = min(float(np.average(time_s, weights=table.count)) for time_s in times_s)
                shares[workload.upper()] = decision_s / mean_s
        if not shares:
            raise Undecided("no gateway profile at hand holds the time of a decision")
        return Result(shares, words="the rule is a few multiplications; against the faster device's mean time")


def _src_over_tgt(profile: DeviceProfile) -> float:
    plane = profile.plane
    return plane.s_per_src_token / plane.s_per_tgt_token if plane.s_per_tgt_token else float("inf")


DEVICE_CLAIMS: list[Claim[Profiles]] = of_paper(
    PAPER,
    [
        Claim("CNMT-06 (linear in M)", value=Profiles.r2_of_means, holds=at_least(0.95), hardware_dependent=True),
        Claim(
            "CNMT-06 (Transformer on a GPU)", value=Profiles.flat_encoder, holds=below(0.2), form=".4f", hardware_dependent=True
        ),
        Claim("CNMT-06 (recurrent encoders)", value=Profiles.recurrent_encoders, hardware_dependent=True),
        Claim("CNMT-12", value=Profiles.decisions, holds=below(1e-3), form=".3g", hardware_dependent=True),
    ],
)
