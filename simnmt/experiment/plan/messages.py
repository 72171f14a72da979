"""What a plan and a capacity say in sentences, on the terminal and on the page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from math import exp, floor, isfinite

from simnmt.base.suggestions import format_list
from simnmt.experiment.plan.candidates import describe_choice, format_choice
from simnmt.experiment.plan.capacity import INTERVAL_OVER, Capacities
from simnmt.experiment.plan.deployment import DeploymentPlan, Described
from simnmt.experiment.plan.search import Certainty
from simnmt.results.number_text import digits, format_interval, percent, percent_interval
from simnmt.results.simplicity import TIE, is_tie
from simnmt.scenario.configuration import END_NODE
from simnmt.scenario.document import Override
from simnmt.scenario.errors import format_location


def describe_capacities(capacities: Capacities) -> Iterator[str]:
    """Yield the sentences on the capacities of a scenario."""
    yield _describe_capacity(capacities)
    best = capacities.best
    if capacities.as_good:
        yield f"As good, by less than {percent(TIE)}, but not simpler: {format_list(capacities.as_good, 'and')}."
    if best.is_met:
        yield _describe_interval(capacities)


def _describe_capacity(capacities: Capacities) -> str:
    """Describe the highest rate of the best policy."""
    best = capacities.best
    place = f"{best.workload} on {best.network}"
    if not best.is_met:
        values = "; ".join(f"{name}: {_value(value)}" for name, value in best.values.items())
        why = f"{best.policy} misses it for {place} even where hardly any request waits ({values}{_losses(best.lost_share)})"
        return f"No rate keeps {capacities.level}: {why}."
    rate, interval = format_interval(best.rate_rps, best.low, best.high, signs="minus")
    sure = f", {interval.strip('[]').replace(', ', ' to ')}" if interval else ""
    limit = f"At its limit: {best.binding}{_losses(best.lost_share)}"
    return f"{best.policy} takes {rate} requests/s{sure}, for {place}. {limit}."


def _describe_interval(capacities: Capacities) -> str:
    """Describe what the interval of the highest rate leaves out, and the rate that includes it."""
    best, sure = capacities.best, capacities.sure
    text = "" if best.low is None else f"The interval is that of {INTERVAL_OVER}. "
    text += "The rate leaves out the error of the simulation and that of the calibration"
    if sure is None:
        return f"{text}, which is unknown for these profiles: plan with headroom."
    included = "If the error of the calibration is included"
    certainty = format_certainty(sure.certainty)
    if sure.rate_rps is None:
        return f"{text}. {included}, less than half of the rate is kept with a probability of {certainty}."
    counted = f"({sure.runs_met} of {sure.runs} runs with profiles drawn within that error)"
    kept = f"{digits(sure.rate_rps)} requests/s are kept with a probability of {certainty} {counted}"
    return f"{text}. {included}, {kept}."


def _value(value: float) -> str:
    return digits(value) if isfinite(value) else "infinite"


def _losses(lost_share: float) -> str:
    """Return the part of a sentence on lost requests; empty if none is lost."""
    return f", {100.0 * lost_share:.2g} % of the requests lost, which count as infinitely late" if lost_share > 0.0 else ""


def describe_deployment(described: Described) -> str:
    """Return the choice of a candidate on one line."""
    return describe_choice(described.choice, described.boxes)


def format_objective(plan: DeploymentPlan, described: Described) -> str:
    """Return the objective of a candidate with its unit."""
    if plan.objective.name == "servers":
        return f"{described.servers} server{'s' * (described.servers != 1)}"
    return f"{plan.objective.what} {digits(plan.objective.per_si_unit * described.objective)} {plan.objective.unit}".rstrip()


def describe_plan(plan: DeploymentPlan) -> Iterator[str]:
    """Yield the sentences on a plan."""
    question = f"{digits(plan.rate_rps)} requests/s with {plan.level}"
    if plan.choice is None:
        yield f"No deployment of {plan.candidates:,} keeps {question}."
        if plan.nearest_miss is not None:
            miss = plan.nearest_miss
            yield f"The nearest miss is {describe_deployment(miss)}: {describe_values(miss)}."
        else:
            yield "No deployment can serve that rate: all devices together are saturated below it."
        return
    objective = "" if plan.objective.is_exact else f" ({format_objective(plan, plan.choice)})"
    yield f"The least of {plan.candidates:,} deployments for {question}: {describe_deployment(plan.choice)}{objective}."
    if plan.as_good:
        others = format_list((describe_deployment(described) for described in plan.as_good), "and", most=5)
        yield f"As good, by less than {percent(TIE)}, but not simpler: {others}."
    yield describe_certainty(plan)
    yield from describe_close_calls(plan)
    yield f"Headroom: {describe_values(plan.choice)}. Nearest to its limit: {plan.binding}."
    if {"cost", "energy_j"} & plan.choice.spending.keys():
        yield describe_spending(plan.choice)
    if plan.runner_up is not None and plan.difference is not None:
        yield describe_runner_up(plan, plan.runner_up)


def describe_certainty(plan: DeploymentPlan) -> str:
    """Describe how sure the choice keeps the level."""
    assert plan.choice is not None and plan.choice.certainty is not None
    certainty = plan.choice.certainty
    probability = format_probability(certainty.p_slo, plan.certainty)
    counted = f"({certainty.runs_met} of {certainty.runs} runs keep it)"
    text = f"A run of it keeps the level with a probability of {probability} {counted}, over {certainty.over}"
    if not plan.is_sure:
        text = (
            f"It is not sure: a run of it keeps the level with a probability of {probability} only {counted}, over "
            f"{certainty.over}; of the deployments that were judged, none reaches {format_certainty(plan.certainty)}"
        )
    if certainty.p_slo < (certainty.runs_met + 1) / (certainty.runs + 2):
        return f"{text}. {_describe_distances(certainty)}"
    return f"{text}."


def _describe_distances(certainty: Certainty) -> str:
    """Describe why the probability is less than the share of the runs."""
    ratio = exp(certainty.worst_excess) - 1.0
    worst = f"misses it by {percent(ratio)}" if ratio > 0.0 else f"has {percent(-ratio)} of the limit left"
    return (
        f"The probability is below the share of these runs, since it counts how far each is from the limit: the worst {worst}."
    )


def describe_close_calls(plan: DeploymentPlan) -> Iterator[str]:
    """Yield a sentence on the deployments whose probability is close to the certainty, if there are any."""
    names = [
        f"{describe_deployment(described)} ({format_probability(described.certainty.p_slo, plan.certainty)}, "
        f"{described.certainty.runs_met} of {described.certainty.runs} runs)"
        for described in plan.close
        if described.certainty is not None
    ]
    if names:
        limit = format_certainty(plan.certainty)
        yield f"Close: {format_list(names, 'and')} so near {limit} that with another seed the choice may be another."


def format_probability(probability: float, certainty: float) -> str:
    """Return a probability in percent; one below the certainty is never rounded to it or beyond.

    >>> format_probability(0.9496, 0.95), format_probability(0.952, 0.95), format_probability(0.38, 0.95)
    ('94.9 %', '95 %', '38 %')
    """
    if probability < certainty <= round(100.0 * probability, 2 if probability > 0.99 else 0) / 100.0:
        return f"{floor(1000.0 * probability) / 10.0:.1f} %"
    return percent(probability)


def format_certainty(certainty: float) -> str:
    """Return the certainty of a plan in percent, with all its digits.

    >>> format_certainty(0.95), format_certainty(0.999)
    ('95 %', '99.9 %')
    """
    return f"{100.0 * certainty:.12g} %"


def describe_values(described: Described) -> str:
    """Describe how far each requirement of a candidate is from its limit."""
    parts = []
    for name, value in described.values.items():
        headroom = described.headroom[name]
        distance = f"{percent(headroom)} of the limit left" if headroom >= 0.0 else f"{percent(-headroom)} beyond the limit"
        parts.append(f"{name}: {digits(value)} ({distance})" if isfinite(value) else f"{name}: infinite")
    if described.excess > 0.0 and described.worst not in described.values:
        parts.append("more work than its devices can do")
    if described.lost_share > 0.0:
        parts.append(_losses(described.lost_share).lstrip(", "))
    return "; ".join(parts)


def describe_spending(described: Described) -> str:
    """Describe the money and the joules of a candidate, as far as they are known."""
    spent, parts = described.spending, []
    if "cost" in spent:
        characters = spent.get("cost_per_million_characters")
        per_characters = "" if characters is None else f", {digits(characters)} per million characters"
        parts.append(f"costs {digits(1e6 * spent['cost'])} per million requests{per_characters}")
    if "energy_j" in spent:
        kinds = {"idle boxes": "static_j", "work": "dynamic_j", "links": "transfer_j"}
        by_kind = ", ".join(f"{name} {digits(spent[key])} J" for name, key in kinds.items() if key in spent)
        parts.append(f"takes {digits(spent['energy_j'])} J per request{f' ({by_kind})' if by_kind else ''}")
    return f"It {' and '.join(parts)}."


def describe_runner_up(plan: DeploymentPlan, runner_up: Described) -> str:
    """Describe the runner-up, and by how much it differs from the choice."""
    assert plan.difference is not None and plan.choice is not None
    change = plan.difference.latency_percent
    latency = f"{percent(abs(change.mean) / 100.0)} {'lower' if change.mean < 0.0 else 'higher'}"
    if abs(change.mean) < 100.0 * TIE:
        latency = "the same"
    elif not change.excludes_zero:
        latency = f"not distinguishable ({percent_interval(change.mean, change.low, change.high)})"
    text = f"The runner-up is {describe_deployment(runner_up)}: {format_objective(plan, runner_up)}"
    if plan.objective.name != "servers":
        scale, difference = plan.objective.per_si_unit, plan.difference.objective
        ends = (None if end is None else scale * end for end in (difference.low, difference.high))
        value, interval = format_interval(scale * difference.mean, *ends)
        if is_tie(runner_up.objective, plan.choice.objective):
            text += ", the same"
        else:
            text += ", " + " ".join(filter(None, [value, plan.objective.unit, interval]))
        if not difference.excludes_zero:
            text += ", not distinguishable from the choice"
    return f"{text}; its mean latency is {latency}."


PLACEHOLDERS = {"MODEL": "your translation model: the profile of the device was not measured with one that simnmt can load"}
"""Words in `deploy_commands` that the user replaces."""


def deploy_commands(plan: DeploymentPlan, name: str, written: str | None = None) -> list[str]:
    """Return the commands that deploy the choice: a server for each box of every device but the first, and the gateway.

    `PLACEHOLDERS` stand in them for what no scenario holds.

    Args:
        plan: a plan with a choice.
        name: the scenario as the user named it.
        written: the file to which the choice was written; None: the commands set its values.
    """
    assert plan.choice is not None
    scenario, policy, given = plan.scenario, plan.choice.policy, name if written is None else written
    overrides = () if written is not None else plan.overrides
    sets = "".join(f" --set {shlex.quote(_assignment(override))}" for override in overrides)
    first, *others = scenario.devices

    def server(device: str) -> str:
        return f"simnmt live server {shlex.quote(given)} --device {device}{_model_option(plan, device)}{sets}"

    if streamed := [name for name, device in scenario.devices.items() if device.sti is not None]:
        return [f"# simnmt serves no streamed model: deploy {', '.join(streamed)} by your own means"]
    if not others:
        return [server(first)]
    used = [device for device in scenario.policies[policy].devices_of(list(scenario.devices)) if device != first]
    commands = []
    for device in used:
        count = scenario.devices[device].count or 1
        times = ""
        if count > 1:
            balancer = str(scenario.balancer_of(device))
            before = f"behind a load balancer at {_address(device)} (simulated: {balancer})"
            # Every end node keeps to one box.
            before = "one URL for each share of the end nodes (simulated: attached)" if balancer == "attached" else before
            times = f"   # on each of {count} boxes, {before}"
        commands.append(server(device) + times)
    servers = "".join(f" --server {device}={_address(device)}" for device in used)
    where = "   # on every end node" if first == END_NODE else ""
    model = _model_option(plan, first)
    commands.append(f"simnmt live gateway {shlex.quote(given)} --policy {policy}{model}{servers}{sets}{where}")
    return commands


def _model_option(plan: DeploymentPlan, device: str) -> str:
    return " --model MODEL" if device in plan.without_engine else ""


def _address(device: str) -> str:
    return f"http://{device.upper()}:5001"


def _assignment(override: Override) -> str:
    return f"{format_location(override.location)}={format_choice(override.node.plain())}"
