"""Compare the live runs of a cell with their simulations, and the policies of a group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import SimnmtError
from simnmt.live.cell_run import LiveRun
from simnmt.live.matched_simulation import SimulatedRun, Simulations
from simnmt.results.prediction import prediction_interval

Column = NDArray[np.float64]
Interval = tuple[float, float]
CONFIDENCE = 0.9
"""Of all intervals; two one-sided tests at 5 % are an interval of 90 %."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules that are fixed before anything is measured."""

    others_cpus: float = 0.1
    """A run is void if other programs used more processors than this."""
    unsteady: float = 1.5
    """A run is void if the 90th percentile of its reference executions is more than this multiple of their median."""
    answered_share: float = 0.99
    """A run is void if fewer requests were answered where they were sent."""
    equivalent: float = 0.05
    """A cell is equivalent if the 90 % interval of simulated over live mean lies within 1 +- this."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a validation."""

    policy: str
    batching: str
    load: float
    link: str

    @property
    def group(self) -> tuple[str, float, str]:
        """Cells of one group meet the same requests."""
        return self.batching, self.load, self.link


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one or more runs of a cell."""

    mean_s: float
    p95_s: float
    offloaded_share: float
    throughput_rps: float
    queue_s: float
    execution_s: float
    transfer_s: float
    overhead_s: float

    def document(self) -> dict[str, float]:
        """Return the figures as JSON."""
        return asdict(self)


def _mean_of(runs: Sequence[Figures]) -> Figures:
    return Figures(*(float(np.mean([getattr(run, name) for run in runs])) for name in Figures.__slots__))


def live_figures(run: LiveRun) -> Figures:
    """Return the figures of a live run; requests that were not answered where they were sent are left out.

    Raises `SimnmtError` if none is left.
    """
    log_, valid = run.log, run.valid
    if not valid.any():
        raise SimnmtError("a live run answered no request as decided: its services' logs say why")
    latency_s = log_.latency_s[valid]
    return Figures(
        float(latency_s.mean()),
        float(np.quantile(latency_s, 0.95)),
        float((log_.target[valid] != 0).mean()),
        float(valid.sum()) / run.span_s,
        float(run.waiting_s[valid].mean()),
        float(log_.execution_s[valid].mean()),
        float(run.transfer_s[valid].mean()),
        float((log_.latency_s - run.waiting_s - log_.execution_s - run.transfer_s)[valid].mean()),
    )


def simulated_figures(run: SimulatedRun, offsets_s: Column) -> Figures:
    """Return the figures of a simulated run."""
    latency_s = run.latency_s
    span_s = float((offsets_s + latency_s).max() - offsets_s.min())
    return Figures(
        float(latency_s.mean()),
        float(np.quantile(latency_s, 0.95)),
        float((run.target != 0).mean()),
        len(latency_s) / span_s,
        float(run.queue_s.mean()),
        float(run.execution_s.mean()),
        float(run.transfer_s.mean()),
        float(run.overhead_s.mean()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class CellResult:
    """A cell, live and simulated. Errors are simulated over live less 1, of the means over the repeats."""

    cell: Cell
    live: Figures
    live_repeats: list[Figures]
    simulated: Figures
    raw: Figures
    structural: Figures
    predicted_means_s: list[float]
    """Mean over the repeats of one draw of the profiles and of the box's pace, for each draw."""
    void_repeats: list[str]
    """Why repeats were left out."""
    void: bool
    decisions_identical: bool
    equivalent: bool | None
    """None with fewer than three repeats."""

    @property
    def error_mean(self) -> float:
        """Error of the mean latency of the drift-matched simulation."""
        return self.simulated.mean_s / self.live.mean_s - 1.0

    @property
    def error_p95(self) -> float:
        """Error of its 95th percentile."""
        return self.simulated.p95_s / self.live.p95_s - 1.0

    @property
    def raw_error_mean(self) -> float:
        """Error of the mean by the profiles alone."""
        return self.raw.mean_s / self.live.mean_s - 1.0

    @property
    def structural_error_mean(self) -> float:
        """Error of the mean of the structural replay."""
        return self.structural.mean_s / self.live.mean_s - 1.0

    @property
    def structural_error_p95(self) -> float:
        """Error of its 95th percentile."""
        return self.structural.p95_s / self.live.p95_s - 1.0

    @property
    def offloaded_share_error(self) -> float:
        """Offloaded share of the drift-matched simulation less the live one."""
        return self.simulated.offloaded_share - self.live.offloaded_share

    @property
    def spread_mean(self) -> float | None:
        """Range of the live means over their mean; None with one repeat."""
        means = [run.mean_s for run in self.live_repeats]
        return (max(means) - min(means)) / self.live.mean_s if len(means) > 1 else None

    @property
    def attribution_s(self) -> dict[str, float]:
        """Where the error of the mean arises: simulated less live mean of each part of the latency; the sum is the error."""
        parts = ("queue_s", "transfer_s", "execution_s", "overhead_s")
        return {part: getattr(self.simulated, part) - getattr(self.live, part) for part in parts}

    @property
    def interval_s(self) -> Interval:
        """The 90 % prediction interval of the mean latency."""
        ends = prediction_interval(0.0, np.array(self.predicted_means_s), np.zeros(1), CONFIDENCE)
        return float(ends[0]), float(ends[1])

    @property
    def covered(self) -> bool:
        """Whether the interval holds the live mean."""
        low_s, high_s = self.interval_s
        return low_s <= self.live.mean_s <= high_s

    @property
    def live_interval_s(self) -> Interval | None:
        """The 90 % interval of the live mean over the repeats; None with one repeat, which has no known error."""
        return mean_interval([run.mean_s for run in self.live_repeats])

    def document(self) -> dict[str, object]:
        """Return the cell as JSON."""
        return {
            "policy": self.cell.policy,
            "batching": self.cell.batching,
            "load": self.cell.load,
            "link": self.cell.link,
            "live": self.live.document(),
            "simulated": self.simulated.document(),
            "raw": self.raw.document(),
            "structural": self.structural.document(),
            "error_mean": self.error_mean,
            "error_p95": self.error_p95,
            "raw_error_mean": self.raw_error_mean,
            "structural_error_mean": self.structural_error_mean,
            "structural_error_p95": self.structural_error_p95,
            "offloaded_share_error": self.offloaded_share_error,
            "attribution": self.attribution_s,
            "live_interval_s": self.live_interval_s,
            "spread_mean": self.spread_mean,
            "prediction_interval_s": self.interval_s,
            "covered": self.covered,
            "equivalent": self.equivalent,
            "repeats": len(self.live_repeats),
            "void": self.void,
            "void_repeats": self.void_repeats,
            "decisions_identical": self.decisions_identical,
        }


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Return the 90 % interval of a mean by Student's distribution; None for one value."""
    if len(values) < 2:
        return None
    from scipy.stats import t

    half = float(t.ppf(0.5 + CONFIDENCE / 2.0, len(values) - 1)) * float(np.std(values, ddof=1)) / sqrt(len(values))
    mean = float(np.mean(values))
    return mean - half, mean + half


