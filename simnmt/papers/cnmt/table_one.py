"""A run of Table I: its totals, and the changes and ratios derived from them, beside the published ones (CNMT-15, 16)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from simnmt.papers.cnmt import published
from simnmt.results.statistics import CONFIDENCE, Estimate, change_percent, difference_of_changes
from simnmt.results.summary import Row

Cell = tuple[str, str]
"""(workload, network)."""
RunName = tuple[str, str, str]
"""(workload, network, policy)."""
ALL_POLICIES = (*published.BASELINES, *published.POLICIES)
FITTED = (("cp1", "cloud"), ("cp1", "oracle"), ("cp1", "naive"), ("cp1", "cnmt"), ("cp2", "cloud"))
"""The ratios (network, policy) that the inferred profiles were fitted to, per data set; the other three are the test."""


def name_cell(cell: Cell) -> str:
    """Return the name of a cell, such as `DE-EN CP1`."""
    return f"{cell[0].upper()} {cell[1].upper()}"


@dataclass(frozen=True, slots=True)
class TableRun:
    """The totals of a run of Table I, and the differences between policies derived from them."""

    total_s: Mapping[RunName, float]
    """Mean total latency."""
    by_replication_s: Mapping[RunName, Sequence[float]]
    """Total latency of each replication; one value if only a table is at hand."""
    oracle_share: Mapping[Cell, float | None]
    """Share of the requests that the oracle offloads."""
    gap_percent: Mapping[Cell, Mapping[str, float]]
    """By source of loss, change of C-NMT's total time without it, percent; empty without a gap analysis."""

    @classmethod
    def of(
        cls, rows: Iterable[Row], gaps: Iterable[Row] = (), totals_s: Mapping[RunName, Sequence[float]] | None = None
    ) -> TableRun:
        """Read a run's rows, its gap analysis and its totals by replication; leave out all cells that Table I lacks."""
        table_rows = [
            row
            for row in rows
            if row["workload"] in published.WORKLOADS and row["network"] in published.NETWORKS and row["policy"] in ALL_POLICIES
        ]
        total_s = {(row["workload"], row["network"], row["policy"]): float(row["total_latency_s"]) for row in table_rows}
        shares = {
            (row["workload"], row["network"]): row.get("offloaded_share") for row in table_rows if row["policy"] == "oracle"
        }
        gap_percent: dict[Cell, dict[str, float]] = {}
        for row in gaps:
            if row["removed"] not in ("nothing", "everything"):
                gap_percent.setdefault((row["workload"], row["network"]), {})[row["removed"]] = row["change_percent"]
        by_replication = {name: (totals_s or {}).get(name, (value,)) for name, value in total_s.items()}
        return cls(total_s, by_replication, shares, gap_percent)

    @classmethod
    def joined(cls, runs: Sequence[TableRun]) -> TableRun:
        """Return runs of different data sets as one."""
        return cls(
            {name: value for run in runs for name, value in run.total_s.items()},
            {name: values for run in runs for name, values in run.by_replication_s.items()},
            {cell: share for run in runs for cell, share in run.oracle_share.items()},
            {cell: changes for run in runs for cell, changes in run.gap_percent.items()},
        )

    @property
    def replicated(self) -> bool:
        """True if replications show the noise of the differences."""
        return all(len(values) > 1 for values in self.by_replication_s.values())

    @property
    def idle(self) -> set[Cell]:
        """The cells where the oracle uses a single device, so that nothing can be gained."""
        return {cell for cell, share in self.oracle_share.items() if share in (0.0, 1.0)}

    def cells(self, *policies: str, without: Collection[Cell] = ()) -> list[Cell]:
        """Return the cells that have totals of all these policies, in the table's order."""
        every = product(published.WORKLOADS, published.NETWORKS)
        return [cell for cell in every if cell not in without and all((*cell, policy) in self.total_s for policy in policies)]

    def mean_s(self, cell: Cell, policy: str) -> float:
        """Return the mean total time of the replications."""
        values = self.by_replication_s[(*cell, policy)]
        return sum(values) / len(values)

    def excess(self, cell: Cell, policy: str, baseline: str, confidence: float = CONFIDENCE) -> Estimate:
        """Return by how many percent of the baseline's total time the policy takes more."""
        ours, theirs = self.by_replication_s[(*cell, policy)], self.by_replication_s[(*cell, baseline)]
        return change_percent(ours, theirs, confidence)

    def saving(self, cell: Cell, policy: str, baseline: str, confidence: float = CONFIDENCE) -> Estimate:
        """Return by how many percent of the baseline's total time the policy takes less."""
        more = self.excess(cell, policy, baseline, confidence)
        if more.low is None or more.high is None:
            return Estimate(-more.mean, None, None)
        return Estimate(-more.mean, -more.high, -more.low)

    def larger(self, cell: Cell, other: Cell, baseline: str, confidence: float = CONFIDENCE) -> Estimate:
        """Return by how many points C-NMT's excess over the baseline is larger in one cell than in another."""
        (ours, theirs), (others, their_others) = (
            (self.by_replication_s[(*where, "cnmt")], self.by_replication_s[(*where, baseline)]) for where in (cell, other)
        )
        if len(ours) == 1:
            return Estimate(100.0 * (ours[0] / theirs[0] - others[0] / their_others[0]), None, None)
        return difference_of_changes((ours, theirs), (others, their_others), confidence)

    def change_percent(self, workload: str, network: str, policy: str, baseline: str) -> float | None:
        """Return a cell of our Table I; None without totals of both."""
        policy_s, baseline_s = (self.total_s.get((workload, network, name)) for name in (policy, baseline))
        return None if policy_s is None or not baseline_s else 100 * (policy_s / baseline_s - 1)

    def changes(self) -> list[Change]:
        """Return the cells of Table I in its order, except those whose policy or baseline the run lacks."""
        cells = [(cell, self.change_percent(*cell)) for cell in published.table_cells()]
        return [Change(*cell, published.variation_percent(*cell), ours) for cell, ours in cells if ours is not None]

    def ratios(self) -> list[Ratio]:
        """Return the ratios that the run allows, in the table's order; all 24 for a run of Table I."""
        ratios = []
        for implied in published.all_implied_ratios():
            cell = (implied.workload, implied.network)
            gateway_s = self.total_s.get((*cell, "edge"))
            for policy, pair in implied.pairs.items():
                policy_s = self.total_s.get((*cell, policy))
                if gateway_s and policy_s is not None:
                    ratios.append(Ratio(*cell, policy, pair, policy_s / gateway_s))
        return ratios


