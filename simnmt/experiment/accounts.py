"""Energy, money and faults of a unit: what its boxes and links spend, when they fail, and the columns of the summary.

Faults are keyed by the unit, never by a policy, so that all policies meet the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import InputError
from simnmt.base.suggestions import format_list
from simnmt.experiment.cases import Case, Unit
from simnmt.experiment.routes import Line
from simnmt.network.link import bytes_per_token
from simnmt.network.outages import ALWAYS_UP, DownTimes, outage_spans
from simnmt.policies.decision import Resource
from simnmt.profile.power import SECONDS_PER_HOUR, BoxPower, RequestCost
from simnmt.results.columns import Array
from simnmt.results.device_accounts import Log, RunEnergy, TargetCosts, account_energy
from simnmt.results.requests import FALLBACK, GAVE_UP, LOST, REFUSED, Trail, were_answered
from simnmt.results.summary import Numbers, known, with_deadlines_of_all
from simnmt.scenario.configuration import END_NODE, ScenarioConfiguration
from simnmt.world.faults import Faults

Rows = slice | NDArray[np.int64]
AVAILABILITY = "_availability"
"""Suffix of the column with the share of the run for which the boxes of a device were up."""
LEFT_OUT_TIMES, LEFT_OUT_S = "_left_out_times", "_left_out_s"
"""Suffixes of the columns with the times and the seconds that a device was left out; see `FaultAccount.left_out`."""


def box_powers(scenario: ScenarioConfiguration, case: Case) -> dict[str, BoxPower | None]:
    """Return the power of a box of each device: the scenario's, else the profile's; None if it is unknown."""
    return {
        name: BoxPower.of(part.power, target.profile.energy)
        for (name, part), target in zip(scenario.devices.items(), case.targets, strict=True)
    }


def target_costs(part: Unit) -> list[TargetCosts]:
    """Return what energy and money of one part of a unit depend on, by target."""
    scenario, powers = part.scenario, box_powers(part.scenario, part.case)
    names = list(powers)
    hops = part.links.hops | {names[-1]: (part.links.link,)}
    sizes = [bytes_per_token(profile.model.vocab) for profile in part.case.profiles]
    access = [(sizes[0], hops[names[0]])] if names[0] in hops and names[0] != END_NODE else []
    costs = list[TargetCosts]()
    for number, (name, device) in enumerate(scenario.devices.items()):
        path = [*access, *((sizes[number], hops[on]) for on in names[1 : number + 1])]
        token_j = sum(size * fmean(link.j_per_byte for link in hop) for size, hop in path)
        token_price = sum(size * fmean(link.price_per_gb for link in hop) for size, hop in path) / 1e9
        token = (sum(size for size, _ in path), token_j, token_price)
        boxes, price = scenario.count_of(name, part.case.name), device.price_per_hour or 0.0
        costs.append(TargetCosts(name, boxes, part.case.targets[number].workers, powers[name], price, token))
    return costs


def unit_costs(unit: Unit) -> list[TargetCosts]:
    """Return what energy and money of a unit depend on, by target; a token has the costs of its part.

    The power of sites' devices is unknown if it differs.
    """
    by_part = [target_costs(part) for part in unit.parts]
    deciders = unit.groups[0].owners
    owners = [by_part[one.parts[0]][0] for one in deciders] or [by_part[0][0]]
    boxes = [one.boxes for one in deciders] or [1]
    price = _mean([cost.price_per_hour for cost in owners], boxes)
    power = owners[0].power if len({(cost.power, cost.workers) for cost in owners}) == 1 else None
    first = replace(owners[0], boxes=sum(one.boxes for one in deciders), price_per_hour=price, power=power)
    tokens = np.array([[cost.token for cost in costs] for costs in by_part])
    return [replace(cost, token=tuple(tokens[:, number].T)) for number, cost in enumerate([first, *by_part[0][1:]])]


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    return values[0] if len({*values}) == 1 else float(np.average(values, weights=weights))


def unit_energy(unit: Unit, log: Log, trail: Trail) -> RunEnergy | None:
    """Return the joules and the money of a policy's run; None if neither power nor a price is known."""
    if not any(part.scenario.has_costs or any(box_powers(part.scenario, part.case).values()) for part in unit.parts):
        return None
    unanswered_s = [] if trail.faults is None else [float(work.sum()) for work in trail.faults.extra_work]
    characters = [nan if part.case.characters is None else part.case.characters for part in unit.parts]
    return account_energy(log, unit_costs(unit), trail.batches, unanswered_s, characters)


def request_costs(part: Unit) -> dict[Resource, tuple[RequestCost, ...]]:
    """Return the joules and the money of a request alone on each target, as policies predict them; energy if it is known."""
    targets = target_costs(part)
    money = [RequestCost(cost.price_per_hour / SECONDS_PER_HOUR / cost.workers, cost.token[2]) for cost in targets]
    costs: dict[Resource, tuple[RequestCost, ...]] = {"cost": tuple(money)}
    powers = [(cost, cost.power) for cost in targets if cost.power]
    joules = [RequestCost((power.busy_w - power.idle_w) / cost.workers, cost.token[1]) for cost, power in powers]
    if len(joules) == len(targets):
        costs["energy"] = tuple(joules)
    return costs


