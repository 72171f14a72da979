"""A replayed link on real sockets: delays, the shared queue, content, ends and faults of connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.network.link import Link
from simnmt.network.series import BandwidthSeries, RttSeries
from simnmt.service import link as link_module
from simnmt.service.addresses import Address, AddressError
from simnmt.service.link import LinkError, LinkProxy, LinkSettings, Outage
from tests.service.link_ends import connect, echo, plain_link, receive, replayed, reset, server

SLACK_S = 0.5
"""By how much a step may be late on a busy box."""


def round_trips_s(end: socket.socket, count: int, message: bytes = b"x") -> list[float]:
    times_s = []
    for _ in range(count):
        began_s = time.monotonic()
        end.sendall(message)
        receive(end, len(message))
        times_s.append(time.monotonic() - began_s)
    return sorted(times_s)


def test_a_round_trip_takes_the_rtt() -> None:
    with replayed(plain_link(0.02)) as proxy, connect(proxy) as end:
        round_trips_s(end, 1)
        times_s = round_trips_s(end, 15)
    assert times_s[0] >= 0.02
    assert times_s[0] < 0.02 + 0.01, "the least of fifteen: any other may wait for a busy box"


def test_opening_a_connection_takes_one_rtt_more() -> None:
    with replayed(plain_link(0.05)) as proxy:
        began_s = time.monotonic()
        with connect(proxy) as end:
            round_trips_s(end, 1)
        assert 0.1 <= time.monotonic() - began_s < 0.1 + SLACK_S


def test_delays_are_those_of_the_simulated_link_and_follow_its_series_over_laps() -> None:
    rtt = RttSeries("steps", "measured", "", np.array([0.0, 0.1]), np.array([0.01, 0.06]))
    bandwidth = BandwidthSeries("slow", "measured", "", np.array([0.0, 0.1]), np.array([8e6, 8e5]))
    link = Link(rtt, bandwidth, 1e12)
    errors_s = []
    with replayed(link, settings=LinkSettings(begin_s=1e6)) as proxy, connect(proxy) as end:
        round_trips_s(end, 1)
        clock = proxy._clock
        for _ in range(8):
            message = b"m" * 1000
            series_s = clock.series_s(clock.now_s())
            # The answer meets the series when it reaches the server's end.
            up_s = link.ways_one_s(series_s, len(message), 0, 1)[0]
            down_s = link.ways_one_s(series_s + up_s, 0, len(message), 1)[1]
            errors_s.append(round_trips_s(end, 1, message)[0] - up_s - down_s)
            time.sleep(0.017)
        assert 0.0 <= proxy.summary().error_mean_s < 0.01
    # A message within a millisecond of a step may meet the series on either side of it.
    assert np.median(errors_s) < 0.01
    assert sum(error_s < 0.0 for error_s in errors_s) <= 2


def test_many_bytes_take_bytes_over_bandwidth() -> None:
    payload = bytes(100_000)
    with replayed(Link(plain_link().rtt, 8e6, 1e12)) as proxy, connect(proxy) as end:
        round_trips_s(end, 1)
        assert 0.1 <= round_trips_s(end, 1, payload)[0] < 0.1 + SLACK_S


def test_connections_share_the_bandwidth_of_a_direction_fairly() -> None:
    size = 300_000
    finished_s: list[float] = []
    with replayed(plain_link(bps=8e6), lambda end: end.sendall(bytes(size))) as proxy:
        began_s = time.monotonic()

        def fetch() -> None:
            with connect(proxy) as end:
                receive(end, size)
            finished_s.append(time.monotonic() - began_s)

        threads = [threading.Thread(target=fetch) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    alone_s = size / 1e6
    assert 2 * alone_s <= max(finished_s) < 2 * alone_s + SLACK_S
    assert min(finished_s) > 1.4 * alone_s  # a queue for each connection would take alone_s


def test_a_short_message_waits_at_most_the_bounded_queue() -> None:
    slow = Link(plain_link().rtt, 1e6, 1e12)
    with replayed(slow, lambda end: end.recv(1) and None) as proxy, connect(proxy) as bulk, connect(proxy) as short:
        bulk.sendall(bytes(100_000))  # 0.8 s at this bandwidth
        time.sleep(0.05)
        began_s = time.monotonic()
        short.sendall(b"x")
        assert short.recv(1) == b""
        assert time.monotonic() - began_s < 0.6


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 40_000), min_size=1, max_size=12), st.integers(0, 2**31))
def test_bytes_arrive_complete_and_in_order(shared: Address, sizes: list[int], seed: int) -> None:
    payload = np.random.default_rng(seed).bytes(sum(sizes))
    with socket.create_connection((shared.host, shared.port), timeout=20.0) as end:
        reader_bytes = bytearray()

        def read() -> None:
            while data := end.recv(1 << 16):
                reader_bytes.extend(data)

        reader = threading.Thread(target=read)
        reader.start()
        start = 0
        for size in sizes:
            end.sendall(payload[start : start + size])
            start += size
        end.shutdown(socket.SHUT_WR)
        reader.join(20.0)
    assert bytes(reader_bytes) == payload


@pytest.fixture(scope="module")
def shared():
    """A link whose RTT jumps up and down within microseconds, with small windows."""
    rtt = RttSeries("jumps", "measured", "", np.arange(7) * 3e-4, np.array([1, 9, 2, 30, 1, 1, 12]) * 1e-4)
    with replayed(Link(rtt, 4e8, 2e8), settings=LinkSettings(window_bytes=20_000)) as proxy:
        yield proxy.address


def test_the_end_of_one_half_leaves_the_other_open() -> None:
    def count(end: socket.socket) -> None:
        size = 0
        while data := end.recv(1 << 16):
            size += len(data)
        end.sendall(str(size).encode())

    with replayed(plain_link(0.01), count) as proxy, connect(proxy) as end:
        end.sendall(bytes(5000))
        end.shutdown(socket.SHUT_WR)
        assert receive(end, 4) == b"5000"
        assert end.recv(1) == b""
        summary = proxy.summary()
    assert (summary.resets, summary.uplink_bytes, summary.downlink_bytes) == (0, 5000, 4)


def test_a_reset_by_the_server_reaches_the_client_after_its_bytes() -> None:
    def answer(end: socket.socket) -> None:
        end.sendall(b"last words")
        end.recv(2)
        reset(end)

    with replayed(plain_link(0.02), answer) as proxy, connect(proxy) as end:
        assert receive(end, 10) == b"last words"
        end.sendall(b"go")
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    assert proxy.summary().resets == 1


def test_a_reset_by_the_client_reaches_a_server_that_reads() -> None:
    met: list[BaseException] = []
    ended = threading.Event()

    def answer(end: socket.socket) -> None:
        try:
            end.recv(1)
            end.recv(1)
        except OSError as error:
            met.append(error)
        finally:
            ended.set()

    with replayed(plain_link(0.02), answer) as proxy:
        end = connect(proxy)
        end.sendall(b"x")
        time.sleep(0.1)
        reset(end)
        assert ended.wait(5.0)
    assert [type(error) for error in met] == [ConnectionResetError]


def test_a_server_that_refuses_resets_the_client_and_is_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with LinkProxy(plain_link(0.02), Address("127.0.0.1", port)) as proxy:
        with connect(proxy) as end, pytest.raises(ConnectionResetError):
            end.recv(1)
        assert proxy.summary().unreachable == 1
        with connect(proxy) as end, pytest.raises(ConnectionResetError):  # the link goes on
            end.recv(1)


def test_an_outage_holds_bytes_and_new_connections_and_loses_nothing() -> None:
    payload = np.random.default_rng(1).bytes(300_000)
    with replayed(plain_link(0.02, 5e7)) as proxy, connect(proxy) as end:
        round_trips_s(end, 1)
        received: list[bytes] = []
        reader = threading.Thread(target=lambda: received.append(receive(end, len(payload))))
        reader.start()
        sender = threading.Thread(target=lambda: end.sendall(payload))
        sender.start()
        time.sleep(0.02)
        proxy.cut()
        before = proxy.summary()
        with connect(proxy) as late:
            late.settimeout(0.2)
            late.sendall(b"late")
            with pytest.raises(TimeoutError):
                late.recv(1)
            assert proxy.summary() == before or proxy.summary().connections == 2
            assert proxy.summary().downlink_bytes == before.downlink_bytes
            proxy.restore()
            late.settimeout(20.0)
            assert receive(late, 4) == b"late"
        reader.join(20.0)
        sender.join(20.0)
        assert received == [payload]
        summary = proxy.summary()
    assert (summary.outages, summary.resets) == (1, 0)
    assert summary.error_mean_s < 0.1  # the time of the outage counts as no delay of the link


def test_a_scheduled_outage_can_reset_connections() -> None:
    outage = Outage(0.3, 0.2, resets=True)
    began_s = time.monotonic()
    with replayed(plain_link(), settings=LinkSettings(outages=[outage])) as proxy:
        with connect(proxy) as end:
            round_trips_s(end, 1)
            with pytest.raises(ConnectionResetError):
                end.recv(1)
        with connect(proxy) as end:
            round_trips_s(end, 1)
        assert time.monotonic() - began_s >= 0.5


def test_a_slow_reader_stops_the_sender_and_memory_stays_bounded() -> None:
    window = 50_000
    gate, most = threading.Event(), 0

    def sleep_then_read(end: socket.socket) -> None:
        gate.wait(20.0)
        echo(end)

    with replayed(plain_link(), sleep_then_read, LinkSettings(window_bytes=window)) as proxy, connect(proxy) as end:
        end.settimeout(0.3)
        sent = 0
        with pytest.raises(TimeoutError):
            while True:
                sent += end.send(bytes(1 << 16))
                most = max(most, proxy.most_in_flight_bytes())
        most = max(most, proxy.most_in_flight_bytes())
        assert 0 < most <= window
        gate.set()
        end.settimeout(20.0)
        threading.Thread(target=end.shutdown, args=(socket.SHUT_WR,)).start()
        assert len(receive(end, sent)) == sent
        assert end.recv(1) == b""


def test_losses_delay_bytes_by_a_retransmission_and_are_drawn_from_the_seed() -> None:
    def late_ones(seed: int) -> list[bool]:
        with replayed(plain_link(), settings=LinkSettings(loss=0.3, seed=seed)) as proxy, connect(proxy) as end:
            slow = [round_trips_s(end, 1)[0] >= 0.2 for _ in range(5)]
            assert proxy.summary().retransmissions >= sum(slow)
            return slow

    first = late_ones(3)
    assert any(first)
    assert not all(first)


def test_connections_beyond_the_limit_are_reset() -> None:
    with replayed(plain_link(), settings=LinkSettings(connections=1)) as proxy, connect(proxy) as first:
        round_trips_s(first, 1)
        with pytest.raises(ConnectionError), connect(proxy) as second:
            second.recv(1)
        round_trips_s(first, 1)
        assert (proxy.summary().connections, proxy.summary().refused) == (1, 1)


@pytest.mark.parametrize(("half", "limits"), [(False, {"idle_s": 0.1}), (True, {"half_closed_s": 0.1})])
def test_idle_and_half_open_connections_time_out(monkeypatch: pytest.MonkeyPatch, half: bool, limits: dict[str, float]) -> None:
    monkeypatch.setattr(link_module, "_SWEEP_S", 0.05)
    forever = threading.Event()

    def answer(end: socket.socket) -> None:
        end.recv(1)
        forever.wait(5.0)

    with replayed(plain_link(), answer, LinkSettings(**limits)) as proxy:
        with connect(proxy) as end:
            end.sendall(b"x")
            if half:
                end.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionResetError):
                end.recv(1)
        assert proxy.summary().timed_out == 1
        forever.set()


def test_closing_resets_open_connections_and_frees_the_port() -> None:
    with server() as address:
        proxy = LinkProxy(plain_link(), address)
        with proxy, connect(proxy) as end, connect(proxy) as opening:
            round_trips_s(end, 1)
            proxy.close()
            for left in (end, opening):
                with pytest.raises(ConnectionResetError):
                    left.recv(1)
        proxy.close()
        with LinkProxy(plain_link(), address, proxy.address):
            pass


def test_addresses_and_settings_that_cannot_be_used_are_refused() -> None:
    with LinkProxy(plain_link(), Address(port=9)) as proxy:
        with pytest.raises(AddressError, match=r"cannot listen there: Address already in use \(choose another port"):
            LinkProxy(plain_link(), Address(port=9), proxy.address)
        free = proxy.address
    with pytest.raises(AddressError, match="is where the link itself listens"):
        LinkProxy(plain_link(), free, free)
    with pytest.raises(AddressError, match=r"cannot be resolved: .*\(check the name"):
        LinkProxy(plain_link(), Address("no such name", 1))
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: LinkSettings(outages=[Outage(1.0, 2.0), Outage(2.0, 1.0)]), "at 2 s begins before"),
        (lambda: LinkSettings(outages=[Outage(1.0, 0.0)]), "an outage of 0 s"),
    ]
    for build, message in refusals:
        with pytest.raises(LinkError, match=message):
            build()
