"""Series of a replayed link, its measured overhead, its losses, netem's commands, and precise timers."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import numpy as np
import pytest

from simnmt.network.configuration import NetworkConfiguration, load_network
from simnmt.network.errors import TraceError
from simnmt.network.link import Link
from simnmt.network.series import BandwidthSeries, RttSeries
from simnmt.service.link_direction import Delays, Direction, LinkClock
from simnmt.service.link_setup import measure_overhead, netem_commands, read_link
from simnmt.service.precise_timers import measure_lateness_s, new_precise_loop
from tests.service.link_ends import plain_link


def test_a_link_is_read_as_a_scenario_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rtt.csv").write_text("time_s,rtt_ms\n0,50\n60,\n120,70\n")
    Path("rates.csv").write_text("time_s,downlink_mbps,uplink_mbps\n0,50,10\n60,60,12\n")
    link = read_link("rtt.csv", "rates.csv:uplink_mbps", "rates.csv:downlink_mbps", rtt_mean_s=0.03)
    network = {
        "rtt": "rtt.csv",
        "rtt_mean_ms": 30,
        "uplink_mbps": {"csv": "rates.csv", "column": "uplink_mbps"},
        "downlink_mbps": {"csv": "rates.csv", "column": "downlink_mbps"},
    }
    simulated = load_network(NetworkConfiguration.model_validate(network), tmp_path, "office").link
    for at_s in (0.0, 59.0, 60.0, 125.0, 1e4):
        assert link.ways_one_s(at_s, 20, 30, 2) == simulated.ways_one_s(at_s, 20, 30, 2)
    assert link.rtt.lost == 1
    assert read_link("@cp1").rtt.mean_s == load_network(NetworkConfiguration(rtt="@cp1"), tmp_path, "x").link.rtt.mean_s
    with pytest.raises(TraceError, match=r"rates\.csv"):
        read_link("rtt.csv", "rates.csv")


def direction(loop: asyncio.AbstractEventLoop, link: Link, loss: float = 0.0, seed: int = 1) -> Direction:
    return Direction(LinkClock(loop, 0.0), link.rtt, link.uplink_bps, loss, seed, "uplink")


class FrozenLoop:
    """A loop whose clock is set by hand."""

    now_s = 100.0

    def time(self) -> float:
        return self.now_s


@pytest.mark.parametrize("size", [1, 1448, 100_000])
def test_bytes_that_meet_an_empty_queue_take_exactly_the_simulated_time(size: int) -> None:
    rtt = RttSeries("r", "measured", "", np.array([0.0, 7.0]), np.array([0.04, 0.11]))
    rates = BandwidthSeries("b", "measured", "", np.array([0.0, 5.0]), np.array([1e6, 3e6]))
    link = Link(rtt, rates, 1e9)
    uplink = direction(FrozenLoop(), link)  # type: ignore[arg-type]
    for series_s in (0.5, 5.5, 9.0, 15.0):
        now_s = 100.0 + series_s
        expected_s = link.ways_one_s(series_s, size, 1, 1)[0]
        assert uplink.arrival_s(size, now_s) - now_s == pytest.approx(expected_s, rel=1e-9)


def test_bytes_wait_for_those_before_them() -> None:
    uplink = direction(FrozenLoop(), plain_link(0.02, 8e3))  # type: ignore[arg-type]
    assert [uplink.arrival_s(1000, 100.0) for _ in range(3)] == pytest.approx([101.01, 102.01, 103.01])
    assert uplink.arrival_s(1000, 110.0) == pytest.approx(111.01)


def test_losses_repeat_with_the_seed_and_have_the_stated_share() -> None:
    def lost(seed: int) -> list[bool]:
        uplink = direction(FrozenLoop(), plain_link(0.3), 0.05, seed)  # type: ignore[arg-type]
        return [uplink.arrival_s(100, 100.0 + k) - (100.0 + k) > 0.7 for k in range(4000)]  # 2 RTT more

    assert lost(1) == lost(1) != lost(2)
    assert 0.035 < np.mean(lost(1)) < 0.065
    uplink = direction(FrozenLoop(), plain_link(0.3), 0.05)  # type: ignore[arg-type]
    for k in range(1000):
        uplink.arrival_s(10 * 1448, 100.0 + k)
    assert uplink.retransmissions / 1000 == pytest.approx(1 - 0.95**10, abs=0.06)  # any of ten segments


def test_the_clock_of_a_cut_link_stands_still_while_its_series_goes_on() -> None:
    loop = FrozenLoop()
    clock = LinkClock(loop, begin_s=30.0)  # type: ignore[arg-type]
    loop.now_s = 101.0
    clock.stop()
    loop.now_s = 105.0
    assert clock.now_s() == 101.0
    clock.go_on()
    loop.now_s = 106.0
    assert (clock.now_s(), clock.series_s(clock.now_s()), clock.loop_s(clock.now_s())) == (102.0, 36.0, 106.0)


def test_quantiles_of_lateness_are_those_of_the_samples_within_a_bin() -> None:
    lateness_s = np.random.default_rng(1).lognormal(-8, 1, 5000)
    delays = Delays()
    for late_s in lateness_s.tolist():
        delays.add(0.01, late_s)
    assert delays.late_quantile_s(0.99) == pytest.approx(np.quantile(lateness_s, 0.99), rel=0.13)
    assert delays.late_s / delays.count == pytest.approx(lateness_s.mean())


def test_the_overhead_is_measured_through_a_real_link() -> None:
    overhead = measure_overhead(30)
    assert overhead.direct_median_s <= overhead.direct_p99_s
    assert overhead.proxied_median_s > overhead.direct_median_s > 0.0
    assert overhead.added_median_s < 0.05


def test_timers_of_the_precise_loop_are_never_early_and_not_rounded_to_milliseconds() -> None:
    lateness_s = measure_lateness_s(40, 1.3e-3)
    assert lateness_s[0] >= 0.0
    # epoll's own timeout of 1.3 ms ends after 2 ms: not one timer in 40 would be less than 0.6 ms late.
    assert lateness_s[0] < 0.6e-3


def test_the_precise_loop_serves_sockets() -> None:
    async def talk() -> bytes:
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            right.setblocking(False)
            loop = asyncio.get_running_loop()
            loop.call_later(0.002, left.send, b"late")
            return await asyncio.wait_for(loop.sock_recv(right, 10), 5.0)

    loop = new_precise_loop()
    try:
        assert loop.run_until_complete(talk()) == b"late"
    finally:
        loop.close()


def test_netem_replays_a_lap_of_both_series() -> None:
    rtt = RttSeries("r", "measured", "", np.array([0.0, 2.0]), np.array([0.04, 0.1]))
    rates = BandwidthSeries("b", "measured", "", np.array([0.0, 3.0]), np.array([1e6, 3e6]))
    commands = list(netem_commands(Link(rtt, rates, 1e9), "eth0"))
    begin = "tc qdisc {} dev eth0 root netem limit 100000 "
    assert commands == [
        begin.format("replace") + "delay 20000us rate 1000000bit",
        "sleep 2",
        begin.format("change") + "delay 50000us rate 1000000bit",
        "sleep 1",
        begin.format("change") + "delay 50000us rate 3000000bit",
        "sleep 1",
    ]
