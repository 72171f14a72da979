"""The responder does what it is there for, and nothing that a stranger could make use of."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

from simnmt.network.errors import TraceError
from simnmt.network.recording.protocol import (
    ANSWER,
    ASK,
    DATA,
    DONE,
    DOWN,
    ECHO,
    HEAD,
    MOST,
    RATE,
    UPLOAD,
    PeerError,
    connect,
    receive,
    resolve_host,
    send_bye,
)
from simnmt.network.recording.responder import Limits, Responder, _counted_address, _HourBudget

Serve = Callable[..., Responder]


def greeted(responder: Responder) -> socket.socket:
    return connect(resolve_host(*responder.address)[0], 2.0)[0]


def rest(connection: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    connection.settimeout(2.0)
    received = b""
    try:
        while chunk := connection.recv(1 << 16):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def test_an_echo_comes_back_as_it_went(serve: Serve) -> None:
    with greeted(serve()) as connection:
        for sequence, filling in ((0, b""), (7, b"seven"), (2**32 - 1, bytes(1024))):
            frame = HEAD.pack(ECHO, sequence, len(filling)) + filling
            connection.sendall(frame)
            assert receive(connection, len(frame), time.monotonic() + 2.0) == frame


def test_transfers_in_both_directions(serve: Serve) -> None:
    with greeted(serve()) as connection:
        deadline_s = time.monotonic() + 2.0
        connection.sendall(HEAD.pack(DOWN, 100_000, 0))
        assert HEAD.unpack(receive(connection, HEAD.size, deadline_s)) == (DATA, 0, 100_000)
        assert len(set(receive(connection, 100_000, deadline_s)[:1000])) > 100  # what a link cannot compress
        connection.sendall(HEAD.pack(UPLOAD, 0, 50_000) + bytes(50_000))
        assert HEAD.unpack(receive(connection, HEAD.size, deadline_s)) == (DONE, 0, RATE.size)
        counted, spent_ns = RATE.unpack(receive(connection, RATE.size, deadline_s))
        assert counted <= 25_000
        assert spent_ns < 2e9


@pytest.mark.parametrize(
    "frame",
    [
        HEAD.pack(ECHO, 0, 1025),
        HEAD.pack(DOWN, 1001, 0),
        HEAD.pack(DOWN, 0, 0),
        HEAD.pack(UPLOAD, 0, 1001),
        HEAD.pack(UPLOAD, 0, 2**32 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["long echo", "long way down", "nothing", "long way up", "all the memory", "another protocol"],
)
def test_what_is_beyond_the_bounds_ends_the_connection(serve: Serve, frame: bytes) -> None:
    with greeted(serve(Limits(transfer_bytes=1000))) as connection:
        connection.sendall(frame)
        assert rest(connection) == b""


def test_a_connection_is_granted_so_many_bytes(serve: Serve) -> None:
    with greeted(serve(Limits(transfer_bytes=1000, connection_bytes=2500))) as connection:
        connection.sendall(HEAD.pack(DOWN, 1000, 0) * 5)
        assert len(rest(connection)) == 2 * (HEAD.size + 1000)


def test_a_flood_of_echoes_ends_the_connection(serve: Serve) -> None:
    with greeted(serve(Limits(echoes_per_s=5))) as connection:
        connection.sendall(HEAD.pack(ECHO, 0, 0) * 40)
        assert len(rest(connection)) < 15 * HEAD.size


@pytest.mark.parametrize("opening", [b"GET / HTTP/1.1\r\n", b"simnmt record 2\n", b""])
def test_a_stranger_hears_nothing(serve: Serve, opening: bytes) -> None:
    responder = serve(Limits(greeting_s=0.2))
    with socket.create_connection(responder.address) as connection:
        connection.sendall(opening)
        assert rest(connection) == b""


def test_an_unread_transfer_is_given_up(serve: Serve) -> None:
    """Lest a few such hold the only place for transfers."""
    responder = serve(Limits(transfer_s=0.2))
    with greeted(responder) as idle, greeted(responder) as other:
        idle.sendall(HEAD.pack(DOWN, 16_000_000, 0))
        time.sleep(0.05)
        other.sendall(HEAD.pack(DOWN, 10, 0))
        assert len(receive(other, HEAD.size + 10, time.monotonic() + 2.0)) == HEAD.size + 10


def test_one_connection_too_many_is_refused_with_the_reason(serve: Serve) -> None:
    responder = serve(Limits(connections=2))
    full = pytest.raises(TraceError, match="already serves as many connections as it may")
    with greeted(responder), greeted(responder), full:
        greeted(responder)


def test_a_place_is_free_again_once_a_connection_has_gone(serve: Serve) -> None:
    responder = serve(Limits(connections=1))
    for _ in range(3):
        soon(lambda: greeted(responder).close())


def test_one_address_gets_a_part_of_the_places(serve: Serve) -> None:
    """Lest a single stranger shut everyone out."""
    responder = serve(Limits(connections=4, connections_per_address=2))
    full = pytest.raises(TraceError, match="already serves as many connections as it may")
    with greeted(responder), greeted(responder):
        with full:
            greeted(responder)
        from_elsewhere = socket.create_connection(responder.address, 2.0, source_address=("127.0.0.2", 0))
        with from_elsewhere:
            from_elsewhere.sendall(ASK)
            assert receive(from_elsewhere, len(ANSWER), time.monotonic() + 2.0) == ANSWER


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
    ],
)
def test_counted_addressever_has_a_network_of_ipv6_addresses_is_one(one: str, other: str, alike: bool) -> None:
    assert (_counted_address(one) == _counted_address(other)) is alike


def test_reconnecting_draws_no_more_than_is_granted_in_an_hour(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    responder = serve(Limits(transfer_bytes=1000, hour_bytes=2500))
    drawn = []
    for _ in range(4):
        with greeted(responder) as connection:
            connection.sendall(HEAD.pack(DOWN, 1000, 0))
            connection.shutdown(socket.SHUT_WR)
            drawn.append(len(rest(connection)))
    assert drawn == [HEAD.size + 1000] * 2 + [0, 0]
    with greeted(responder) as connection:
        frame = HEAD.pack(ECHO, 0, 100) + bytes(100)
        for _ in range(4):  # echoes count, too: so many fit into the 500 bytes that are left
            connection.sendall(frame)
            assert receive(connection, len(frame), time.monotonic() + 2.0) == frame
        connection.sendall(frame)
        assert rest(connection) == b""
    monkeypatch.setattr("simnmt.network.recording.responder._HOUR_S", 0.0)
    with greeted(responder) as connection:
        connection.sendall(HEAD.pack(DOWN, 1000, 0))
        assert len(receive(connection, HEAD.size + 1000, time.monotonic() + 2.0)) == HEAD.size + 1000


def test_a_transfer_that_is_broken_off_costs_what_it_moved(serve: Serve) -> None:
    """A few kilobytes of requests that are aborted at once must not use up the hour of everybody."""
    responder = serve(Limits(hour_bytes=3_000_000, address_hour_bytes=3_000_000))
    for _ in range(20):
        with greeted(responder) as connection:
            connection.sendall(HEAD.pack(UPLOAD, 0, 1_000_000) + bytes(4_700))
            connection.shutdown(socket.SHUT_WR)
            assert rest(connection) == b""
    with greeted(responder) as connection:
        connection.sendall(HEAD.pack(DOWN, 1_000_000, 0))
        assert len(receive(connection, HEAD.size + 1_000_000, time.monotonic() + 5.0)) == HEAD.size + 1_000_000


def test_an_address_has_a_share_of_the_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = _HourBudget(2_500, 1_000)
    budget.charge("a", 900)
    assert [budget.has("a", size) for size in (100, 101)] == [True, False]
    assert budget.has("b", 1_000)
    budget.charge("b", 1_000)
    assert [budget.has("c", size) for size in (600, 601)] == [True, False]  # what is left for all
    monkeypatch.setattr("simnmt.network.recording.responder._MOST_ADDRESSES", 2)
    budget.charge("c", 500)
    assert [budget.has("d", size) for size in (100, 101)] == [True, False]
    monkeypatch.setattr("simnmt.network.recording.responder._HOUR_S", 0.0)
    assert budget.has("a", 1_000)


def test_one_stalled_upload_does_not_keep_others_waiting(serve: Serve) -> None:
    responder = serve()
    with greeted(responder) as stalled, greeted(responder) as other:
        stalled.sendall(HEAD.pack(UPLOAD, 0, 1_000_000))
        time.sleep(0.1)
        other.sendall(HEAD.pack(DOWN, 10, 0))
        began_s = time.monotonic()
        assert len(receive(other, HEAD.size + 10, time.monotonic() + 10.0)) == HEAD.size + 10
        assert time.monotonic() - began_s < 5.0  # about 1.2 on an idle machine; it was 30


def test_threads_of_short_connections_are_not_kept(serve: Serve) -> None:
    responder = serve()
    for _ in range(40):
        with socket.create_connection(responder.address) as connection:
            connection.sendall(b"another protocol")
            rest(connection)
    assert len(responder._threads) < 10


def test_once_ends_when_the_recorder_reports_its_end_and_not_with_a_stranger(serve: Serve) -> None:
    responder = serve(once=True)
    with socket.create_connection(responder.address) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n")
        rest(stranger)
    with greeted(responder):
        pass
    time.sleep(0.1)
    assert serving(responder), "a connection may break, and the recording goes on"
    with greeted(responder) as connection:
        send_bye(connection)
    soon(lambda: None if not serving(responder) else pytest.fail("still there"))


def test_once_it_ends_when_nothing_has_been_heard_for_long(serve: Serve) -> None:
    responder = serve(Limits(once_grace_s=0.05), once=True)
    with greeted(responder):
        time.sleep(0.15)
        assert serving(responder)
    soon(lambda: None if not serving(responder) else pytest.fail("still there"))


def serving(responder: Responder) -> bool:
    return any(thread.name == str(responder.address) for thread in threading.enumerate())


def soon(attempt: Callable[[], None]) -> None:
    """Try until it goes well, at most two seconds."""
    end_s = time.monotonic() + 2.0
    while True:
        try:
            return attempt()
        except (TraceError, pytest.fail.Exception):  # noqa: PERF203
            if time.monotonic() > end_s:
                raise
            time.sleep(0.01)


def test_an_address_that_cannot_be_had_is_one_line(serve: Serve) -> None:
    host, port = serve().address
    with pytest.raises(TraceError, match=rf"cannot listen at {host} port {port}: Address already in use \(choose another"):
        Responder(host, port)
    with pytest.raises(TraceError, match=r"--bind a{79}…: is no address of this machine"):
        Responder("a" * 300)
    with pytest.raises(TraceError, match=r"--port 70000 is not a valid port \(1-65535\)"):
        Responder(port=70_000)


def test_a_stranger_is_distinguished_from_a_responder(serve: Serve) -> None:
    """Also a server that repeats all it hears, as the echo service of old does."""

    def answers(connection: socket.socket, text: bytes | None) -> None:
        with connection:
            heard = connection.recv(len(ASK))
            connection.sendall(heard + b"." if text is None else text)

    for text, message in (
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no simnmt responder"),
        (None, "no simnmt responder"),
        (b"", "no simnmt responder"),
        (ANSWER.replace(b"1", b"9") + MOST.pack(5), "a responder of another version"),
    ):
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=lambda text=text: answers(server.accept()[0], text), daemon=True)
            thread.start()
            with pytest.raises(TraceError, match=message):
                connect(resolve_host("127.0.0.1", server.getsockname()[1])[0], 2.0)
            thread.join(2.0)


def test_silence_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        began_s = time.monotonic()
        with pytest.raises(TraceError, match="no simnmt responder"):
            connect(resolve_host("127.0.0.1", server.getsockname()[1])[0], 0.2)
        assert time.monotonic() - began_s < 1.5


def test_what_is_half_sent_is_not_waited_for() -> None:
    one, other = socket.socketpair()
    with one, other:
        other.send(b"half")
        with pytest.raises(PeerError, match="took too long"):
            receive(one, 8, time.monotonic() + 0.05)
