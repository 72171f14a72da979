"""`simnmt live link`: the series of a link replayed on real connections."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from simnmt.base.errors import InputError, shorten
from simnmt.cli.options import (
    AsJson,
    Seed,
    flag,
    option,
    parse_bit_rate,
    parse_bytes,
    parse_duration,
    parse_seconds,
    parse_share,
    print_json,
)

_QUANTITY = re.compile(r"\s*\d+(\.\d+)?\s*[A-Za-z]*(/s)?\s*")


def _seconds_or_series(text: str) -> float | str:
    return parse_seconds(text) if _QUANTITY.fullmatch(text) else text


def _rate_or_series(text: str) -> float | str:
    return parse_bit_rate(text) if _QUANTITY.fullmatch(text) else text


def _outage_fields(text: str) -> tuple[float, float, bool]:
    """Return (begin, duration, whether it resets) of `30s:10s` or `30s:10s:reset`."""
    begin, _, rest = text.partition(":")
    duration, colon, mark = rest.partition(":")
    if not duration or (colon and mark != "reset"):  # the parsers refuse what is no time
        raise typer.BadParameter(f"{shorten(text)!r} is not an outage; write it as 30s:10s or 30s:10s:reset")
    return parse_seconds(begin), parse_duration(duration), bool(colon)


@contextmanager
def _ended_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGINT and SIGTERM, which are the usual end of a service, unless our parent wants them ignored."""
    numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]
    handlers = {number: signal.signal(number, lambda *_: stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def link(
    rtt: Annotated[str | None, option("TIME|FILE|@NAME", "Round-trip time: 50ms, or a series as in a scenario.")] = None,
    to: Annotated[str | None, option("HOST:PORT", "Where connections lead.")] = None,
    listen: Annotated[str, option("HOST:PORT", "Where connections are accepted; port 0: any.")] = "127.0.0.1:0",
    rtt_mean: Annotated[float | None, option("TIME", "Scale the series to this mean.", parser=parse_duration)] = None,
    bandwidth: Annotated[str, option("RATE|FILE", "Both directions: 20Mbit/s, or a series, FILE:COLUMN.")] = "100Mbit/s",
    uplink: Annotated[str | None, option("RATE|FILE", "Towards the server, instead of --bandwidth.")] = None,
    downlink: Annotated[str | None, option("RATE|FILE", "From the server, instead of --bandwidth.")] = None,
    begin: Annotated[
        float, option("TIME", "Moment of the series to start at. [default: 0s]", parser=parse_seconds, show_default=False)
    ] = 0.0,
    duration: Annotated[float | None, option("TIME", "End after this time. [default: never]", parser=parse_duration)] = None,
    outage: Annotated[
        list[str] | None,
        option("BEGIN:TIME[:reset]", "Carry nothing for a time; reset: break connections; repeatable.", group="Faults"),
    ] = None,
    loss: Annotated[
        float | None, option("P%", "Segments lost; shows as the delay of a retransmission.", parser=parse_share)
    ] = None,
    seed: Seed = 1,
    connections: Annotated[int, option("N", "Most open connections.", min=1, max=100_000, group="Limits")] = 256,
    window: Annotated[
        int,
        option(
            "SIZE", "Most bytes on their way per connection, each way. [default: 1MiB]", parser=parse_bytes, show_default=False
        ),
    ] = 1 << 20,
    idle: Annotated[
        float,
        option("TIME", "Reset connections idle for longer. [default: 600s]", parser=parse_seconds, show_default=False),
    ] = 600.0,
    allow_remote: Annotated[
        bool, flag("--allow-remote", "Listen beyond this machine: the link asks nobody for a password.")
    ] = False,
    measure: Annotated[bool, flag("--measure", "Only measure what the link itself adds.", group="Other")] = False,
    netem: Annotated[str | None, option("DEVICE", "Only print commands that do the same by the kernel's netem.")] = None,
    as_json: AsJson = False,
) -> None:
    """Replay the round-trip times and bandwidths of a series on real TCP connections, until Ctrl-C or SIGTERM.

    Example: simnmt live link --rtt @cp1 --bandwidth 20Mbit/s --listen 127.0.0.1:7001 --to 127.0.0.1:5000
    """
    from simnmt.service.addresses import AddressError, parse_address
    from simnmt.service.link import LinkProxy, LinkSettings, Outage
    from simnmt.service.link_setup import describe_link, measure_overhead, netem_commands, read_link

    if measure:
        overhead = measure_overhead(1000)
        print_json(overhead.as_json()) if as_json else print(overhead.format())
        return
    if rtt is None:
        raise InputError("--rtt is missing", remedy="give a time such as 50ms, a CSV file or @cp1")
    rates = [_rate_or_series(given or bandwidth) for given in (uplink, downlink)]
    replayed = read_link(_seconds_or_series(rtt), *rates, rtt_mean_s=rtt_mean)
    if netem is not None:
        for line in netem_commands(replayed, netem, loss or 0.0):
            print(line)
        return
    if to is None:
        raise InputError("--to is missing", remedy="give the address of the server, such as 127.0.0.1:5000")
    here = parse_address(listen, "--listen")
    if not here.is_loopback and not allow_remote:
        what = f"--listen {here} is open to others, and the link asks for no password"
        raise AddressError(what, remedy="add --allow-remote if that is meant")
    settings = LinkSettings(
        begin_s=begin,
        loss=loss or 0.0,
        seed=seed,
        outages=tuple(Outage(*_outage_fields(text)) for text in outage or ()),
        connections=connections,
        window_bytes=window,
        idle_s=idle,
    )
    proxy = LinkProxy(replayed, parse_address(to, "--to"), here, settings)
    text = sys.stderr if as_json else sys.stdout
    overhead = measure_overhead()
    with proxy, _ended_by_signals(proxy.stop):
        print(f"own overhead: {overhead.format()}", file=text)
        print(f"link: {describe_link(replayed)}", file=text)
        print(f"listening on {proxy.address}, to {to}", file=text, flush=True)
        proxy.wait(duration)
    summary = proxy.summary()
    if as_json:
        print_json({"overhead": overhead.as_json(), "summary": summary.as_json()})
    else:
        print(summary.format())
