"""The answer in a sentence: who beats the better single device, by how much, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simnmt.results.overload_words import beside, named, unstable_sentence
from simnmt.results.summary import Row
from simnmt.results.wording import duration

TRIVIAL_BELOW, TRIVIAL_ABOVE = 0.2, 0.8
"""Shares offloaded by the oracle outside which the choice is nearly trivial."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Which policies of a scenario play which part, by name."""

    subject: str
    """The policy that the sentence is about."""
    single_devices: Sequence[str]
    oracle: str | None
    variants: Mapping[str, str] = field(default_factory=dict)
    """Policies that go beyond the paper's, and the one that each is held against."""


@dataclass(frozen=True, slots=True)
class Reason:
    """What is behind a verdict."""

    transfer_s: float
    """Mean transfer time on this network, to the last device."""
    kept: str
    """Lengths that C-NMT's rule keeps at the first device at that transfer time, such as `up to 17 tokens`; empty if it never
    changes its mind, if there are more than two devices, or if the sentence is about another rule."""
    best_offloaded_share: float
    """Share of requests whose execution plus transfer is truly least on another device than the first."""
    queues: bool
    """Whether requests wait, so that the better device is not the whole story."""
    devices: Sequence[str] = ("gateway", "cloud")
    """Where requests may be executed, nearest first."""


def verdict(workload: str, network: str, rows: Sequence[Row], comparisons: Sequence[Row], roles: Roles, reason: Reason) -> Row:
    """The verdict on one workload and network, as a record with its `sentence`.

    `variants`: a sentence on the policies beyond the paper's, each held against the plain one; empty where there are none.
    """
    by_policy = {row["policy"]: row for row in rows}
    subject, oracle = by_policy[roles.subject], by_policy.get(roles.oracle or "")
    share = reason.best_offloaded_share if oracle is None else oracle["offloaded_share"]
    rivals = [by_policy[name] for name in roles.single_devices if name != roles.subject]
    # One that has a mean is better than any that has none, however short the run.
    baseline = min(rivals, key=lambda row: (bool(row.get("unstable")), row["total_latency_s"]), default=None)
    pair = next(
        (c for c in comparisons if baseline and (c["policy"], c["baseline"]) == (roles.subject, baseline["policy"])), None
    )
    record: dict[str, Any] = {
        "workload": workload,
        "network": network,
        "policy": roles.subject,
        **{key: pair and pair[key] for key in ("baseline", "change_percent", "low_percent", "high_percent")},
        "unstable": subject.get("unstable"),
        "oracle_offloaded_share": share,
        "trivial": share < TRIVIAL_BELOW or share > TRIVIAL_ABOVE,
        "variants": _variants(comparisons, roles.variants),
    }
    described = f"with a transfer of {reason.transfer_s * 1e3:.0f} ms {_deed(subject, reason)}, {_best(oracle, reason)}"
    return {**record, "sentence": f"{workload} on {network}: {_said(subject, baseline, rivals, pair, described)}"}


def _said(subject: Row, baseline: Row | None, rivals: Sequence[Row], pair: Row | None, described: str) -> str:
    """The sentence without its place."""
    if subject.get("unstable"):
        return f"{unstable_sentence(subject)}{beside(rivals)}"
    if baseline is None or pair is None:
        return f"{subject['policy']} takes {1e3 * subject['mean_latency_s']:.1f} ms on average; nothing to compare with."
    if baseline.get("unstable"):
        return (
            f"{subject['policy']} is stable and takes {duration(subject['mean_latency_s'])} on average, where no single device "
            f"holds: {', '.join(named(row) for row in rivals)}; {described}. Of these, {unstable_sentence(baseline)}"
        )
    # A reason why it wins; where it does not, the same facts explain nothing and only describe.
    link = ", because" if pair["change_percent"] < 0.0 and pair["verdict"] != "not distinguishable" else ";"
    return f"{_outcome(subject['policy'], baseline['policy'], pair)}{link} {described}."


def _outcome(subject: str, baseline: str, pair: Row) -> str:
    change, low, high = pair["change_percent"], pair["low_percent"], pair["high_percent"]
    better = f"the better single device ({baseline})"
    if low is None:
        if change == 0.0:
            return f"{subject} takes exactly as long as {better} [one replication: no interval]"
        beats = "beats" if change < 0.0 else "loses to"
        return f"{subject} {beats} {better} by {abs(change):.2f} % [one replication: no interval]"
    if pair["verdict"] == "same":
        return f"{subject} takes exactly as long as {better} in every replication"
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
    mostly = f"mostly keeps sentences of {reason.kept} at the {reason.devices[0]} and " if reason.kept else ""
    return f"it {mostly}sends {100.0 * away:.0f} % away"


def _best(oracle: Row | None, reason: Reason) -> str:
    """What would have been best."""
    if oracle is not None:
        return f"where the oracle sends {100.0 * oracle['offloaded_share']:.0f} %"
    left_out = ", queues left out," if reason.queues else ""
    better = f"the {reason.devices[1]}" if len(reason.devices) == 2 else "another device"
    return f"where {better}{left_out} is truly faster for {100.0 * reason.best_offloaded_share:.0f} %"


def _variants(comparisons: Sequence[Row], variants: Mapping[str, str]) -> str:
    """How the policies beyond the paper's do beside the plain one, each with its paired interval."""
    said: dict[str, list[str]] = {}
    for policy, plain in variants.items():
        for pair in comparisons:
            if (pair["policy"], pair["baseline"]) == (policy, plain):
                said.setdefault(plain, []).append(f"{policy} {_beside(pair)}")
    return " ".join(f"Beside {plain}: {', '.join(found)}." for plain, found in said.items())


def _beside(pair: Row) -> str:
    change, low, high, plain = pair["change_percent"], pair["low_percent"], pair["high_percent"], pair["baseline"]
    here = f"{change:+.2f} % in this run"
    unstable = {
        "policy": f"is unstable, as {plain} is not ({here})",
        "baseline": f"is stable, as {plain} is not ({here})",
        "both": f"is unstable, too ({here})",
    }
    if pair.get("unstable"):
        return unstable[pair["unstable"]]
    if pair["verdict"] == "same":
        return "is exactly as fast in every replication"
    interval = "one replication" if low is None else f"{low:+.2f}, {high:+.2f}"
    outcome = "is faster" if change < 0.0 else "is slower" if change > 0.0 else "is exactly as fast"
    if pair["verdict"] == "not distinguishable":
        outcome = "cannot be told apart"
    return f"{outcome} ({change:+.2f} % [{interval}])"
