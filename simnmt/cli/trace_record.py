"""`simnmt trace record` and `simnmt trace respond`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from simnmt.network.recording.recorder import Progress, Recorder
    from simnmt.network.recording.samples import Samples


class MethodName(str, Enum):
    """How round trips are measured."""

    tcp = "tcp"
    icmp = "icmp"


def respond(
    bind: Annotated[
        str, typer.Option("--bind", metavar="ADDRESS", help="Where to listen; beyond this machine anyone who gets there can.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="P", help="0 for any that is free.")] = 0,
    once: Annotated[bool, typer.Option("--once", help="End with the first recording, or 15 min after it fell silent.")] = False,
) -> None:
    """Answer `trace record` from elsewhere, until Ctrl-C."""
    from simnmt.network.recording.responder import Responder

    responder = Responder(bind, port)
    try:
        print("listening on {} port {}".format(*responder.address), flush=True)
        responder.serve(once=once)
    finally:
        responder.close()


def record(
    host: Annotated[str, typer.Option("--host", metavar="H", help="The other end.")],
    duration: Annotated[str, typer.Option("--duration", metavar="TIME", help="How long: 600s, 10m, 2h.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="CSV file to write; bandwidths go to FILE-bandwidth.csv.")],
    port: Annotated[int | None, typer.Option("--port", metavar="P", help="Where `trace respond` listens.")] = None,
    interval: Annotated[str, typer.Option("--interval", metavar="TIME", help="Between probes.")] = "1s",
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="Later echoes are lost.")] = "2s",
    bandwidth_every: Annotated[
        str, typer.Option("--bandwidth-every", metavar="TIME", help="Between transfers; 0 for none.")
    ] = "60s",
    transfer: Annotated[str, typer.Option("--transfer", metavar="SIZE", help="Of a transfer, one each way.")] = "256kB",
    method: Annotated[
        MethodName, typer.Option("--method", help="icmp needs the system's leave, and a responder for bandwidth alone.")
    ] = MethodName.tcp,
) -> None:
    """Record round-trip times and bandwidths to a responder, as series that a scenario reads."""
    from simnmt.network.recording.plan import Plan
    from simnmt.network.recording.quantities import seconds, size_bytes
    from simnmt.network.recording.recorder import Recorder

    plan = Plan(
        host=host,
        port=port,
        duration_s=seconds(duration, "--duration"),
        interval_s=seconds(interval, "--interval"),
        timeout_s=seconds(timeout, "--timeout"),
        bandwidth_every_s=seconds(bandwidth_every, "--bandwidth-every"),
        transfer_bytes=size_bytes(transfer, "--transfer"),
        method=method.value,
    )
    recorder = Recorder(plan, out)
    try:
        with _bar(plan.duration_s) as progress:
            recorder.run(progress)
    finally:
        _tell(recorder)


def _tell(recorder: Recorder) -> None:
    from simnmt.network.recording.words import bandwidths, rtts

    for path in recorder.written:
        found = bandwidths(recorder.samples) if path == recorder.targets[1] else rtts(recorder.samples)
        print(f"wrote {path}: {found}")
    if recorder.written:
        for what in recorder.oddities:
            print(f"  note: {what}")
    for path in recorder.left:
        print(f"what was recorded until then stands in {path}", file=sys.stderr)


@contextmanager
def _bar(duration_s: float) -> Iterator[Progress | None]:
    """On a terminal, how far it is and what was found so far."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    from simnmt.cli.progress import DescriptionColumn, live_progress
    from simnmt.network.recording.words import so_far

    with live_progress(TextColumn("recording"), BarColumn(), DescriptionColumn(), TimeRemainingColumn()) as shown:
        task = shown.add_task("", total=duration_s)

        def progress(passed_s: float, samples: Samples) -> None:
            shown.update(task, completed=min(passed_s, duration_s), description=so_far(samples))

        yield progress
