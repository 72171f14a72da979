"""Faults of one unit: the links and boxes that fail in its replication, and the numbers of it all.

Everything random is keyed by the unit, never by a policy, so that all policies meet the same faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simnmt.base.errors import InputError
from simnmt.experiment.cases import Unit
from simnmt.experiment.draws import Drawn
from simnmt.network.outages import ALWAYS_UP, DownTimes, outage_spans
from simnmt.results.columns import Array
from simnmt.results.request_log import FALLBACK, LOST, were_answered
from simnmt.results.requests import Trail
from simnmt.results.summary import Numbers, known, with_deadlines_of_all
from simnmt.world.faults import Faults

AVAILABILITY = "_availability"
"""Suffix of the column with the share of the run for which the boxes of a device were up."""


def link_faults(unit: Unit, drawn: Drawn) -> Faults | None:
    """Return when the links of a unit are down, and what its deciders do about late answers; None without faults."""
    scenario, late = unit.scenario, unit.scenario.late_answers
    if not scenario.has_faults or not unit.case.queues:
        return None
    outages = []
    for device, hop in zip(list(scenario.devices)[1:], drawn.routes.hops, strict=True):
        outages.append([ALWAYS_UP] * len(hop.links))
        for number, link in enumerate(hop.links):
            if link.outages is not None:
                begin_s = hop.begin_s[number % len(hop.begin_s)]
                key = scenario.seed, unit.replication, f"{unit.network}/{device} link {number}/outages"
                outages[-1][number] = DownTimes(outage_spans(link.outages, key, link.rtt, begin_s))
    return Faults(outages, None if late is None else late.timeout_ms / 1e3)


def down_times(unit: Unit) -> dict[str, list[DownTimes]]:
    """Return when the boxes of each device that may fail are down."""
    down: dict[str, list[DownTimes]] = {}
    for device, part in unit.scenario.devices.items():
        if part.failures is not None and unit.case.queues:
            seed, replication, name = unit.stream(f"{device} failures")
            boxes = range(unit.scenario.count_of(device, unit.case.name))
            down[device] = [DownTimes(part.failures.spans(seed, replication, f"{name} {box}")) for box in boxes]
    return down


def fault_numbers(trail: Trail, down: Mapping[str, Sequence[DownTimes]], counted: slice, makespan_s: float) -> Numbers:
    """Return the numbers of a run that only faults have; empty without faults. `counted`: the requests after the warm-up."""
    if trail.faults is None or trail.outcome is None:
        return {}
    outcome, requests = trail.outcome[counted], len(trail.outcome)
    numbers: Numbers = {
        "answered_share": float(were_answered(outcome).mean()),
        "lost_share": float((outcome == LOST).mean()),
        "fallback_share": float((outcome == FALLBACK).mean()),
        "failed_executions_per_request": trail.faults.failed_executions / requests,
    }
    for device, boxes in down.items():
        numbers[device + AVAILABILITY] = 1.0 - sum(box.down_s(makespan_s) for box in boxes) / len(boxes) / makespan_s
    return numbers


class NoAnswers(InputError):
    """A run whose requests are all lost."""


def refuse_without_answers(unit: Unit, policy: str, outcome: Array | None, cut: int = 0) -> None:
    """Raise `NoAnswers` if every request of a run after its first `cut` is lost, since nothing is left to be summarised."""
    if outcome is None or were_answered(outcome[cut:]).any():
        return
    where = f"{unit.case.name} on {unit.network} under {policy}"
    after, shorten = (f" after the warm-up of {cut:,} requests", ", or give fewer warm_up_requests") if cut else ("", "")
    raise NoAnswers(
        f"every request of {where}{after} is lost in replication {unit.replication}",
        remedy=f"set late_answers.timeout_ms, so that requests fall back, or make faults rarer{shorten}",
    )


def with_faults(numbers: Numbers, of_faults: Numbers) -> Numbers:
    """Return the numbers of the answered requests and those of the faults (`fault_numbers`), made to fit each other.

    Lost requests count in the total as the mean of the others, so that a policy does not gain by losing requests; they are
    never in time. Loads are parts of the work that a device can do while its boxes are up.
    """
    if not of_faults:
        return numbers
    numbers = with_deadlines_of_all(numbers, known(of_faults["answered_share"]))
    divisors = dict.fromkeys(("total_latency_s", "offered_rps"), known(of_faults["answered_share"]))
    for name, share in of_faults.items():
        if name.endswith(AVAILABILITY) and share:
            device = name.removesuffix(AVAILABILITY)
            divisors |= dict.fromkeys((f"{device}_load", f"{device}_busiest_load"), share)
    fitting = {name: numbers[name] for name in divisors}
    return numbers | of_faults | {name: None if value is None else value / divisors[name] for name, value in fitting.items()}
