"""The 24 ratios of Table I over the gateway's total: published both ways, ours, and what the fit has seen of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from simnmt.reproduce.cnmt import published
from simnmt.reproduce.cnmt.fit import FITTED
from simnmt.reproduce.cnmt.table_one import total_times

Role = Literal["fitted", "test"]


@dataclass(frozen=True, slots=True)
class Ratio:
    """One total time over the gateway's."""

    workload: str
    network: str
    policy: str
    published: tuple[float, float]
    """As the Naive row and as the C-NMT row imply it; the same number twice for Naive and C-NMT themselves."""
    ours: float
    role: Role
    """Whether the inferred profiles were fitted to it, or it is the test of that fit."""

    @property
    def target(self) -> float:
        """The mean of both derivations."""
        return sum(self.published) / 2

    @property
    def error(self) -> float:
        """Relative: 0.01 where ours is 1 % above the target."""
        return self.ours / self.target - 1


def compare_ratios(rows: Iterable[Mapping[str, Any]]) -> list[Ratio]:
    """The ratios that a run's rows allow, in the table's order; all 24 for a run of Table I."""
    total_s = total_times(rows)
    ratios = []
    for implied in published.all_implied_ratios():
        cell = (implied.workload, implied.network)
        gateway_s = total_s.get((*cell, "edge"))
        both = {
            "cloud": implied.server,
            "oracle": implied.oracle,
            "naive": (implied.naive, implied.naive),
            "cnmt": (implied.cnmt, implied.cnmt),
        }
        for policy, pair in both.items():
            policy_s = total_s.get((*cell, policy))
            if gateway_s and policy_s is not None:
                role: Role = "fitted" if (implied.network, policy) in FITTED else "test"
                ratios.append(Ratio(*cell, policy, pair, policy_s / gateway_s, role))
    return ratios


def mean_absolute_errors(ratios: Iterable[Ratio]) -> dict[str, float]:
    """Mean absolute relative error: `all`, per data set, and apart for `fitted` and `test`; no key without a ratio."""
    groups: dict[str, list[float]] = {}
    for ratio in ratios:
        for group in ("all", ratio.workload, ratio.role):
            groups.setdefault(group, []).append(abs(ratio.error))
    return {group: sum(errors) / len(errors) for group, errors in groups.items()}


def ratios_as_text(ratios: Iterable[Ratio]) -> str:
    """The ratios and their errors for a terminal."""
    ratios = list(ratios)
    lines = [
        "Total time over the gateway's (Table I of Chen et al., ISCAS 2022, and ours)",
        f"{'data':<6} {'network':<7} {'policy':<7} {'published, two ways':>20} {'ours':>8} {'error %':>8}  role",
    ]
    for ratio in ratios:
        one, other = ratio.published
        both = f"{one:.4f}" if one == other else f"{one:.4f} | {other:.4f}"
        lines.append(
            f"{ratio.workload.upper():<6} {ratio.network.upper():<7} {published.LABELS[ratio.policy]:<7} {both:>20} "
            f"{ratio.ours:>8.4f} {100 * ratio.error:>+8.2f}  {ratio.role}"
        )
    told = ", ".join(f"{group} {100 * error:.2f} %" for group, error in mean_absolute_errors(ratios).items())
    return "\n".join([*lines, f"mean absolute error: {told}"])