def unknown_spending(scenario: ScenarioConfiguration, case: Case, column: str) -> tuple[str, str] | None:
    """Return why a run would not know a column of energy or money, and the remedy; None if it would know it."""
    unknown = [name for name, power in box_powers(scenario, case).items() if power is None]
    if "cost" in column and not scenario.has_prices:
        return "the scenario has no price", f"give devices.{list(scenario.devices)[-1]}.price_per_hour"
    if "characters" in column and case.characters is None:
        return "the characters of a request are unknown", f"give workloads.{case.name}.characters_per_request"
    if "cost" not in column and unknown:
        remedy = f"give devices.{unknown[0]}.power, such as {{idle_w: 5, busy_w: 15}}"
        return f"the power of {format_list(unknown, 'and')} is unknown", remedy
    return None


def link_faults(unit: Unit, lines: Sequence[Line]) -> Faults | None:
    """Return when the links of a unit are down, and what its deciders do about late answers; None without faults."""
    scenario, late = unit.scenario, unit.scenario.late_answers
    if not any(part.scenario.has_faults for part in unit.parts) or not unit.case.queues:
        return None
    outages: list[list[DownTimes]] = [[] for _ in list(scenario.devices)[1:]]
    for line in lines:
        for device, hop, of_hop in zip(list(scenario.devices)[1:], line.routes.hops, outages, strict=True):
            down = [ALWAYS_UP] * len(hop.links)
            for number, link in enumerate(hop.links):
                if link.outages is not None:
                    key = scenario.seed, unit.replication, f"{line.name}/{device} link {number}/outages"
                    begin_s = hop.begin_s[number % len(hop.begin_s)]
                    down[number] = DownTimes(outage_spans(link.outages, key, link.rtt, begin_s))
            # Links are dealt to the end nodes of their line: of several lines, each end node has its own entry.
            of_hop += [down[node % len(down)] for node in range(line.nodes)] if len(lines) > 1 else down
    return Faults(outages) if late is None else Faults(outages, late.timeout_ms / 1e3, late.leave_out)


def down_times(unit: Unit) -> dict[str, list[DownTimes]]:
    """Return when the boxes of each device that may fail are down."""
    down: dict[str, list[DownTimes]] = {}
    for device, part in unit.scenario.devices.items():
        if part.failures is not None and unit.case.queues:
            seed, replication, name = unit.stream(f"{device} failures")
            boxes = range(unit.scenario.count_of(device, unit.case.name))
            down[device] = [DownTimes(part.failures.spans(seed, replication, f"{name} {box}")) for box in boxes]
    return down


class NoAnswers(InputError):
    """A run without answers, or one of whose sites or workloads has none."""

    lost_share = 1.0
    """Share of the counted requests of the run."""


def remedy_of_losses(unit: Unit, outcome: Array) -> str:
    """Return what to do about the most frequent cause for which none of the counted requests is answered."""
    remedies = {
        LOST: "make faults rarer" if unit.scenario.late_answers else "set late_answers.timeout_ms, so that requests fall back",
        REFUSED: "give a greater max_waiting, or clients more retries",
        GAVE_UP: "give clients a longer timeout_ms",
    }
    remedy = max(remedies.items(), key=lambda item: int((outcome == item[0]).sum()))[1]
    return remedy + ", or give fewer warm_up_requests" * bool(unit.scenario.warm_up_requests)


def refuse_without_answers(unit: Unit, policy: str, outcome: Array | None, cut: int) -> None:
    """Raise `NoAnswers` if no request of a run after its first `cut` is answered, since nothing is left to be summarised."""
    if outcome is not None and not were_answered(outcome[cut:]).any():
        raise NoAnswers(
            f"no request of {unit.case.name} on {unit.network} under {policy} is answered in replication {unit.replication}",
            remedy=remedy_of_losses(unit, outcome[cut:]),
        )


def with_faults(
    numbers: Numbers, trail: Trail, devices: Sequence[str], down: Mapping[str, Sequence[DownTimes]], counted: Rows
) -> Numbers:
    """Return the numbers of the answered requests with those that only faults, limits and clients have; else the same numbers.

    Requests without an answer count in the total as the mean of the others, so that a policy does not gain by losing requests;
    they are never in time. Loads are parts of the work that a device can do while its boxes are up. `down`: the outages of the
    boxes of each device that fails; `counted`: the requests after the warm-up.
    """
    if trail.faults is None or trail.outcome is None:
        return numbers
    outcome, makespan_s = trail.outcome[counted], known(numbers["makespan_s"])
    answered_share = float(were_answered(outcome).mean())
    numbers = with_deadlines_of_all(numbers, answered_share) | {
        "answered_share": answered_share,
        "lost_share": float((outcome == LOST).mean()),
        "fallback_share": float((outcome == FALLBACK).mean()),
        "failed_executions_per_request": trail.faults.failed_executions / len(trail.outcome),
    }
    for device, (times, seconds) in list(zip(devices, trail.faults.left_out, strict=False))[1:]:
        numbers |= {device + LEFT_OUT_TIMES: times, device + LEFT_OUT_S: seconds}
    divisors = {"total_latency_s": answered_share, "offered_rps": answered_share}
    for device, boxes in down.items():
        up_share = 1.0 - sum(box.down_s(makespan_s) for box in boxes) / len(boxes) / makespan_s
        numbers[device + AVAILABILITY] = up_share
        if up_share:
            divisors |= {f"{device}_load": up_share, f"{device}_busiest_load": up_share}
    fitting = {name: numbers[name] for name in divisors}
    return numbers | {name: None if value is None else value / divisors[name] for name, value in fitting.items()}
