"""The answers of plans in sentences, on the terminal and on the page, and the commands that deploy a choice."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from math import exp, floor, isfinite

from simnmt.base.suggestions import format_list
from simnmt.experiment.plan.candidates import describe_choice, format_choice
from simnmt.experiment.plan.capacity import INTERVAL_OVER, Capacities
from simnmt.experiment.plan.deployment import DeploymentPlan, Described
from simnmt.results.number_text import digits, format_interval, percent, percent_interval
from simnmt.results.simplicity import TIE, is_tie
from simnmt.scenario.configuration import END_NODE
from simnmt.scenario.document import Override
from simnmt.scenario.errors import format_location


def describe_capacities(capacities: Capacities) -> Iterator[str]:
    """Yield the sentences on the capacities of a scenario."""
    best, sure = capacities.best, capacities.sure
    place = f"{best.workload} on {best.network}"
    if not best.is_met:
        values = "; ".join(f"{name}: {digits(value) if isfinite(value) else 'infinite'}" for name, value in best.values.items())
        why = f"{best.policy} misses it for {place} even where hardly any request waits ({values}{_losses(best.lost_share)})"
        yield f"No rate keeps {capacities.level}: {why}."
        return
    rate, interval = format_interval(best.rate_rps, best.low, best.high, signs="minus")
    ends = f", {interval.strip('[]').replace(', ', ' to ')}" if interval else ""
    limit = f"At its limit: {best.binding}{_losses(best.lost_share)}"
    yield f"{best.policy} takes {rate} requests/s{ends}, for {place}. {limit}."
    if capacities.as_good:
        yield f"As good, by less than {percent(TIE)}, but not simpler: {format_list(capacities.as_good, 'and')}."
    yield f"The interval is that of {INTERVAL_OVER}: it leaves out the error of the calibration."
    if sure is None:
        yield "That error is unknown for these profiles: plan with headroom."
    elif sure.rate_rps is None:
        yield f"With that error, less than half of the rate is kept with a probability of {format_certainty(sure.certainty)}."
    else:
        counted = f"({sure.runs_met} of {sure.runs} runs with profiles drawn within that error)"
        kept = f"{digits(sure.rate_rps)} requests/s are kept with a probability of {format_certainty(sure.certainty)}"
        yield f"With that error, {kept} {counted}."


def _losses(lost_share: float) -> str:
    return f", {100.0 * lost_share:.2g} % of the requests lost, which count as infinitely late" if lost_share > 0.0 else ""


def describe_deployment(described: Described) -> str:
    """Return the choice of a candidate on one line."""
    return describe_choice(described.choice, described.boxes)


def format_objective(plan: DeploymentPlan, described: Described) -> str:
    """Return the objective of a candidate with its unit."""
    if plan.objective.is_exact:
        return f"{described.servers} server{'s' * (described.servers != 1)}"
    return f"{plan.objective.what} {digits(plan.objective.per_si_unit * described.objective)} {plan.objective.unit}".rstrip()


def describe_plan(plan: DeploymentPlan) -> Iterator[str]:
    """Yield the sentences on a plan."""
    question = f"{digits(plan.rate_rps)} requests/s with {plan.level}"
    choice, miss = plan.choice, plan.nearest_miss
    if choice is None:
        yield f"No deployment of {plan.candidates:,} keeps {question}."
        if miss is None:
            yield "No deployment can serve that rate: all devices together are saturated below it."
        else:
            yield f"The nearest miss is {describe_deployment(miss)}: {describe_values(miss)}."
        return
    objective = "" if plan.objective.is_exact else f" ({format_objective(plan, choice)})"
    yield f"The least of {plan.candidates:,} deployments for {question}: {describe_deployment(choice)}{objective}."
    if plan.as_good:
        others = format_list(map(describe_deployment, plan.as_good), "and", most=5)
        yield f"As good, by less than {percent(TIE)}, but not simpler: {others}."
    yield from describe_certainty(plan, choice)
    if plan.close:
        names = format_list(map(describe_deployment, plan.close), "and")
        limit = format_certainty(plan.certainty)
        yield f"Close: {names} so near {limit} that with another seed the choice may be another."
    yield f"Headroom: {describe_values(choice)}. Nearest to its limit: {plan.binding}."
    spent = choice.spending
    if "cost" in spent:
        yield f"Cost: {digits(1e6 * spent['cost'])} per million requests."
    if "energy_j" in spent:
        parts = {"idle boxes": "static_j", "work": "dynamic_j", "links": "transfer_j"}
        by_part = ", ".join(f"{name} {digits(spent[key])} J" for name, key in parts.items() if key in spent)
        yield f"Energy: {digits(spent['energy_j'])} J per request ({by_part})."
    if plan.runner_up is not None:
        yield _describe_runner_up(plan, plan.runner_up)


def describe_certainty(plan: DeploymentPlan, choice: Described) -> Iterator[str]:
    """Yield how sure the choice keeps the level."""
    certainty = choice.certainty
    assert certainty is not None
    probability = format_probability(certainty.p_slo, plan.certainty)
    counted = f"({certainty.runs_met} of {certainty.runs} runs keep it)"
    yield f"A run of it keeps the level with a probability of {probability} {counted}, over {certainty.over}."
    if not plan.is_sure:
        yield f"It is not sure: no deployment that was judged reaches {format_certainty(plan.certainty)}."
    if certainty.p_slo < (certainty.runs_met + 1) / (certainty.runs + 2):
        worst = percent(exp(certainty.worst_excess))
        yield f"The probability counts how far these runs are from the limit: the worst is at {worst} of it."


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
    return f"{'; '.join(parts)}{_losses(described.lost_share)}"


def _describe_runner_up(plan: DeploymentPlan, runner_up: Described) -> str:
    """Describe the runner-up, and by how much it differs from the choice."""
    assert plan.difference is not None and plan.choice is not None
    change, difference = plan.difference.latency_percent, plan.difference.objective
    text = f"The runner-up is {describe_deployment(runner_up)}: {format_objective(plan, runner_up)}"
    if not plan.objective.is_exact:
        if is_tie(runner_up.objective, plan.choice.objective):
            text += ", the same"
        elif not difference.excludes_zero:
            text += ", not distinguishable from the choice"
    latency = "the same" if abs(change.mean) < 100.0 * TIE else percent_interval(change.mean, change.low, change.high)
    return f"{text}; its mean latency against that of the choice: {latency}."


PLACEHOLDERS = {
    "MODEL": "your translation model: the profile of the device was not measured with one that simnmt can load",
}
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
    scenario, policy = plan.scenario, plan.choice.policy
    given = shlex.quote(name if written is None else written)
    overrides = () if written is not None else plan.overrides
    sets = "".join(f" --set {shlex.quote(_assignment(override))}" for override in overrides)
    first, *others = scenario.devices

    def model(device: str) -> str:
        return " --model MODEL" if device in plan.without_engine else ""

    def server(device: str) -> str:
        return f"simnmt live server {given} --device {device}{model(device)}{sets}"

    if streamed := [device for device, part in scenario.devices.items() if part.sti is not None]:
        return [f"# services of your own, since {', '.join(streamed)} streams a model, which no live service of simnmt does"]
    if not others:
        return [server(first)]
    used = [device for device in scenario.policies[policy].devices_of(list(scenario.devices)) if device != first]
    commands = []
    for device in used:
        count, balancer = scenario.devices[device].count or 1, str(scenario.balancer_of(device))
        where = f"behind a load balancer at {_address(device)}"
        if balancer == "attached":
            where = "one URL for each share of the end nodes"
        boxes = f"   # on each of {count} boxes, {where} (simulated: {balancer})" if count > 1 else ""
        commands.append(server(device) + boxes)
    servers = "".join(f" --server {device}={_address(device)}" for device in used)
    nodes = "   # on every end node" if first == END_NODE else ""
    return [*commands, f"simnmt live gateway {given} --policy {policy}{model(first)}{servers}{sets}{nodes}"]


def _address(device: str) -> str:
    return f"http://{device.upper()}:5001"


def _assignment(override: Override) -> str:
    return f"{format_location(override.location)}={format_choice(override.value)}"
