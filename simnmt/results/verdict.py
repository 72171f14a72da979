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
    """Lengths that C-NMT's rule keeps at the gateway at that transfer time, such as `up to 17 tokens`; empty if it never
    changes its mind, or if the sentence is about another rule."""
    best_offloaded_share: float
    """Share of requests whose execution plus transfer is truly least in the cloud."""
    queues: bool
    """Whether requests wait, so that the better device is not the whole story."""
    devices: Sequence[str]
    """Where requests may be executed, nearest first."""


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
    subject = next(row for row in rows if row["policy"] == roles.subject)
    # A reason why it wins; where it does not, the same facts explain nothing and only describe.
    link = ", because" if pair["change_percent"] < 0.0 and pair["verdict"] != "not distinguishable" else ";"
    described = f"with a transfer of {reason.transfer_s * 1e3:.0f} ms {_deed(subject, reason)}, {_best(oracle_share, reason)}"
    overload = _overload([row for row in rows if row["policy"] in (roles.subject, baseline)], reason.devices)
    return {**record, "sentence": f"{place}: {_outcome(roles.subject, baseline, pair)}{link} {described}.{overload}"}


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


def _deed(subject: Row, reason: Reason) -> str:
    """What the policy did with the requests."""
    away = subject["offloaded_share"]
    if away in (0.0, 1.0):
        return f"it sends {'everything' if away else 'nothing'} away"
    mostly = f"mostly keeps sentences of {reason.kept} at the gateway and " if reason.kept else ""
    return f"it {mostly}sends {100.0 * away:.0f} % away"


def _best(oracle_share: float | None, reason: Reason) -> str:
    """What would have been best."""
    if oracle_share is not None:
        return f"where the oracle sends {100.0 * oracle_share:.0f} %"
    left_out = ", queues left out," if reason.queues else ""
    return f"where the cloud{left_out} is truly faster for {100.0 * reason.best_offloaded_share:.0f} %"


def _overload(rows: Sequence[Row], devices: Sequence[str]) -> str:
    """A sentence per device that is asked for more than it can do."""
    return "".join(
        f" Under {row['policy']} the {device} is overloaded (load {load:.2f}): its queue grows as long as the run lasts."
        for row in rows
        for device in devices
        if (load := row.get(f"{device}_busiest_load")) is not None and load >= 1.0
    )
