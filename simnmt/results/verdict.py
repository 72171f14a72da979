"""The answer in a sentence: who beats the better single device, by how much, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simnmt.results.summary import Row

TRIVIAL_BELOW, TRIVIAL_ABOVE = 0.2, 0.8
"""Shares offloaded by the oracle outside which the choice is nearly trivial."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Which policies of a scenario play which part, by name."""

    subject: str
    """The policy that the sentence is about."""
    single_devices: Sequence[str]
    oracle: str | None


@dataclass(frozen=True, slots=True)
class Reason:
    """What is behind a verdict."""

    transfer_s: float
    """Mean transfer time on this network."""
    kept: str
    """Lengths that the rule keeps at the gateway at that transfer time, such as `up to 17 words`; empty if it never changes."""
    best_offloaded_share: float
    """Share of requests whose execution plus transfer is truly least in the cloud."""
    queues: bool
    """Whether requests wait, so that the better device is not the whole story."""


def verdict(workload: str, network: str, rows: Sequence[Row], comparisons: Sequence[Row], roles: Roles, reason: Reason) -> Row:
    """The verdict on one workload and network, as a record with its `sentence`."""
    totals = {row["policy"]: row["total_latency_s"] for row in rows}
    oracle_share = next((row["offloaded_share"] for row in rows if row["policy"] == roles.oracle), None)
    share = reason.best_offloaded_share if oracle_share is None else oracle_share
    trivial = share < TRIVIAL_BELOW or share > TRIVIAL_ABOVE
    record: dict[str, Any] = {
        "workload": workload,
        "network": network,
        "policy": roles.subject,
        "baseline": None,
        "change_percent": None,
        "low_percent": None,
        "high_percent": None,
        "oracle_offloaded_share": share,
        "trivial": trivial,
    }
    place = f"{workload} on {network}"
    rivals = [name for name in roles.single_devices if name != roles.subject]
    if not rivals:
        mean_ms = 1e3 * next(row["mean_latency_s"] for row in rows if row["policy"] == roles.subject)
        return {**record, "sentence": f"{place}: {roles.subject} takes {mean_ms:.1f} ms on average; nothing to compare with."}
    baseline = min(rivals, key=totals.__getitem__)
    pair = next(row for row in comparisons if row["policy"] == roles.subject and row["baseline"] == baseline)
    record |= {key: pair[key] for key in ("baseline", "change_percent", "low_percent", "high_percent")}
    # A reason why it wins; where it does not, the same facts explain nothing and only describe.
    link = ", because" if pair["change_percent"] < 0.0 and pair["verdict"] != "not distinguishable" else ";"
    described = _described(reason, share if trivial else None)
    return {**record, "sentence": f"{place}: {_outcome(roles.subject, baseline, pair)}{link} {described}."}


def _outcome(subject: str, baseline: str, pair: Row) -> str:
    change, low, high = pair["change_percent"], pair["low_percent"], pair["high_percent"]
    better = f"the better single device ({baseline})"
    if low is None:
        if change == 0.0:
            return f"{subject} takes exactly as long as {better} [one replication: no interval]"
        beats = "beats" if change < 0.0 else "loses to"
        return f"{subject} {beats} {better} by {abs(change):.2f} % [one replication: no interval]"
    if pair["verdict"] == "not distinguishable":
        return f"{subject} and {better} cannot be told apart ({change:+.2f} % [{low:+.2f}, {high:+.2f}])"
    beats = "beats" if change < 0.0 else "loses to"
    smaller, larger = sorted((abs(low), abs(high)))
    return f"{subject} {beats} {better} by {abs(change):.2f} % [{smaller:.2f}, {larger:.2f}]"


def _described(reason: Reason, trivial_share: float | None) -> str:
    """`trivial_share`: the oracle's, where the choice is nearly trivial; with queues it differs from what is fastest alone."""
    share = 100.0 * reason.best_offloaded_share
    link = f"a transfer of {reason.transfer_s * 1e3:.0f} ms"
    fastest = f"the cloud is truly faster for {share:.0f} % of the requests"
    if reason.queues:
        fastest += ", queues left out"
    if trivial_share is not None:
        where = "the gateway" if trivial_share < TRIVIAL_BELOW else "the cloud"
        return f"with {link} {fastest}, and {where} is almost always right"
    if not reason.kept:
        return f"with {link} the rule never changes its mind, though {fastest}"
    return f"with {link} sentences of {reason.kept} are better kept at the gateway and {fastest}"
