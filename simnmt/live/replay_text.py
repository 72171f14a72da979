"""The sentences of a live replay: its verdict, and the notes that a reader needs to judge its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from simnmt.base.suggestions import format_list
from simnmt.experiment.cases import Unit
from simnmt.results.live_log import LIVE_OUTCOMES
from simnmt.results.number_text import duration, percent
from simnmt.results.request_log import FALLBACK
from simnmt.results.result import LiveMeasurement
from simnmt.results.run_directory import RESOLVED
from simnmt.results.stability import describe_overload
from simnmt.results.summary import Device, Row

MOST_UNANSWERED = 0.01
"""Share of unanswered requests above which latencies of the others are doubtful."""


def describe_verdict(row: Row, live: LiveMeasurement, devices: Sequence[Device]) -> Row:
    """Return the verdict on the only row of a live replay: what was measured, and no recommendation."""
    done, sent = sum(live.outcomes[name] for name in LIVE_OUTCOMES[: FALLBACK + 1]), sum(live.outcomes.values())
    mean = duration(row["mean_latency_s"], row["mean_latency_s_low"], row["mean_latency_s_high"])
    sentence = f"measured live: {row['policy']} answered {done:,} of {sent:,} requests, with a mean latency of {mean}"
    if row.get("p95_latency_s") is not None:
        sentence += f" and a p95 of {duration(row['p95_latency_s'])}"
    if len(devices) > 1:
        where = f"to the {devices[1].name}" if len(devices) == 2 else f"away from the {devices[0].name}"
        sentence += f"; {percent(row['offloaded_share'])} of them went {where}"
    overload = describe_overload(row) if row.get("unstable") else ""
    empty = dict.fromkeys(("caution", "gap", "reason", "short_reason", "triviality", "variants"), "")
    place = {"workload": row["workload"], "network": row["network"]}
    return {**place, "sentence": f"{sentence}.{f' {overload}' * bool(overload)}", **empty}


def live_notes(
    unit: Unit,
    live: LiveMeasurement,
    *,
    warm_up: int,
    texts: int | None,
    remarks: Sequence[str],
    slept_by: Sequence[str],
    fault: str,
) -> Iterator[str]:
    """Yield the notes of a live replay.

    Args:
        unit: the workload of replication 0.
        live: what was measured where.
        warm_up: requests before each replication.
        texts: number of own texts; None for texts of random words.
        remarks: sentences on the service.
        slept_by: what slept the delays of the scenario's network.
        fault: message about the first request that was not answered; empty if all were.
    """
    scenario, case, devices = unit.scenario, unit.case, [target.device for target in unit.case.targets]
    if scenario.description:
        yield scenario.description
    sent = sum(live.outcomes.values())
    yield (
        f"Measured live, not simulated: {sent:,} requests to the {live.service} at {live.url}, from {live.begun} to "
        f"{live.ended}. Another replay measures anew and gives other numbers; simnmt run of {RESOLVED} simulates the scenario"
        f"{'' if texts is None else ', with the lengths of its workload and not of these texts'}."
    )
    yield from remarks
    lateness = live.lateness_ms
    yield (
        "A latency begins when its request was due, not when it was sent. The load generator sent requests "
        f"{lateness['p50']:.3f} ms late (p50; p99 {lateness['p99']:.3f}, max {lateness['max']:.3f}), with up to "
        f"{live.under_way:,} under way; its lateness is part of the latencies."
    )
    yield (
        "Queue and execution are those that the service states. Transfer is the rest of the latency: links, overheads of "
        "service and load generator, and after a fallback the time lost at the other device."
    )
    yield from _describe_outcomes(live.outcomes, fault)
    if slept_by:
        yield f"Delays of the scenario's network {unit.network} were slept by the {format_list(slept_by, 'and')}."
    else:
        yield f"The network is the real one, whatever the scenario's network {unit.network} says."
    if len(devices) > 1:
        yield f"The RTT series shown holds the transfer times of requests that {devices[-1]} executed, if there are any."
    yield _describe_lengths(case.name, texts)
    yield f"{case.name}: {case.arrivals.account}."
    yield f"{warm_up} requests before each replication, which are not counted, opened connections and filled caches."
    others = [name for name in scenario.workloads if name != case.name]
    if others:
        yield f"Only the workload {case.name} was replayed, not {format_list(others)}."
    if batching := [name for name, part in scenario.devices.items() if part.batching is not None]:
        yield (
            f"The places of a batch of {format_list(batching)} count as workers, and a load as their occupied share; steps and "
            "sizes of batches were not measured."
        )
    if scenario.replications == 1:
        yield "One replication: no intervals, so a difference to another run may be chance."


def live_warnings(
    live: LiveMeasurement, timeout_s: float, lengths: Mapping[str, tuple[float, float]], connections: int
) -> Iterator[str]:
    """Yield what makes the numbers of a live replay doubtful.

    `lengths`: by side, mean tokens that the workload has and that the service counted.
    """
    sent = sum(live.outcomes.values())
    unanswered = sum(live.outcomes[name] for name in LIVE_OUTCOMES[FALLBACK + 1 :])
    if unanswered > MOST_UNANSWERED * sent:
        yield (
            f"{percent(unanswered / sent)} of the requests were not answered (each had {duration(timeout_s)}), so the "
            "latencies of the others say too little of how long users wait"
        )
    if live.late_ms is not None:
        yield f"the load generator itself was {live.late_ms:.1f} ms late at p99: run it on a processor or machine of its own"
    if live.under_way >= connections:
        yield f"as many requests were under way as the load generator has connections ({connections:,}): others waited in it"
    for side, (wanted, counted) in lengths.items():
        if abs(counted - wanted) > 0.01 * wanted + 1.0:
            yield (
                f"the service counted {counted:.1f} {side} tokens a request, where {wanted:.1f} were sent or asked for: its "
                "model splits the words of random texts, or does not obey forced lengths"
            )


def _describe_outcomes(outcomes: Mapping[str, int], fault: str) -> Iterator[str]:
    if outcomes["fallback"]:
        many = f"{outcomes['fallback']:,} request{'s' * (outcomes['fallback'] > 1)}"
        yield f"{many} fell back: the chosen device did not answer, and the gateway translated (outcome {FALLBACK})."
    lost = {name: outcomes[name] for name in LIVE_OUTCOMES[FALLBACK + 1 :] if outcomes[name]}
    if lost:
        counts = format_list([f"{count:,} {name} (outcome {LIVE_OUTCOMES.index(name)})" for name, count in lost.items()], "and")
        yield (
            f"Not answered: {counts}; the first: {fault}. They are in requests.parquet with target -1 and without times, and "
            "left out of latencies, shares and loads."
        )


def _describe_lengths(workload: str, texts: int | None) -> str:
    if texts is None:
        return (
            f"{workload}: texts of random words, as long as the workload's sources; the service was forced to the lengths of "
            "the workload's targets."
        )
    return (
        f"{workload}: {texts:,} own texts in turn, in place of the workload's lengths; lengths are those that the service "
        "counted, 0 for requests that were not answered."
    )
