"""Describe the recommendation and the gap analysis (CNMT-19) in sentences.

They name the policy to deploy, its margin, the distance to the oracle and the reason; then the cost of each wrong belief of a
policy, and where one truth alone makes things worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simnmt.base.suggestions import format_list
from simnmt.results.number_text import duration, format_interval, percent, percent_interval
from simnmt.results.precision import describe_short_tail
from simnmt.results.recommendation import Roles
from simnmt.results.service_level import Assessment, Requirement
from simnmt.results.simplicity import is_tie
from simnmt.results.stability import describe_overload, format_unstable_policy
from simnmt.results.summary import Row, format_objective, objective_name


@dataclass(frozen=True, slots=True)
class Reason:
    """The facts behind a recommendation."""

    transfer_s: float
    """Mean transfer time on this network, to the last device."""
    kept: Mapping[str, str]
    """By policy, the source lengths that C-NMT's rule keeps at the first device at that transfer time, such as `up to 17
    tokens`; without policies that have no such border."""
    best_offloaded_share: float
    """Share of requests whose execution plus transfer is truly least on another device than the first."""
    queues: bool
    """True if requests wait, so that the fastest device alone is not always the best."""
    devices: Sequence[str] = ("gateway", "cloud")
    """Where requests may be executed, nearest first."""


def describe_recommendation(
    recommendation: Row, rows: Sequence[Row], comparisons: Sequence[Row], roles: Roles, reason: Reason
) -> Row:
    """Return the sentences on one workload and network, the same for the terminal and the page.

    Args:
        recommendation: the record of `recommendation.recommend`.
        rows, comparisons: those of the same workload and network.
        roles: the policies by role.
        reason: the facts behind the recommendation.

    Returns:
        `sentence`: which policies lose requests, what to deploy, and its change against each fixed policy and the runner-up.
        `service_level`: how it meets each requirement. `caution`: that the intervals are not reliable, if requests are too few.
        `gap`: the distance to the oracle. `reason`: the decisions of the policy, `short_reason`: the same in a clause.
        `triviality`: the worth of the choice, if that is small. `variants`: how policies beyond the paper's compare with the
        plain one. All but the first may be empty.
    """
    by_policy = {row["policy"]: row for row in rows}
    policy = recommendation["policy"]
    place = f"{recommendation['workload']} on {recommendation['network']}"
    record: Row = {"workload": recommendation["workload"], "network": recommendation["network"]}
    variants = _variants(comparisons, roles.variants)
    if policy is None:
        what = "no policy to recommend; the oracle is a bound on what routing can reach, not a policy that can be deployed"
        empty = dict.fromkeys(("service_level", "caution", "gap", "reason", "short_reason", "triviality"), "")
        return record | {"sentence": f"{place}: {what}.", **empty, "variants": variants}
    stable = recommendation["unstable"] is None
    head = _headline(recommendation, roles, by_policy) if stable else _none_stable(by_policy, policy, roles)
    oracle = by_policy.get(roles.oracle or "")
    return record | {
        "sentence": f"{place}: {_losses(recommendation)}{head}{_service_level(recommendation)}",
        "service_level": _assessments(recommendation),
        "caution": _caution(recommendation, by_policy[policy]),
        "gap": _gap(recommendation),
        "reason": _offloading_reason(by_policy[policy], oracle, reason),
        "short_reason": _short_offloading_reason(by_policy[policy], oracle, reason),
        "triviality": _triviality(recommendation),
        "variants": variants,
    }


def _losses(record: Row) -> str:
    """Describe which deployable policies lose requests; empty if none does."""
    shares = [f"{name} ({percent(share)})" for name, share in record["lost_shares"].items()]
    return f"requests are lost by {format_list(shares)}; " if shares else ""


def _headline(record: Row, roles: Roles, by_policy: Mapping[str, Row]) -> str:
    """Return the sentence on what to deploy, with its gain over each fixed policy and the runner-up."""
    policy, what = record["policy"], objective_name(record["objective"])
    answered = " of its answered requests" if policy in record["lost_shares"] else ""
    unclear = [name for name in record["indistinguishable"] if name not in record["as_good"]]
    against = [
        f"{_change(pair, 'change')} against {pair['baseline']}"
        + " (not distinguishable)" * (pair["baseline"] in unclear)
        + " (no difference)" * (pair["baseline"] in record["as_good"])
        for pair in record["against"]
    ]
    named = [pair["baseline"] for pair in record["against"]]
    unstable = [format_unstable_policy(by_policy[name]) for name in roles.deployable if by_policy[name].get("unstable")]
    lists = {
        "As good": [name for name in record["as_good"] if name not in named],
        "Not distinguishable": [name for name in unclear if name not in named],
        "Unstable": unstable,
    }
    changes = f": {', '.join(against)}" if against else ""
    alone = " (the only deployable policy)" if len(roles.deployable) == 1 else ""
    rest = "".join(f" {head}: {format_list(names)}." for head, names in lists.items() if names)
    return f"deploy {policy}{alone}, with a {what}{answered} of {_objective(record, interval=True)}{changes}.{rest}"


def _caution(record: Row, row: Row) -> str:
    """Describe that the recommendation's changes are not reliable; empty if the requests suffice or no change is shown."""
    shown = any(record[name] is not None for name in ("margin", "above_oracle", "spread", "over_fixed"))
    return describe_short_tail(record["objective"], row["requests"], row["replications"]) if shown else ""


def _none_stable(by_policy: Mapping[str, Row], policy: str, roles: Roles) -> str:
    """Describe a cell in which every deployable policy is overloaded."""
    others = [format_unstable_policy(by_policy[name]) for name in roles.deployable if name != policy]
    first = "no deployable policy is stable, so none can be recommended without more servers. " if others else ""
    rest = f" The others: {format_list(others)}." if others else ""
    closest = f"{policy} comes closest. " if others else ""
    return f"{first}{closest}{describe_overload(by_policy[policy])}{rest}"


def _service_level(record: Row) -> str:
    if not record["slo"]:
        return ""
    limits = format_list([Requirement.parse(text).describe() for text in record["slo"]])
    if not record["slo_met"]:
        return f" No policy meets the service level ({limits}); {record['policy']} comes closest."
    unsure = ", but a limit lies within the interval over replications" if record["policy"] in record["slo_uncertain"] else ""
    clear = [name for name in record["slo_missed_by"] if name not in record["slo_uncertain"]]
    unclear = [name for name in record["slo_missed_by"] if name in record["slo_uncertain"]]
    missed = f" Missed by {format_list(clear)}." if clear else ""
    if unclear:
        missed += f" Missed on average by {format_list(unclear)}, with a limit within the interval over replications."
    return f" It meets the service level ({limits}){unsure}.{missed}"


def _assessments(record: Row) -> str:
    """Describe how the recommended policy meets each requirement of the service level; empty without one."""
    assessments = [Assessment.of_json(one) for one in record["slo_assessments"]]
    return f"{record['policy']}: {'; '.join(map(str, assessments))}." if assessments else ""


def _gap(record: Row) -> str:
    """Describe the distance to the oracle."""
    above, policy, fixed = record["above_oracle"], record["policy"], record["best_fixed"]
    if above is None:
        return ""
    what = objective_name(record["objective"])
    if is_tie(1.0 + above, 1.0):
        return f"{policy} reaches the {what} of the oracle."
    first = f"Against the oracle the {what} of {policy} differs by {_change(record, 'above_oracle')}"
    if above < 0.0:
        return f"{first}: the oracle minimises the latency of one request at a time and so is no bound here."
    if record["gap_left"] is None:
        return f"{first}."
    if policy == fixed:
        return f"{first}, all of which routing per request could gain at most."
    gap = f"the gap between the best fixed policy ({fixed}) and the oracle"
    return f"{first}; {percent(record['gap_left'])} of {gap} is left."


def _offloading_reason(row: Row, oracle: Row | None, reason: Reason) -> str:
    """Describe the share of requests that the recommended policy and the oracle offload."""
    policy, away = row["policy"], row["offloaded_share"]
    devices = reason.devices
    if len(devices) == 1:
        return f"{devices[0]} is the only device, so every request is executed there."
    there = _format_destination(devices)
    kept = _kept_lengths(row, reason)
    kept = f"keeps most sentences of {kept} at the {devices[0]} and " if kept else ""
    first = (
        f"With a mean transfer time of {duration(reason.transfer_s)}, {policy} {kept}{_format_offloaded_share(away)} {there}"
    )
    if oracle is not None:
        return f"{first}; the oracle {_format_offloaded_share(oracle['offloaded_share'])} there."
    faster = f"the {devices[1]}" if len(devices) == 2 else "another device"
    alone = " if nothing waits" if reason.queues else ""
    return f"{first}; {faster} is truly faster for {percent(reason.best_offloaded_share)} of them{alone}."


def _short_offloading_reason(row: Row, oracle: Row | None, reason: Reason) -> str:
    """Describe the same as `_offloading_reason` in a clause, for a list of many workloads and networks."""
    devices = reason.devices
    if len(devices) == 1:
        return f"{devices[0]} is the only device"
    kept = _kept_lengths(row, reason)
    kept = f"keeps {kept} and " if kept else ""
    best = reason.best_offloaded_share if oracle is None else oracle["offloaded_share"]
    bound = f"for {percent(best)} it is truly faster" if oracle is None else f"the oracle {percent(best)}"
    deed = f"{row['policy']} {kept}{_format_offloaded_share(row['offloaded_share'])} {_format_destination(devices)}"
    return f"transfer {duration(reason.transfer_s)}; {deed}, {bound}"


def _format_destination(devices: Sequence[str]) -> str:
    return f"to the {devices[1]}" if len(devices) == 2 else f"away from the {devices[0]}"


def _kept_lengths(row: Row, reason: Reason) -> str:
    """Return the source lengths that a policy keeps at the first device; empty if nearly all requests are sent to one side."""
    return reason.kept.get(row["policy"], "") if 0.01 <= row["offloaded_share"] <= 0.99 else ""


def _format_offloaded_share(share: float) -> str:
    if share in (0.0, 1.0):
        return f"sends {'every request' if share else 'no request'}"
    return f"sends {percent(share)} of the requests"


def _triviality(record: Row) -> str:
    """Describe that the choice is worth little or a fixed policy suffices; empty if neither holds."""
    what, fixed, policy = objective_name(record["objective"]), record["best_fixed"], record["policy"]
    if record["trivial"] and record["runner_up"] is None:
        return "There is nothing to choose: all deployable policies are equally good."
    if record["trivial"]:
        worst = f"{record['worst']}, the worst deployable policy"
        return (
            f"The choice is nearly trivial: the {what} of {worst}, differs from the best by only {_change(record, 'spread')}."
        )
    if not record["fixed_suffices"]:
        return ""
    if fixed == policy:
        return f"A fixed policy suffices: no policy that routes each request does much better than {fixed}."
    return f"A fixed policy suffices: {policy} changes the {what} of {fixed} by only {_change(record, 'over_fixed')}."


def _change(record: Row, name: str) -> str:
    """Return a relative change in percent with its sign and interval, digits as the interval allows."""
    ends = (None if record[f"{name}{end}"] is None else 100.0 * record[f"{name}{end}"] for end in ("", "_low", "_high"))
    value, low, high = ends
    assert value is not None
    return percent(value / 100.0, signed=True) if low is None else percent_interval(value, low, high)


def _variants(comparisons: Sequence[Row], variants: Mapping[str, str]) -> str:
    """Describe how the policies beyond the paper's compare with the plain one, with the paired interval of the total time."""
    effects: dict[str, list[str]] = {}
    for policy, plain in variants.items():
        for pair in comparisons:
            if (pair["policy"], pair["baseline"]) == (policy, plain):
                effects.setdefault(plain, []).append(f"{policy} {_variant_effect(pair)}")
    return " ".join(f"Total time against {plain}: {', '.join(of_plain)}." for plain, of_plain in effects.items())


def _variant_effect(pair: Row) -> str:
    change, low, high = pair["change_percent"], pair["low_percent"], pair["high_percent"]
    if pair.get("unstable"):
        unstable = {"policy": pair["policy"], "baseline": pair["baseline"], "both": "both"}[pair["unstable"]]
        return f"{change:+.2f} % in this run (unstable: {unstable})"
    remark = {"same": " (no difference)", "not distinguishable": " (not distinguishable)"}.get(pair["verdict"], "")
    return f"{percent_interval(change, low, high)}{remark}"


TRUTH_NAMES = {
    "length regression": "the true target lengths",
    "scatter of execution times": "the true execution times for the lengths it expects",
    "stale transfer time": "the present transfer time",
    "unseen queues": "the true waits",
    "unseen queues and states": "the true waits and states of streamed models",
    "unseen states": "the true states of streamed models",
    "everything": "the truth of all that it must estimate",
}
"""The truth that removes a source of loss."""


def gap_sentences(gaps: Sequence[Row], rows: Sequence[Row] = ()) -> list[str]:
    """Return one sentence per source of loss of one workload and network, and one on all of them together.

    `rows`: those of the same workload and network, in which the policy may be unstable.
    """
    if not gaps:
        return []
    at_best = next(row for row in gaps if row["removed"] == "everything")
    sources = [row for row in gaps if row["removed"] not in ("nothing", "everything")]
    policy = at_best["policy"]
    whole = {"faster": "that is the whole gap", "unclear": "there is no gap that could be told from chance"}
    outcome = whole.get(_gap_outcome(at_best), "its beliefs leave no gap to be explained")
    sentences = [f"With {TRUTH_NAMES['everything']}, {policy} would be {_gap_effect(at_best)}: {outcome}."]
    sentences += [
        f"With {TRUTH_NAMES.get(row['removed'], row['removed'])} alone, it would be {_gap_effect(row)}"
        f"{_format_gap_share(row, at_best)}."
        for row in sources
    ]
    unstable = next((row.get("unstable") for row in rows if row["policy"] == policy), None)
    if unstable:
        sentences.append(
            f"As it is, {policy} is unstable ({unstable}): these changes are this run's and depend on how long it lasts."
        )
    if any(row["removed"].endswith("states") and _gap_outcome(row) == "slower" for row in sources):
        sentences.append(
            "A policy that knows the states considers one request at a time, and may never warm a model for later ones."
        )
    elif any(_gap_outcome(row) == "slower" for row in sources):
        sentences.append("A single truth makes things worse if two wrong beliefs had compensated each other.")
    if sum(row["change_percent"] for row in sources) < 1.2 * at_best["change_percent"] < 0.0:
        sentences.append(
            "The sources overlap: removing one also removes part of what the others cost, so their shares add up to more."
        )
    return sentences


def is_gap(gaps: Sequence[Row]) -> bool:
    """Return whether a policy would be faster beyond chance if it knew everything that it must estimate."""
    return any(row["removed"] == "everything" and _gap_outcome(row) == "faster" for row in gaps)


def _gap_outcome(row: Row) -> str:
    if row["low_percent"] is None:
        return "faster" if row["change_percent"] < 0.0 else "slower" if row["change_percent"] > 0.0 else "the same"
    if row["low_percent"] == row["high_percent"] == 0.0:
        return "the same"
    if row["low_percent"] > 0.0 or row["high_percent"] < 0.0:
        return "faster" if row["change_percent"] < 0.0 else "slower"
    return "unclear"


def _gap_effect(row: Row) -> str:
    change, low, high, outcome = row["change_percent"], row["low_percent"], row["high_percent"], _gap_outcome(row)
    if outcome == "the same":
        return "exactly as fast " + ("in every replication" if low is not None else "[one replication: no interval]")
    if outcome == "unclear":
        return f"no different beyond the interval ({percent_interval(change, low, high)})"
    size, interval = format_interval(change, low, high, signs="none")
    return f"{size} % {outcome} {interval or '[one replication: no interval]'}"


def _format_gap_share(row: Row, at_best: Row) -> str:
    """Return the share of the gap as the end of a sentence; empty without a share."""
    share = row["share_of_gap_percent"]
    if share is None or _gap_outcome(row) != "faster" or _gap_outcome(at_best) != "faster":
        return ""
    return f", {share:.0f} % of the gap"


def describe_best(record: Row | None) -> str:
    """Return the recommended policy with its objective; a dash for none."""
    if record is None or record["policy"] is None:
        return "-"
    if record["objective_value"] is None:
        return f"{record['policy']}, unstable"
    return f"{record['policy']}, {objective_name(record['objective'])} {_objective(record)}"


def _objective(record: Row, *, interval: bool = False) -> str:
    """Return the value of the recommended policy's objective, with its interval if that is asked for."""
    value, low, high = (record[f"objective_value{end}"] for end in ("", "_low", "_high"))
    text = format_objective(record["objective"], value, low, high, interval=interval)
    return f"{text} (one replication: no interval)" if interval and low is None else text
