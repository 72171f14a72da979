"""Faults of one unit: the links and boxes that fail in its replication, what deciders do about it, and the numbers of it all.

Everything random is keyed by the unit, never by a policy, so that all policies meet the same faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simnmt.base.errors import InputError
from simnmt.base.suggestions import format_list
from simnmt.devices.failures import Failures
from simnmt.experiment.cases import RunPlan, Unit
from simnmt.experiment.draws import Drawn
from simnmt.network.down_times import ALWAYS_UP, DownTimes
from simnmt.network.link import Link
from simnmt.results.columns import Array
from simnmt.results.metrics import Criteria
from simnmt.results.number_text import digits, duration
from simnmt.results.request_log import FALLBACK, LOST, were_answered
from simnmt.results.requests import Trail
from simnmt.results.summary import Numbers, Row, known, shares_of_all
from simnmt.world.faults import Faults


def faults(unit: Unit, drawn: Drawn) -> Faults | None:
    """Return the faults of the links of a unit, and what its deciders do about late answers; None without faults."""
    scenario = unit.scenario
    if not scenario.has_faults or not unit.case.queues:
        return None
    late = scenario.late_answers
    return Faults(list(_outages(unit, drawn).values()), None if late is None else late.timeout_ms / 1e3)


def _outages(unit: Unit, drawn: Drawn) -> dict[str, list[DownTimes]]:
    """Return when the links to each device but the first are down."""
    outages = dict[str, list[DownTimes]]()
    for device, hop in zip(list(unit.scenario.devices)[1:], drawn.routes.hops, strict=True):
        outages[device] = [ALWAYS_UP] * len(hop.links)
        for number, link in enumerate(hop.links):
            if link.outages is not None:
                key = unit.scenario.seed, unit.replication, f"{unit.network}/{device} link {number}/outages"
                outages[device][number] = DownTimes(link.outages.spans(key, link.rtt, hop.begin_s[number % len(hop.begin_s)]))
    return outages


def down_times(unit: Unit, device: str) -> list[DownTimes]:
    """Return when each box of a device is down, the same for every policy."""
    count = unit.scenario.count_of(device, unit.case.name)
    failures = unit.scenario.devices[device].failures
    if failures is None:
        return [ALWAYS_UP] * count
    seed, replication, name = unit.stream(f"{device} failures")
    return [DownTimes(failures.spans(seed, replication, f"{name} {box}")) for box in range(count)]


def failures_of(unit: Unit, device: str) -> Failures | None:
    """Return the failures of a device's boxes; None if they never fail, and back to back."""
    configured = unit.scenario.devices[device].failures
    return Failures(down_times(unit, device), configured.requests) if configured is not None and unit.case.queues else None


AVAILABILITY = "_availability"
"""Suffix of the column with the share of the run for which the boxes of a device were up."""
LINK_AVAILABILITY = "_link_up_share"
"""Suffix of the column with the share of the run for which the links to a device had no outage."""


def fault_numbers(unit: Unit, drawn: Drawn, trail: Trail, counted: slice, makespan_s: float) -> Numbers:
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
    for device, part in unit.scenario.devices.items():
        if part.failures is not None:
            numbers[device + AVAILABILITY] = _up_share(down_times(unit, device), makespan_s)
    for device, links in _outages(unit, drawn).items():
        failing = [link for link in links if link is not ALWAYS_UP]
        if failing:
            numbers[device + LINK_AVAILABILITY] = _up_share(failing, makespan_s)
    return numbers


def _up_share(parts: Sequence[DownTimes], until_s: float) -> float:
    return 1.0 - sum(part.down_s(until_s) for part in parts) / len(parts) / until_s


