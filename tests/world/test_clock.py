"""The canary for what the clock relies on in SimPy, and the order in which its events happen."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from itertools import permutations
from pathlib import Path

import pytest
import simpy



class TestSimPy:
    """Fails when another SimPy is installed than the one the clock was written for."""

    def test_the_minor_version_is_the_pinned_one(self) -> None:
        assert metadata.version("simpy").split(".")[:2] == ["4", "1"]
        assert '"simpy>=4.1,<4.2"' in (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")

    def test_the_queue_is_a_heap_of_time_priority_sequence_and_event(self) -> None:
        environment = simpy.Environment()
        later, sooner = environment.timeout(2.0), environment.timeout(1.0)
        assert type(environment._queue) is list
        assert [len(entry) for entry in environment._queue] == [4, 4]
        (time_s, priority, sequence, event), (*_, last) = sorted(environment._queue, key=lambda entry: entry[0])
        assert (time_s, event, last) == (1.0, sooner, later)
        assert isinstance(priority, int) and isinstance(sequence, int)
        assert environment._queue[0][3] is sooner

    def test_a_step_pops_the_least_entry_empties_callbacks_calls_each_and_looks_at_ok(self) -> None:
        environment = simpy.Environment()
        seen = []

        class Watched:
            looked = 0

            @property
            def _ok(self) -> bool:
                self.looked += 1
                return True

        event = Watched()
        event.callbacks = tuple(lambda given, mark=mark: seen.append((mark, given, given.callbacks)) for mark in "ab")
        environment._queue.append((3.0, ARRIVAL, 7, event))
        environment.step()
        assert seen == [("a", event, None), ("b", event, None)]
        assert event.callbacks is None
        assert event.looked == 1
        assert environment.now == 3.0
        assert environment._queue == []
        with pytest.raises(simpy.core.EmptySchedule):
            environment.step()

    def test_the_queue_stays_the_same_list_while_it_runs(self) -> None:
        environment = simpy.Environment()
        queue = environment._queue
        environment.timeout(1.0)
        environment.run()
        assert environment._queue is queue
        assert environment.now == 1.0

    def test_an_error_of_a_callback_ends_the_run(self) -> None:
        environment, event = simpy.Environment(), Event()
        event.callbacks = (lambda _: 1 // 0,)
        environment._queue.append((1.0, ARRIVAL, 0, event))
        with pytest.raises(ZeroDivisionError):
            environment.run()

    def test_processes_of_simpy_may_live_on_the_same_clock(self) -> None:
        clock, seen = Clock(), []

        def process() -> Iterator[simpy.Event]:
            yield clock._environment.timeout(1.5)
            seen.append(("process", clock._environment.now))

        def ours() -> Iterator[float]:
            for at_s in (1.0, 2.0):
                yield at_s
                seen.append(("ours", at_s))

        clock._environment.process(process())
        clock.follow(ours(), ARRIVAL)
        assert clock.run() == 2.0
        assert seen == [("ours", 1.0), ("process", 1.5), ("ours", 2.0)]


def test_events_of_one_moment_happen_by_kind_then_number_however_they_were_put_there() -> None:
    events = [(kind, request) for kind in (REACHES_SERVER, ARRIVAL, ASKS) for request in (3, 12)]
    for order in permutations(events):
        clock = Clock()
        happened: list[tuple[int, int]] = []

        def once(kind: int, request: int, happened: list[tuple[int, int]] = happened) -> Iterator[float]:
            yield 1.0
            happened.append((kind, request))

        for event in order:
            clock.follow(once(*event), *event)
        clock.run()
        assert happened == sorted(events)


def test_what_reaches_the_server_goes_before_an_arrival_of_the_same_moment_and_that_before_a_client_that_asks() -> None:
    assert REACHES_SERVER < ARRIVAL < ASKS


def test_a_clock_with_nothing_to_do_ends_at_once() -> None:
    assert Clock().run() == 0.0


def test_a_followed_generator_runs_up_to_its_first_moment_and_then_at_each() -> None:
    clock, seen = Clock(), []

    def moments() -> Iterator[float]:
        seen.append(("begun", clock._environment.now))
        for at_s in (0.5, 0.5, 4.0):
            yield at_s
            seen.append((at_s, clock._environment.now))

    clock.follow(moments(), ARRIVAL)
    assert seen == [("begun", 0)]
    assert len(clock.heap) == 1
    assert clock.run() == 4.0
    assert seen[1:] == [(0.5, 0.5), (0.5, 0.5), (4.0, 4.0)]


def test_time_passes_at_once_only_to_what_is_before_all_else() -> None:
    clock, seen = Clock(), list[tuple[str, bool]]()
    later = Event()
    later.callbacks = (lambda _: seen.append(("later", clock.passes(9.0))),)
    first = Event()
    first.callbacks = (lambda _: seen.extend([("before", clock.passes(1.5)), ("same moment", clock.passes(2.0))]),)
    clock.heap += [(1.0, SERVER_ACTS, 0, first), (2.0, ARRIVAL, 0, later)]
    assert clock.run() == 9.0
    assert seen == [("before", True), ("same moment", False), ("later", True)]
    assert clock.now_s == 9.0


def test_a_server_acts_when_all_who_come_in_that_moment_are_there() -> None:
    """Also at the device of whoever decides, which they reach when they arrive there, or are asked there."""
    assert max(ARRIVAL, ASKS, SERVER_ACTS, REACHES_SERVER) == SERVER_ACTSfrom simnmt.devices.device import Clock

