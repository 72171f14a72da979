"""The RTT clock of a run: at which moments of a network's traces requests meet them, and how old an estimate is by then.

Back to back, those moments must not depend on the policy, or a slow choice could sit out a peak of the RTT and beat the oracle
(CNMT-02). On the clock `pace` they lie one constant pace apart, so that a transfer estimate ages between two requests as it
does in reality. On `spread` they divide one lap of the trace evenly, so that the pace depends on the number of requests: that
is for the C-NMT paper's Table I. With arrivals of their own or clients, and on `own`, requests meet the traces when issued.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.results.summary import Row
from simnmt.results.wording import duration
from simnmt.scenario.build import Case
from simnmt.scenario.model import Scenario
from simnmt.scenario.routes import Routes
from simnmt.workload.arrivals import BackToBack
from simnmt.workload.length_table import LengthTable

Column = NDArray[np.float64]
ClockKind = Literal["pace", "spread", "time"]
"""`time`: the run's own time, which `arrival` and `own` mean."""

OFF_PACE = 3.0
"""Ratio of the clock's pace to the time that a request takes, up or down, from which a run is marked."""
_ACCESS_SAMPLES = 1_000
"""Moments of a lap at which an access link is looked up."""


def clock_kind(scenario: Scenario, workload: str, network: str) -> ClockKind:
    """Return by which clock the requests of a workload meet the traces of a network."""
    clock = scenario.networks[network].clock
    if clock == "pace" or clock == "spread":
        return clock
    back_to_back = isinstance(scenario.workloads[workload].arrivals, BackToBack)
    return "pace" if clock is None and back_to_back else "time"


def clock_pace_s(scenario: Scenario, case: Case, network: str, network_routes: Routes) -> float | None:
    """Return the seconds of the traces that pass from one request to the next; None on the run's own time.

    On the clock `pace` that is what the scenario states, else the mean latency of the fixed policy that sends everything to the
    first target, over all pairs that requests are drawn from and one lap of the access links: the same in every replication,
    however many requests there are.
    """
    clock = clock_kind(scenario, case.name, network)
    if clock == "time":
        return None
    if clock == "spread":
        return network_routes.lap_s / scenario.requests
    stated = scenario.networks[network].pace_s
    pace_s = stated.get(case.name) if isinstance(stated, dict) else stated
    return pace_s if isinstance(pace_s, float) else case.mean_alone_s(0) + _mean_access_s(case.replayed, network_routes)


def _mean_access_s(table: LengthTable, network_routes: Routes) -> float:
    """Return what a mean pair takes from the end nodes to the first target and back, on average over one lap of each link."""
    if network_routes.access is None:
        return 0.0
    src_len, tgt_len = (
        np.full(_ACCESS_SAMPLES, round(float(np.average(lengths, weights=table.count))))
        for lengths in (table.src_len, table.tgt_len)
    )
    way_s = []
    for link in network_routes.access.links:
        at_s = (np.arange(_ACCESS_SAMPLES) + 0.5) / _ACCESS_SAMPLES * link.rtt.duration_s
        up_s, down_s = link.ways_s(at_s, src_len, tgt_len, network_routes.token_bytes[0])
        way_s.append(float((up_s + down_s).mean()))
    return sum(way_s) / len(way_s)


def estimate_age_s(arrival_s: Column, decided_s: Column, measured_at_s: Column, moments_s: Column | None) -> Column:
    """Return how old the transfer estimate is at each decision, seconds on the clock by which RTT is looked up.

    Args:
        arrival_s: when each request is issued, in the order of the decisions; sorted, as are the other columns.
        decided_s: when each decision is made, on the run's own time.
        measured_at_s: when the measurement believed in was heard, on the run's own time; 0 for the initial belief.
        moments_s: when each request meets the traces; None where it does so on the run's own time.

    A clock that follows no policy stands at the moment of the last request issued: a measurement that is heard before the next
    one is issued is as old as the moment at which that last request met the traces.
    """
    if moments_s is None:
        return decided_s - measured_at_s
    last = np.searchsorted(arrival_s, measured_at_s, side="left") - 1
    age_s: Column = moments_s - np.where(last < 0, 0.0, moments_s[last])
    # Over access links of different lengths requests are decided on in another order than they met the traces.
    return np.maximum(age_s, 0.0)


def clock_notes(scenario: Scenario, rows: Sequence[Row]) -> Iterator[str]:
    """Describe the pace of every RTT clock that no policy moves, and warn where it is far from the pace of the run itself.

    `rows`: the summary's.
    """
    for workload in scenario.workloads:
        for network in scenario.networks:
            here = [row for row in rows if (row["workload"], row["network"]) == (workload, network)]
            pace_s = here[0]["rtt_pace_s"] if here else None
            if pace_s is None:
                continue
            kind = clock_kind(scenario, workload, network)
            how = "whatever the policy" if kind == "pace" else "as the requests are spread evenly over one lap of it"
            yield (
                f"{workload} on {network}: RTT clock {kind}: {duration(pace_s)} of trace pass from one request to the next, "
                f"{how}.{_off_pace(network, kind, pace_s, here)}"
            )


def _off_pace(network: str, kind: ClockKind, pace_s: float, rows: Sequence[Row]) -> str:
    """Name the policies whose requests follow each other at another pace than the clock's; empty where there are none."""
    taken_s = {row["policy"]: 1.0 / row["throughput_rps"] for row in rows if row["throughput_rps"] > 0.0}
    off = {policy: pace_s / seconds for policy, seconds in taken_s.items() if not 1 / OFF_PACE <= pace_s / seconds <= OFF_PACE}
    if not off:
        return ""
    least, most = min(off.values()), max(off.values())
    times = f"{least:.3g}" if f"{least:.3g}" == f"{most:.3g}" else f"{least:.3g} to {most:.3g}"
    remedy = (
        f"give networks.{network}.pace_s the mean latency of the policy of interest"
        if kind == "pace"
        else f"set networks.{network}.clock: pace for the pace of real requests"
    )
    return (
        f" That is {times} times as long as a request takes under {', '.join(off)}, so the RTT changes, and transfer estimates "
        f"age, {times} times as fast as they would; {remedy}."
    )
