"""Table I of C-NMT as printed, the ratios that it implies, and a run of it as the facts of claims (CNMT-15, 16)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any

from simnmt.papers.kit.claims import Facts
from simnmt.papers.kit.paper import read_paper
from simnmt.results.statistics import CONFIDENCE, Estimate, change_percent, difference_of_changes
from simnmt.results.summary import Row

PAPER = read_paper("cnmt")
TABLE = PAPER.table("table-one")
WORKLOADS = ("de-en", "fr-en", "en-zh")
NETWORKS = ("cp1", "cp2")
POLICIES = ("naive", "cnmt")
"""The policies with a row in the table."""
BASELINES = ("edge", "cloud", "oracle")
"""The policies of the table's columns, in its order."""
ALL_POLICIES = (*BASELINES, *POLICIES)
LABELS = {"edge": "GW", "cloud": "Server", "oracle": "Oracle", "naive": "Naive", "cnmt": "C-NMT"}
"""The paper's names of simnmt's policies."""
TRANSFORMER = "en-zh"
"""The data set that the paper translates by a Transformer."""
FITTED = (("cp1", "cloud"), ("cp1", "oracle"), ("cp1", "naive"), ("cp1", "cnmt"), ("cp2", "cloud"))
"""The ratios (network, policy) that the inferred profiles were fitted to, per data set; the other three are the test."""

Cell = tuple[str, str]
"""(workload, network)."""
RunName = tuple[str, str, str]
"""(workload, network, policy)."""
CELLS: list[Cell] = list(product(WORKLOADS, NETWORKS))


def name_cell(cell: Cell) -> str:
    return f"{cell[0].upper()} {cell[1].upper()}"


def printed_percent(workload: str, network: str, policy: str, baseline: str) -> float:
    return float(TABLE[workload, policy, f"{network} {baseline}"])


def table_cells() -> list[tuple[str, str, str, str]]:
    """Return workload, network, policy and baseline of the 36 cells, in the table's order."""
    columns = list(product(NETWORKS, BASELINES))
    return [(row["workload"], network, row["policy"], baseline) for row in TABLE.rows for network, baseline in columns]


def implied_ratios(cell: Cell) -> dict[str, tuple[float, float]]:
    """Return by policy the total time over the gateway's, as the Naive row and as the C-NMT row imply it (CNMT-16).

    In eleven of twelve cases the two differ by more than the rounding: the paper's baselines were not one fixed run per cell.
    """
    naive, cnmt = (
        {baseline: 1 + printed_percent(*cell, policy, baseline) / 100 for baseline in BASELINES} for policy in POLICIES
    )
    pairs = {policy: (naive["edge"] / naive[policy], cnmt["edge"] / cnmt[policy]) for policy in ("cloud", "oracle")}
    return pairs | {"naive": (naive["edge"],) * 2, "cnmt": (cnmt["edge"],) * 2}


