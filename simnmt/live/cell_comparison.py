"""Compare the live runs of a cell with their simulations, and the policies of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.live.cell_run import LiveRun
from simnmt.live.matched_simulation import SimulatedRun, Simulations

Column = NDArray[np.float64]


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
        return {name: getattr(self, name) for name in self.__slots__}


def _mean_of(runs: Sequence[Figures]) -> Figures:
    return Figures(*(float(np.mean([getattr(run, name) for run in runs])) for name in Figures.__slots__))


def live_figures(run: LiveRun) -> Figures:
    """Return the figures of a live run; requests that were not answered where they were sent are left out."""
    log_, valid = run.log, run.valid
    latency_s = log_.latency_s[valid]
    span_s = float(np.nanmax(log_.received_s) - np.nanmin(log_.due_s))
    return Figures(
        float(latency_s.mean()),
        float(np.quantile(latency_s, 0.95)),
        float((log_.target[valid] != 0).mean()),
        float(valid.sum()) / span_s,
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
    structural: Figures | None
    raw_means_s: list[float]
    """Means of the raw simulations, of all repeats and draws."""
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
    def structural_error_mean(self) -> float | None:
        """Error of the mean of the structural replay; None without one."""
        return None if self.structural is None else self.structural.mean_s / self.live.mean_s - 1.0

    @property
    def structural_error_p95(self) -> float | None:
        """Error of its 95th percentile."""
        return None if self.structural is None else self.structural.p95_s / self.live.p95_s - 1.0

    @property
    def spread_mean(self) -> float:
        """Range of the live means over their mean."""
        means = [run.mean_s for run in self.live_repeats]
        return (max(means) - min(means)) / self.live.mean_s

    @property
    def interval_s(self) -> tuple[float, float]:
        """The 90 % prediction interval of the mean latency."""
        low_s, high_s = np.quantile(self.raw_means_s, [0.05, 0.95]).tolist()
        return low_s, high_s

    @property
    def covered(self) -> bool:
        """Whether the interval holds the live mean."""
        low_s, high_s = self.interval_s
        return low_s <= self.live.mean_s <= high_s

    def live_interval_s(self) -> tuple[float, float]:
        """Return the 90 % interval of the live mean over the repeats; its single value with one."""
        return _interval([run.mean_s for run in self.live_repeats])

    def document(self) -> dict[str, Any]:
        """Return the cell as JSON."""
        low_s, high_s = self.interval_s
        return {
            "policy": self.cell.policy,
            "batching": self.cell.batching,
            "load": self.cell.load,
            "link": self.cell.link,
            "live": self.live.document(),
            "simulated": self.simulated.document(),
            "raw": self.raw.document(),
            "structural": None if self.structural is None else self.structural.document(),
            "error_mean": self.error_mean,
            "error_p95": self.error_p95,
            "raw_error_mean": self.raw_error_mean,
            "structural_error_mean": self.structural_error_mean,
            "structural_error_p95": self.structural_error_p95,
            "offloaded_share_error": self.simulated.offloaded_share - self.live.offloaded_share,
            "spread_mean": self.spread_mean,
            "prediction_interval_s": [low_s, high_s],
            "covered": self.covered,
            "equivalent": self.equivalent,
            "repeats": len(self.live_repeats),
            "void": self.void,
            "void_repeats": self.void_repeats,
            "decisions_identical": self.decisions_identical,
        }


def _interval(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    from scipy.stats import t

    half = float(t.ppf(0.95, len(values) - 1)) * float(np.std(values, ddof=1)) / sqrt(len(values))
    mean = float(np.mean(values))
    return mean - half, mean + half


def reason_void(run: LiveRun, rules: Rules) -> str:
    """Return why a run counts as disturbed by these rules; empty if it does not."""
    answered = float(run.valid.mean())
    if answered < rules.answered_share:
        return f"{100 * (1 - answered):.1f} % of the requests were not answered where they were sent"
    if run.others_cpus is not None and run.others_cpus > rules.others_cpus:
        return f"other programs used {run.others_cpus:.2f} processors"
    for device, seconds in run.reference_s.items():
        if seconds.size >= 5 and np.quantile(seconds, 0.9) > rules.unsteady * np.median(seconds):
            return f"reference executions of {device} were unsteady"
    return ""


def compare_cell(cell: Cell, runs: Sequence[LiveRun], simulations: Sequence[Simulations], rules: Rules) -> CellResult:
    """Return a cell's result over the repeats that are not void; over all of them if every one is."""
    reasons = [reason_void(run, rules) for run in runs]
    kept = [number for number, reason in enumerate(reasons) if not reason]
    void = not kept
    kept = kept or list(range(len(runs)))
    live, matched, raw, structural, raw_means_s = [], [], [], list[Figures](), list[float]()
    for number in kept:
        run, simulated = runs[number], simulations[number]
        offsets_s = run.log.due_s - np.nanmin(run.log.due_s)
        live.append(live_figures(run))
        matched.append(_mean_of([simulated_figures(one, offsets_s) for one in simulated.matched]))
        of_raw = [simulated_figures(one, offsets_s) for one in simulated.raw]
        raw_means_s += [figures.mean_s for figures in of_raw]
        raw.append(_mean_of(of_raw))
        if simulated.structural is not None:
            structural.append(simulated_figures(simulated.structural, offsets_s))
    return CellResult(
        cell,
        _mean_of(live),
        live,
        _mean_of(matched),
        _mean_of(raw),
        _mean_of(structural) if structural else None,
        raw_means_s,
        [reason for reason in reasons if reason],
        void,
        all(run.decisions_identical for run in runs),
        _equivalent([one.mean_s for one in matched], [one.mean_s for one in live], rules.equivalent),
    )