def faults_outside(plan: RunPlan, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the failures and the outages of a scenario of which none falls into a run. `rows`: those of its runs."""
    for name, device, links in _links(plan):
        of_network = [row for row in rows if row["network"] == name]
        has_outages = any(link.outages is not None for link in links)
        if has_outages and _are_up(of_network, device + LINK_AVAILABILITY):
            yield f"{name}: no outage of the link to {device} falls into {_runs(of_network)}"
    for device, part in plan.scenario.devices.items():
        if part.failures is not None and _are_up(rows, device + AVAILABILITY):
            yield f"no failure of {device} falls into {_runs(rows)}"


def _links(plan: RunPlan) -> Iterator[tuple[str, str, Sequence[Link]]]:
    """Yield the network and the device of each hop with its links."""
    for name, network in plan.networks.items():
        for device, links in {**network.hops, list(plan.scenario.devices)[-1]: (network.link,)}.items():
            yield name, device, links


def _are_up(rows: Sequence[Row], column: str) -> bool:
    shares = [row[column] for row in rows if column in row]
    return bool(shares) and min(shares) >= 1.0


def _runs(rows: Sequence[Row]) -> str:
    return f"the {duration(max(row['makespan_s'] for row in rows))} of the runs"


class NoAnswers(InputError):
    """A run whose requests are all lost."""


def refuse_without_answers(unit: Unit, policy: str, outcome: Array | None, cut: int = 0) -> None:
    """Raise `NoAnswers` if every request of a run after its first `cut` is lost, since nothing is left to be summarised."""
    if outcome is None or were_answered(outcome[cut:]).any():
        return
    where = f"{unit.case.name} on {unit.network} under {policy}"
    after, shorten = (f" after the warm-up of {cut:,} requests", ", or shorten warm_up") if cut else ("", "")
    raise NoAnswers(
        f"every request of {where}{after} is lost in replication {unit.replication}",
        remedy=f"set late_answers.timeout_ms, so that requests fall back, or make faults rarer{shorten}",
    )


def with_faults(numbers: Numbers, of_faults: Numbers, criteria: Criteria) -> Numbers:
    """Return the numbers of the answered requests and those of the faults (`fault_numbers`), made to fit each other.

    Lost requests count in the total as the mean of the others, so that a policy does not gain by losing requests; they are
    never in time. Loads are parts of the work that a device can do while its boxes are up.
    """
    if not of_faults:
        return numbers
    numbers = shares_of_all(numbers, criteria, known(of_faults["answered_share"]))
    divisors = dict.fromkeys(("total_latency_s", "offered_rps"), known(of_faults["answered_share"]))
    for name, share in of_faults.items():
        if name.endswith(AVAILABILITY) and share:
            device = name.removesuffix(AVAILABILITY)
            divisors |= dict.fromkeys((f"{device}_load", f"{device}_busiest_load"), share)
    fitting = {name: numbers[name] for name in divisors}
    return numbers | of_faults | {name: None if value is None else value / divisors[name] for name, value in fitting.items()}


def describe_faults(plan: RunPlan, rows: Sequence[Row]) -> Iterator[str]:
    """Yield what fails in a run, how long devices were up, and what the device that decides does about it.

    `rows`: those of the summary.
    """
    scenario = plan.scenario
    if not scenario.has_faults:
        return
    for name, device, links in _links(plan):
        for link in dict.fromkeys(links):
            if link.outages is not None:
                yield f"{name}, link to {device}: {link.outages.describe()}."
    for device, part in scenario.devices.items():
        if part.failures is not None:
            shares = [row[device + AVAILABILITY] for row in rows]
            up = digits(100 * sum(shares) / len(shares))
            yield f"{device}: {part.failures.describe()}. In these runs its boxes were up for {up} % of the time."
    yield from (f"{message}." for message in faults_outside(plan, rows))
    if scenario.late_answers is not None:
        yield f"Late answers: {scenario.late_answers.describe()}."


def lost_requests(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a warning for each workload and network on which policies lose requests."""
    cells = dict.fromkeys((row["workload"], row["network"]) for row in rows)
    for workload, network in cells:
        of_cell = [row for row in rows if (row["workload"], row["network"]) == (workload, network)]
        losing = {row["policy"]: row["lost_share"] for row in of_cell if row.get("lost_share")}
        if losing:
            shares = format_list((f"{policy} {digits(100 * share)} %" for policy, share in losing.items()), "and")
            yield (
                f"{workload} on {network}: requests are lost ({shares}); latencies are over the answered ones, so a policy "
                "that loses more may look faster"
            )