@dataclass(frozen=True)
class TableRun(Facts):
    """The totals of a run of Table I, and the differences between policies derived from them."""

    by_replication_s: Mapping[RunName, Sequence[float]]
    """Total latency of each replication; one value if only a table is at hand."""
    oracle_share: Mapping[Cell, float | None]
    """Share of the requests that the oracle offloads."""
    gap_percent: Mapping[Cell, Mapping[str, float]]
    """By source of loss, change of C-NMT's total time without it, percent; empty without a gap analysis."""
    basis: str = "unknown"
    device: str = ""
    """Name of the profiles that it ran on."""

    @classmethod
    def of(
        cls,
        rows: Iterable[Row],
        gaps: Iterable[Row] = (),
        totals_s: Mapping[RunName, Sequence[float]] | None = None,
        **named: str,
    ) -> TableRun:
        """Read a run's rows, its gap analysis and its totals by replication; leave out all cells that Table I lacks."""
        by_name = {(row["workload"], row["network"], row["policy"]): row for row in rows}
        by_name = {name: row for name, row in by_name.items() if name[:2] in CELLS and name[2] in ALL_POLICIES}
        gap_percent: dict[Cell, dict[str, float]] = {}
        for gap in gaps:
            if gap["removed"] not in ("nothing", "everything"):
                gap_percent.setdefault((gap["workload"], gap["network"]), {})[gap["removed"]] = gap["change_percent"]
        return cls(
            {name: (totals_s or {}).get(name, (float(row["total_latency_s"]),)) for name, row in by_name.items()},
            {name[:2]: row.get("offloaded_share") for name, row in by_name.items() if name[2] == "oracle"},
            gap_percent,
            **named,
        )

    def cells(self, *policies: str, idle: bool = True) -> list[Cell]:
        """Return the cells that have totals of all these policies, in the table's order.

        Without `idle` those are left out where the oracle uses a single device, so that nothing can be gained.
        """
        return [
            cell
            for cell in CELLS
            if all((*cell, policy) in self.by_replication_s for policy in policies)
            and (idle or self.oracle_share.get(cell) not in (0.0, 1.0))
        ]

    def total_s(self, cell: Cell, policy: str) -> float:
        return fmean(self.by_replication_s[(*cell, policy)])

    def excess(self, cell: Cell, policy: str, baseline: str, confidence: float = CONFIDENCE) -> Estimate:
        """Return by how many percent of the baseline's total time the policy takes more."""
        ours, theirs = self.by_replication_s[(*cell, policy)], self.by_replication_s[(*cell, baseline)]
        return change_percent(ours, theirs, confidence)

    def saving(self, cell: Cell, baseline: str, confidence: float = CONFIDENCE) -> Estimate:
        """Return by how many percent of the baseline's total time C-NMT takes less."""
        more = self.excess(cell, "cnmt", baseline, confidence)
        if more.low is None or more.high is None:
            return Estimate(-more.mean, None, None)
        return Estimate(-more.mean, -more.high, -more.low)

    def larger(self, cell: Cell, other: Cell, baseline: str, confidence: float = CONFIDENCE) -> Estimate:
        """Return by how many points C-NMT's excess over the baseline is larger in one cell than in another."""
        totals_s = self.by_replication_s
        first, second = ((totals_s[(*where, "cnmt")], totals_s[(*where, baseline)]) for where in (cell, other))
        return difference_of_changes(first, second, confidence)

    def change_percent(self, workload: str, network: str, policy: str, baseline: str) -> float | None:
        cell = workload, network
        return self.excess(cell, policy, baseline).mean if cell in self.cells(policy, baseline) else None

    def ratios(self) -> dict[RunName, float]:
        """Return the total times over that of the gateway alone, of Table I's order; 24 of a whole run."""
        return {
            (*cell, policy): self.total_s(cell, policy) / self.total_s(cell, "edge")
            for cell in CELLS
            for policy in ("cloud", "oracle", "naive", "cnmt")
            if cell in self.cells("edge", policy)
        }


def ratio_rows(run: TableRun) -> list[dict[str, Any]]:
    """Return each ratio of the run beside the published ones, with the relative error against their mean.

    `role`: `fitted` if the inferred profiles were fitted to the ratio, or `test` of that fit.
    """
    rows = []
    for (workload, network, policy), ours in run.ratios().items():
        printed = implied_ratios((workload, network))[policy]
        names = {"workload": workload, "network": network, "policy": policy, "published": list(printed)}
        role = "fitted" if (network, policy) in FITTED else "test"
        rows.append(names | {"role": role, "error": ours / fmean(printed) - 1, "inferred": ours})
    return rows


def mean_absolute_errors(rows: Sequence[Row]) -> dict[str, float]:
    """Return mean absolute relative errors: `all`, per data set, and for `fitted` and `test`; no key without a ratio."""
    errors = [(group, abs(row["error"])) for row in rows for group in ("all", row["workload"], row["role"])]
    return {group: fmean(error for member, error in errors if member == group) for group in dict(errors)}


def describe_errors(rows: Sequence[Row]) -> str:
    return ", ".join(f"{group} {100 * error:.2f} %" for group, error in mean_absolute_errors(rows).items())
