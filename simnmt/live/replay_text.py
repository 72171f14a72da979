"""The sentences of a live replay: its verdict, and the notes and warnings that a reader needs to judge its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from simnmt.base.suggestions import format_list
from simnmt.experiment.cases import Unit
from simnmt.results.live_log import LIVE_OUTCOMES
from simnmt.results.number_text import duration, percent
from simnmt.results.requests import FALLBACK
from simnmt.results.run import LiveMeasurement

MOST_UNANSWERED = 0.01
"""Share of unanswered requests above which latencies of the others are doubtful."""


def live_notes(
    unit: Unit, live: LiveMeasurement, *, texts: int | None, remarks: Sequence[str], slept_by: Sequence[str], fault: str
) -> Iterator[str]:
    """Yield the notes of a live replay.

    Args:
        unit: the workload of replication 0.
        live: what was measured where.
        texts: number of own texts; None for texts of random words.
        remarks: sentences on the service.
        slept_by: what slept the delays of the scenario's network.
        fault: message about the first request that was not answered; empty if all were.
    """
    if unit.scenario.description:
        yield unit.scenario.description
    sent, lateness, outcomes = sum(live.outcomes.values()), live.lateness_ms, live.outcomes
    yield f"Measured live: {sent:,} requests to the {live.service} at {live.url}, from {live.begun} to {live.ended}."
    yield from remarks
    yield (
        f"The load generator sent requests {lateness['p50']:.3f} ms late (p50; p99 {lateness['p99']:.3f}, max "
        f"{lateness['max']:.3f}), which is part of the latencies; up to {live.under_way:,} were under way."
    )
    if others := [f"{count:,} {name}" for name, count in outcomes.items() if count and name != "done"]:
        yield f"Outcomes beside done: {format_list(others)}{f'; the first fault: {fault}' if fault else ''}."
    if slept_by:
        yield f"Delays of the scenario's network {unit.network} were slept by the {format_list(slept_by)}."
    else:
        yield f"The network is the real one, whatever the scenario's network {unit.network} says."
    source = "texts of random words, with the workload's lengths on both sides" if texts is None else f"{texts:,} own texts"
    yield f"{unit.case.name}: {source}; {unit.case.arrivals.account}."
    if ignored := [name for name in unit.scenario.workloads if name != unit.case.name]:
        yield f"Only the workload {unit.case.name} was replayed, not {format_list(ignored)}."


def live_warnings(
    live: LiveMeasurement, timeout_s: float, lengths: Mapping[str, tuple[float, float]], connections: int
) -> Iterator[str]:
    """Yield what makes the numbers of a live replay doubtful.

    `lengths`: by side, mean tokens that the workload has and that the service counted.
    """
    sent = sum(live.outcomes.values())
    unanswered = sum(live.outcomes[name] for name in LIVE_OUTCOMES[FALLBACK + 1 :])
    if unanswered > MOST_UNANSWERED * sent:
        yield f"{percent(unanswered / sent)} of the requests were not answered within {duration(timeout_s)}, and are left out"
    if live.late_ms is not None:
        yield f"the load generator itself was {live.late_ms:.1f} ms late at p99: run it on a processor or machine of its own"
    if live.under_way >= connections:
        yield f"as many requests were under way as the load generator has connections ({connections:,}): others waited in it"
    for side, (wanted, counted) in lengths.items():
        if abs(counted - wanted) > 0.01 * wanted + 1.0:
            yield f"the service counted {counted:.1f} {side} tokens a request, where {wanted:.1f} were sent or asked for"
