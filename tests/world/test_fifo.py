"""The analytic FIFO server against one that keeps track of its workers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.world.fifo_server import FifoServer

EIGHTHS = st.integers(0, 40).map(lambda eighths: eighths / 8)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(st.integers(1, 4), st.lists(st.tuples(EIGHTHS, EIGHTHS), max_size=40))
def test_each_request_takes_the_worker_that_is_free_first(workers: int, rows: list[tuple[float, float]]) -> None:
    server, free_at_s, entry_s = FifoServer(workers), [0.0] * workers, 0.0
    for gap_s, service_s in rows:
        entry_s += gap_s
        worker = free_at_s.index(min(free_at_s))
        start_s = max(free_at_s[worker], entry_s)
        free_at_s[worker] = start_s + service_s
        assert server.serve(entry_s, service_s) == start_s
        assert max(server.free_at_s[0] - entry_s, 0.0) == max(min(free_at_s) - entry_s, 0.0)


def test_one_worker_serves_one_after_another_and_two_side_by_side() -> None:
    one, two = FifoServer(1), FifoServer(2)
    assert [one.serve(t, 3.0) for t in (0.0, 1.0, 10.0)] == [0.0, 3.0, 10.0]
    assert [two.serve(t, 3.0) for t in (0.0, 1.0, 2.0)] == [0.0, 1.0, 3.0]