def reason_void(run: LiveRun, rules: Rules) -> str:
    """Return why a run counts as disturbed by these rules; empty if it does not."""
    answered = float(run.valid.mean())
    if answered < rules.answered_share:
        return f"{100 * (1 - answered):.1f} % of the requests were not answered where they were sent"
    if run.others_cpus is not None and run.others_cpus > rules.others_cpus:
        return f"other programs used {run.others_cpus:.2f} processors"
    for device, references in run.references.items():
        seconds = references.execution_s
        if seconds.size >= 5 and np.quantile(seconds, 0.9) > rules.unsteady * np.median(seconds):
            return f"reference executions of {device} were unsteady"
    return ""


def compare_cell(cell: Cell, runs: Sequence[LiveRun], simulations: Sequence[Simulations], rules: Rules) -> CellResult:
    """Return a cell's result over the repeats that are not void; over all of them if every one is."""
    reasons = [reason_void(run, rules) for run in runs]
    kept = [number for number, reason in enumerate(reasons) if not reason]
    void = not kept
    kept = kept or list(range(len(runs)))
    live, matched, raw, structural, predicted_s = [], [], [], [], list[list[float]]()
    for number in kept:
        run, simulated = runs[number], simulations[number]
        offsets_s = run.log.due_s - np.nanmin(run.log.due_s)
        live.append(live_figures(run))
        matched.append(_mean_of([simulated_figures(one, offsets_s) for one in simulated.matched]))
        raw.append(_mean_of([simulated_figures(one, offsets_s) for one in simulated.raw]))
        predicted_s.append([float(one.latency_s.mean()) for one in simulated.predicted])
        structural.append(simulated_figures(simulated.structural, offsets_s))
    return CellResult(
        cell,
        _mean_of(live),
        live,
        _mean_of(matched),
        _mean_of(raw),
        _mean_of(structural),
        np.mean(predicted_s, axis=0).tolist(),
        [reason for reason in reasons if reason],
        void,
        all(run.decisions_identical for run in runs),
        equivalent([one.mean_s for one in matched], [one.mean_s for one in live], rules.equivalent),
    )


