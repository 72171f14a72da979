"""What is known instead of a mean where a queue grows for as long as requests come."""

from __future__ import annotations

from collections.abc import Sequence

from simnmt.results.stability import Overload, worst
from simnmt.results.summary import Row
from simnmt.results.wording import digits, duration

LONG_S = 60.0
"""A wait that nobody sits through: when it is reached tells how fast things go wrong."""


def known_instead(row: Row, overload: Overload) -> str:
    """How many requests the device could serve, how fast waits grow there, and how long the last request of this run waits."""
    policy, offered_rps = row["policy"], row["offered_rps"]
    lasts_s = row["requests"] / offered_rps
    last_s = overload.growth * lasts_s
    minute = f" to {duration(LONG_S)} after {duration(LONG_S / overload.growth)} and" if last_s > LONG_S else ""
    return (
        f"as {policy} shares them out it can take {digits(offered_rps / overload.load)} requests a second, where "
        f"{digits(offered_rps)} come; a wait there grows by {digits(overload.growth)} s each second,{minute} to "
        f"{duration(last_s)} by the time the last request of this run comes, {duration(lasts_s)} after its beginning"
    )


def named(row: Row) -> str:
    """A policy and its overload: `edge (gateway: load 1.30)`, or `cloud (load 1.30)` where it is called as its device."""
    return f"{row['policy']} ({_overload(row)})"


def _overload(row: Row) -> str:
    """The loads of what is overloaded; without the device's name where the policy has it and nothing else is."""
    said: str = row["unstable"]
    return said if ", " in said else said.removeprefix(f"{row['policy']}: ")


def unstable_sentence(row: Row) -> str:
    """That a policy has no mean to be known, why, and what is known instead."""
    overload = worst(row)
    assert overload is not None
    partly = f" in {overload.replications} of {overload.of} replications" if overload.replications < overload.of else ""
    return (
        f"{row['policy']} is unstable{partly}: load {overload.load:.2f} at the {overload.device}, which is asked for more than "
        f"it can do, so there is no mean to be known. Known is that {known_instead(row, overload)}."
    )


def beside(rows: Sequence[Row]) -> str:
    """A sentence on the single devices beside an unstable policy; empty where there are none."""
    if not rows:
        return ""
    stable = [row for row in rows if not row.get("unstable")]
    if len(rows) == 1 and not stable:
        return f" The single device {rows[0]['policy']} does not hold either ({_overload(rows[0])})."
    if not stable:
        return f" No single device holds either: {', '.join(named(row) for row in rows)}."
    best = min(stable, key=lambda row: row["mean_latency_s"])
    return f" The single device {best['policy']} is stable, with {duration(best['mean_latency_s'])} on average."