@dataclass(frozen=True, slots=True)
class Change:
    """One of the 36 cells of Table I: the change of total time against a baseline, percent."""

    workload: str
    network: str
    policy: str
    baseline: str
    published_percent: float
    ours_percent: float

    @property
    def difference_points(self) -> float:
        """Our change minus the published one."""
        return self.ours_percent - self.published_percent


def mean_absolute_difference(changes: Sequence[Change]) -> float | None:
    """Return the mean over the cells of |ours - published| in percentage points; None without cells."""
    return sum(abs(change.difference_points) for change in changes) / len(changes) if changes else None


@dataclass(frozen=True, slots=True)
class Ratio:
    """A policy's total time over that of the gateway alone."""

    workload: str
    network: str
    policy: str
    published: tuple[float, float]
    """Implied by the Naive row and by the C-NMT row; the same number twice for Naive and C-NMT themselves."""
    ours: float

    @property
    def name(self) -> RunName:
        """Workload, network and policy."""
        return (self.workload, self.network, self.policy)

    @property
    def role(self) -> str:
        """`fitted` if the inferred profiles were fitted to the ratio, or `test` of that fit."""
        return "fitted" if (self.network, self.policy) in FITTED else "test"

    @property
    def target(self) -> float:
        """Mean of both derivations."""
        return sum(self.published) / 2

    @property
    def error(self) -> float:
        """Relative error: 0.01 if ours is 1 % above the target."""
        return self.ours / self.target - 1


def mean_absolute_errors(ratios: Iterable[Ratio]) -> dict[str, float]:
    """Return mean absolute relative errors: `all`, per data set, and for `fitted` and `test`; no key without a ratio."""
    groups: dict[str, list[float]] = {}
    for ratio in ratios:
        for group in ("all", ratio.workload, ratio.role):
            groups.setdefault(group, []).append(abs(ratio.error))
    return {group: sum(errors) / len(errors) for group, errors in groups.items()}


def describe_errors(ratios: Iterable[Ratio]) -> str:
    """Return the mean absolute errors of all ratios and of each group, in percent."""
    return ", ".join(f"{group} {100 * error:.2f} %" for group, error in mean_absolute_errors(ratios).items())


HEADS = [
    f"{network.upper()} {published.LABELS[baseline]}" for network in published.NETWORKS for baseline in published.BASELINES
]
"""Heads of the columns of Table I."""


@dataclass(frozen=True, slots=True)
class TableLine:
    """One line of Table I: a policy on a data set, published or of one of our runs."""

    workload: str
    policy: str
    origin: str
    changes: Sequence[float | None]
    """Percent, by column of `HEADS`."""


def table_lines(runs: Mapping[str, TableRun]) -> list[TableLine]:
    """Return the lines of Table I: for each policy on a data set the published line, then one of each run by origin."""
    columns = list(product(published.NETWORKS, published.BASELINES))
    changes = {"published": published.variation_percent} | {origin: run.change_percent for origin, run in runs.items()}
    return [
        TableLine(workload, policy, origin, [change(workload, network, policy, baseline) for network, baseline in columns])
        for workload, policy in published.TABLE_ONE
        for origin, change in changes.items()
    ]