def equivalent(simulated_s: Sequence[float], live_s: Sequence[float], margin: float) -> bool | None:
    """Return whether two one-sided tests at 5 % find simulated over live means within 1 +- margin; None with few repeats."""
    if len(live_s) < 3:
        return None
    interval = mean_interval([log(one / other) for one, other in zip(simulated_s, live_s, strict=True)])
    assert interval is not None
    return bool(log(1.0 - margin) <= interval[0] and interval[1] <= log(1.0 + margin))


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """The ranking of the policies of a group: cells of one batching, load and link, which met the same requests.

    The simulated ranking is that of the profiles alone. Two policies are ranked where their intervals are apart.
    """

    batching: str
    load: float
    link: str
    best_live: str
    best_simulated: str
    best_same_or_indistinguishable: bool | None
    """None with one repeat, where no two policies can be told apart."""
    inverted: tuple[str, ...]
    """Pairs of policies that are ranked one way live and the other way simulated."""
    gain_simulated: float | None
    """Share of the better single device's mean latency that the recommended policy saves by simulation; None if the
    recommended policy is a single device."""
    gain_interval: Interval | None
    gain_live: float | None
    """The same live, of the same two policies."""

    @property
    def gain_counts(self) -> bool:
        """Whether the simulated gain is above 5 % and its interval excludes 0."""
        return (
            self.gain_simulated is not None
            and self.gain_interval is not None
            and self.gain_simulated > 0.05
            and self.gain_interval[0] > 0.0
        )

    @property
    def gain_realised(self) -> float | None:
        """Live over simulated gain; None if the gain does not count."""
        if not self.gain_counts:
            return None
        assert self.gain_live is not None
        assert self.gain_simulated is not None
        return self.gain_live / self.gain_simulated

    def document(self) -> dict[str, object]:
        """Return the verdict as JSON."""
        return asdict(self) | {"inversions": len(self.inverted), "gain_realised": self.gain_realised}


def group_verdicts(cells: Sequence[CellResult], single_device: Collection[str] = ()) -> list[GroupVerdict]:
    """Return the verdict of each group; void cells are left out. `single_device`: policies that use one device alone."""
    groups: dict[tuple[str, float, str], list[CellResult]] = {}
    for cell in cells:
        if not cell.void:
            groups.setdefault(cell.cell.group, []).append(cell)
    return [_group_verdict(group, members, single_device) for group, members in groups.items()]


def _group_verdict(
    group: tuple[str, float, str], members: Sequence[CellResult], single_device: Collection[str]
) -> GroupVerdict:
    inverted = tuple(
        f"{one.cell.policy}, {other.cell.policy}"
        for place, one in enumerate(members)
        for other in members[place + 1 :]
        if _order(one.live_interval_s, other.live_interval_s) * _order(one.interval_s, other.interval_s) < 0
    )
    live = min(members, key=lambda cell: cell.live.mean_s)
    simulated = min(members, key=lambda cell: cell.raw.mean_s)
    same = None
    if live.live_interval_s is not None and simulated.live_interval_s is not None:
        same = live is simulated or _order(live.live_interval_s, simulated.live_interval_s) == 0
    fixed = [cell for cell in members if cell.cell.policy in single_device]
    gain = gain_interval = gain_live = None
    if fixed and simulated.cell.policy not in single_device:
        better = min(fixed, key=lambda cell: cell.raw.mean_s)
        gain = 1.0 - simulated.raw.mean_s / better.raw.mean_s
        gain_live = 1.0 - simulated.live.mean_s / better.live.mean_s
        gains = 1.0 - np.array(simulated.predicted_means_s) / np.array(better.predicted_means_s)
        low, high = prediction_interval(0.0, gains, np.zeros(1), CONFIDENCE).tolist()
        gain_interval = (low, high)
    return GroupVerdict(*group, live.cell.policy, simulated.cell.policy, same, inverted, gain, gain_interval, gain_live)


def _order(one: Interval | None, other: Interval | None) -> int:
    """Return -1 if an interval lies below another, 1 if above, 0 if they overlap or one is unknown."""
    if one is None or other is None:
        return 0
    return -1 if one[1] < other[0] else 1 if one[0] > other[1] else 0
