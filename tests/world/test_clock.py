"""SimPy's clock with events of one moment in the order of their kind and number."""

from __future__ import annotations

from collections.abc import Generator
from itertools import permutations
from math import nextafter
from typing import Any

import simpy
from hypothesis import given
from hypothesis import strategies as st

from simnmt.devices.device import ANSWERED, ARRIVES, ASKS, BATCH_ACTS, COMPLETES, REACHES, Clock


def test_events_of_one_moment_happen_by_kind_then_number_however_they_were_put_there() -> None:
    events = [(kind, request) for kind in (REACHES, ARRIVES, ASKS) for request in (3, 12)]
    for order in permutations(events):
        clock, happened = Clock(), list[tuple[int, int]]()

        def once(kind: int, request: int, clock: Clock = clock, happened: Any = happened) -> Generator[simpy.Event, Any, None]:
            yield clock.moment(1.0, kind, request)
            happened.append((kind, request))

        for event in order:
            clock.process(once(*event))
        clock.run()
        assert happened == sorted(events)


def test_what_completes_frees_its_worker_for_what_arrives_and_a_batch_waits_for_all() -> None:
    assert COMPLETES < REACHES < ANSWERED < ARRIVES < ASKS < BATCH_ACTS


@given(st.floats(0.0, 1e9), st.floats(0.0, 1e6))
def test_a_moment_is_met_within_one_rounding_and_mostly_exactly(now_s: float, later_s: float) -> None:
    clock, at_s = Clock(initial_time=now_s), now_s + later_s
    clock.moment(at_s, ARRIVES, 0)
    clock.run()
    assert nextafter(at_s, -1.0) <= clock.now <= nextafter(at_s, at_s + 1.0)
