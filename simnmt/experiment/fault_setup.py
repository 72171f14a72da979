"""Faults of one unit: the links and boxes that fail in its replication, what deciders do about it, and the numbers of it all.

Everything random is keyed by the unit, never by a policy, so that all policies meet the same faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simnmt.base import random_streams
from simnmt.base.columns import AnyColumn
from simnmt.base.down_times import ALWAYS_UP, DownTimes
from simnmt.base.errors import InputError
from simnmt.base.suggestions import format_list
from simnmt.experiment.cases import RunPlan, Unit
from simnmt.experiment.draws import Drawn
from simnmt.experiment.targets import Target
from simnmt.network.link import Link
from simnmt.network.link_faults import Channel
from simnmt.results.metrics import Criteria
from simnmt.results.number_text import digits, duration
from simnmt.results.request_log import FALLBACK, HEDGED, LOST, were_answered
from simnmt.results.requests import Trail
from simnmt.results.summary import Numbers, Row, known, shares_of_all
from simnmt.world.batch_pool import BatchPool, BatchServerSpec
from simnmt.world.faults.failing_boxes import AvailableBoxes, FailingBatchPool, FailingPool
from simnmt.world.faults.faulty_traffic import Faults
from simnmt.world.server import Balancer, Server
from simnmt.world.streaming_server import StreamingPool


def faults(unit: Unit, drawn: Drawn) -> Faults | None:
    """Return the faults of the links of a unit, and what its deciders do about late answers; None without faults."""
    scenario = unit.scenario
    if not scenario.has_faults or drawn.paths is None:
        return None
    late, devices = scenario.late_answers, list(scenario.devices)
    retries = {
        number: (part.failures.retries, part.failures.retry_after_ms / 1e3)
        for number, part in enumerate(scenario.devices.values())
        if part.failures is not None and part.failures.requests == "retried"
    }
    return Faults(
        channels={number: channel for number, _, channel in _channels(unit, drawn)},
        uniforms=random_streams.KeyedUniforms(*unit.stream(f"{unit.network}/losses")),
        timeout_s=None if late is None or late.timeout_ms is None else late.timeout_ms / 1e3,
        hedge_after_s=None if late is None or late.hedge_after_ms is None else late.hedge_after_ms / 1e3,
        hedge_target=None if late is None or late.hedge_to is None else devices.index(late.hedge_to),
        retries=retries,
        again_s=drawn.again_s,
    )


def _channels(unit: Unit, drawn: Drawn) -> Iterator[tuple[int, str, Channel]]:
    """Yield the links with faults: the number among all links of the paths, the device to which it leads, and the link."""
    number = 0
    for device, hop in zip(list(unit.scenario.devices)[1:], drawn.routes.hops, strict=True):
        for which, link in enumerate(hop.links):
            if link.faults is not None:
                key = unit.scenario.seed, unit.replication, f"{unit.network}/{device} link {which}"
                yield number, device, link.faults.channel(*key, link.rtt, hop.begin_s[which % len(hop.begin_s)])
            number += 1


def down_times(unit: Unit, device: str) -> list[DownTimes]:
    """Return when each box of a device is down, the same for every policy."""
    count = unit.scenario.count_of(device, unit.case.name)
    failures = unit.scenario.devices[device].failures
    if failures is None:
        return [ALWAYS_UP] * count
    seed, replication, name = unit.stream(f"{device} failures")
    return [DownTimes(failures.spans(seed, replication, f"{name} {box}")) for box in range(count)]


def failing_server(unit: Unit, target: Target, balancer: Balancer, ordinary: Server) -> Server:
    """Return the server of a target whose boxes may fail, or execute second copies; `ordinary`: the one without faults."""
    device = unit.scenario.devices[target.device]
    down, failures = down_times(unit, target.device), device.failures
    late, fate = unit.scenario.late_answers, "lost" if failures is None else failures.requests
    has_copies = fate == "retried" or (late is not None and late.hedge_after_ms is not None)
    balancer = AvailableBoxes(balancer, down, unit.scenario.requests, notes=has_copies)
    if isinstance(ordinary, (BatchPool, StreamingPool)):
        if failures is not None and isinstance(ordinary, BatchPool):
            assert isinstance(ordinary.batched, BatchServerSpec)
            return FailingBatchPool(ordinary.batched, down, fate, balancer)
        ordinary.balancer = balancer
        return ordinary
    return FailingPool(down, device.workers, fate, balancer)


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
        "hedged_share": float((outcome == HEDGED).mean()),
        **trail.faults.shares(requests),
    }
    for device, part in unit.scenario.devices.items():
        if part.failures is not None:
            numbers[device + AVAILABILITY] = _up_share(down_times(unit, device), makespan_s)
    outages: dict[str, list[DownTimes]] = {}
    for _, device, channel in _channels(unit, drawn):
        outages.setdefault(device, []).append(channel.outages)
    return numbers | {device + LINK_AVAILABILITY: _up_share(links, makespan_s) for device, links in outages.items()}


def _up_share(parts: Sequence[DownTimes], until_s: float) -> float:
    return 1.0 - sum(part.down_s(until_s) for part in parts) / len(parts) / until_s


def faults_outside(plan: RunPlan, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the failures and the outages of a scenario of which none falls into a run. `rows`: those of its runs."""
    for name, device, links in _links(plan):
        of_network = [row for row in rows if row["network"] == name]
        has_outages = any(link.faults is not None and link.faults.outages is not None for link in links)
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


def refuse_without_answers(unit: Unit, policy: str, outcome: AnyColumn | None, cut: int = 0) -> None:
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
            if link.faults is not None:
                yield f"{name}, link to {device}: {_describe_link_faults(link)}."
    for device, part in scenario.devices.items():
        if part.failures is not None:
            shares = [row[device + AVAILABILITY] for row in rows]
            up = digits(100 * sum(shares) / len(shares))
            yield f"{device}: {part.failures.describe()}. In these runs its boxes were up for {up} % of the time."
    yield from (f"{message}." for message in faults_outside(plan, rows))
    if scenario.late_answers is not None:
        yield f"Late answers: {scenario.late_answers.describe()}."
    yield "The compiled engine does not cover faults: the SimPy engine ran these requests."


def _describe_link_faults(link: Link) -> str:
    assert link.faults is not None
    outages, loss, again = link.faults.outages, link.faults.loss, link.faults.retransmission
    parts = [] if outages is None else [outages.describe()]
    if loss is not None:
        parts.append(
            f"bursts of losses ({100 * loss.bad_share:g} % for {loss.mean_bad_s:g} s in the mean, {100 * loss.good_share:g} % "
            f"for {loss.mean_good_s:g} s between them, {digits(100 * loss.mean_share)} % in all)"
        )
    if again.times:
        times = f"after {again.timeout_ms:g} ms, then each time twice as long, up to {again.times} times"
        parts.append(f"a lost message is sent again {times}")
    else:
        parts.append("a lost message is not sent again")
    return "; ".join(parts)


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
