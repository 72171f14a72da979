"""The gap analysis in words: which wrong belief costs how much, and where a truth alone makes things worse (CNMT-19)."""

from __future__ import annotations

from collections.abc import Sequence

from simnmt.results.summary import Row
from simnmt.results.wording import format_interval, percent_interval

TRUTHS = {
    "length regression": "the true target lengths",
    "scatter of execution times": "the true execution times for the lengths it expects",
    "stale transfer time": "the present transfer time",
    "unseen queues": "the true waits",
    "unseen queues and states": "the true waits and states of streamed models",
    "unseen states": "the true states of streamed models",
    "everything": "the truth of all that it must guess",
}
"""What removes a source of loss."""


def gap_sentences(gaps: Sequence[Row], rows: Sequence[Row] = ()) -> list[str]:
    """One sentence per source of loss of one workload and network, and one on what they make together.

    `rows`: the same workload's and network's, to tell whether the policy has a mean to be known as it is.
    """
    if not gaps:
        return []
    at_best = next(row for row in gaps if row["removed"] == "everything")
    sources = [row for row in gaps if row["removed"] not in ("nothing", "everything")]
    policy = at_best["policy"]
    whole = {"faster": "that is the whole gap", "unclear": "there is no gap that could be told from chance"}
    outcome = whole.get(_outcome(at_best), "its beliefs leave no gap to be explained")
    sentences = [f"Told {TRUTHS['everything']}, {policy} would be {_effect(at_best)}: {outcome}."]
    sentences += [
        f"Told {TRUTHS.get(row['removed'], row['removed'])} alone, it would be {_effect(row)}{_share(row, at_best)}."
        for row in sources
    ]
    unstable = next((row.get("unstable") for row in rows if row["policy"] == policy), None)
    if unstable:
        sentences.append(
            f"As it is, {policy} is unstable ({unstable}): these changes are this run's and depend on how long it lasts."
        )
    if any(row["removed"].endswith("states") and _outcome(row) == "slower" for row in sources):
        sentences.append("Who knows the states weighs one request at a time, and may never warm a model for those that follow.")
    elif any(_outcome(row) == "slower" for row in sources):
        sentences.append("A truth alone makes things worse where two wrong beliefs had made up for each other.")
    if sum(row["change_percent"] for row in sources) < 1.2 * at_best["change_percent"] < 0.0:
        sentences.append(
            "The sources overlap: removing one also removes part of what the others cost, so their shares add up to more."
        )
    return sentences


def is_gap(gaps: Sequence[Row]) -> bool:
    """Whether the truth of all that a policy must guess would make it faster beyond chance, so that there is a gap to share."""
    return any(row["removed"] == "everything" and _outcome(row) == "faster" for row in gaps)


def _outcome(row: Row) -> str:
    if row["low_percent"] is None:
        return "faster" if row["change_percent"] < 0.0 else "slower" if row["change_percent"] > 0.0 else "the same"
    if row["low_percent"] == row["high_percent"] == 0.0:
        return "the same"
    if row["low_percent"] > 0.0 or row["high_percent"] < 0.0:
        return "faster" if row["change_percent"] < 0.0 else "slower"
    return "unclear"


def _effect(row: Row) -> str:
    change, low, high, outcome = row["change_percent"], row["low_percent"], row["high_percent"], _outcome(row)
    if outcome == "the same":
        return "exactly as fast " + ("in every replication" if low is not None else "[one replication: no interval]")
    if outcome == "unclear":
        return f"no different beyond the interval ({percent_interval(change, low, high)})"
    size, interval = format_interval(change, low, high, signs="none")
    return f"{size} % {outcome} {interval or '[one replication: no interval]'}"


def _share(row: Row, at_best: Row) -> str:
    """Which part of the gap it makes, where there is one and it makes a part of it."""
    share = row["share_of_gap_percent"]
    if share is None or _outcome(row) != "faster" or _outcome(at_best) != "faster":
        return ""
    return f", {share:.0f} % of the gap"
