"""What is known instead of a mean where a queue grows for as long as requests arrive."""

from __future__ import annotations

from simnmt.results.stability import Overload, worst
from simnmt.results.summary import Row
from simnmt.results.wording import digits, duration

LONG_S = 60.0
"""A wait that nobody sits through: the time at which it is reached shows how fast the queue grows."""


def unstable_sentence(row: Row) -> str:
    """Return that a policy has no steady mean, why, and what is known instead."""
    overload = worst(row)
    assert overload is not None
    partly = f" in {overload.replications} of {overload.of} replications" if overload.replications < overload.of else ""
    return (
        f"{row['policy']} is unstable{partly}: the {overload.device} has load {overload.load:.2f}, more work than it can do, "
        f"so there is no steady mean. {_known_instead(row, overload)}."
    )


def _known_instead(row: Row, overload: Overload) -> str:
    """How many requests the device can serve, how fast the wait grows, and how long the last request of this run waits."""
    policy, offered_rps = row["policy"], row["offered_rps"]
    lasts_s = row["requests"] / offered_rps
    last_s = overload.growth * lasts_s
    minute = f"reaches {duration(LONG_S)} after {duration(LONG_S / overload.growth)} and " if last_s > LONG_S else "reaches "
    return (
        f"As {policy} divides the requests, the {overload.device} can take {digits(offered_rps / overload.load)} requests per "
        f"second, but {digits(offered_rps)} arrive; the wait there grows by {digits(overload.growth)} s per second, {minute}"
        f"{duration(last_s)} when the last request of this run arrives, after {duration(lasts_s)}"
    )


def named(row: Row) -> str:
    """Return a policy and its overload: `edge (gateway: load 1.30)`, or `cloud (load 1.30)` if it has the device's name."""
    overloads: str = row["unstable"]
    shown = overloads if ", " in overloads else overloads.removeprefix(f"{row['policy']}: ")
    return f"{row['policy']} ({shown})"