def _equivalent(simulated_s: Sequence[float], live_s: Sequence[float], margin: float) -> bool | None:
    """Return whether two one-sided tests at 5 % find simulated over live means within 1 +- margin; None with few repeats."""
    if len(live_s) < 3:
        return None
    low, high = _interval([log(one / other) for one, other in zip(simulated_s, live_s, strict=True)])
    return bool(log(1.0 - margin) <= low and high <= log(1.0 + margin))


def group_verdicts(cells: Sequence[CellResult]) -> list[dict[str, Any]]:
    """Return, by group of cells that met the same requests, the best policies and how often the ranking is inverted.

    Two policies are ranked where both their intervals are apart, live and simulated.
    """
    groups: dict[tuple[str, float, str], list[CellResult]] = {}
    for cell in cells:
        if not cell.void:
            groups.setdefault(cell.cell.group, []).append(cell)
    verdicts = []
    for (batching, load, link), members in groups.items():
        inversions = [
            f"{one.cell.policy}, {other.cell.policy}"
            for place, one in enumerate(members)
            for other in members[place + 1 :]
            if _order(one.live_interval_s(), other.live_interval_s()) * _order(one.interval_s, other.interval_s) < 0
        ]
        live = min(members, key=lambda cell: cell.live.mean_s)
        simulated = min(members, key=lambda cell: cell.simulated.mean_s)
        same = live is simulated or _order(live.live_interval_s(), simulated.live_interval_s()) == 0
        verdicts.append(
            {
                "batching": batching,
                "load": load,
                "link": link,
                "best_live": live.cell.policy,
                "best_simulated": simulated.cell.policy,
                "best_same_or_indistinguishable": same,
                "inversions": len(inversions),
                "inverted": inversions,
            }
        )
    return verdicts


def _order(one: tuple[float, float], other: tuple[float, float]) -> int:
    """Return -1 if an interval lies below another, 1 if above, 0 if they overlap."""
    return -1 if one[1] < other[0] else 1 if one[0] > other[1] else 0
