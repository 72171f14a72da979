"""`simnmt live watch`: what the log of a gateway shows."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from simnmt.cli.options import AsJson, Force, argument, check_output, flag, option, print_json, profile_path
from simnmt.cli.terminal import describe_output, note, say, warn


def watch(
    log: Annotated[Path, argument("LOG", "The gateway's log.")],
    profiles: Annotated[
        list[str] | None, option("DEVICE=FILE", "Profile, or @name, of a device in the log; repeatable.", "--profile")
    ] = None,
    follow: Annotated[bool, flag("--follow", "Read a growing log until Ctrl-C, and print alarms as they come.")] = False,
    out: Annotated[
        list[str] | None,
        option(
            "[DEVICE=]FILE",
            "Write a profile refitted to the requests since the last change; with DEVICE= also without drift; repeatable.",
        ),
    ] = None,
    fail_on_drift: Annotated[bool, flag("--fail-on-drift", "End with status 3 if there is drift.")] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Flag devices that became 10 % slower or faster than their profiles, and refit the profiles in service.

    Example: simnmt live watch gateway.jsonl --profile gateway=gateway.json --profile cloud=cloud.json
    """
    from simnmt.live.drift import DriftWatch
    from simnmt.live.drift_text import format_alarm, format_refit, format_report, report_document
    from simnmt.live.refit import Refit, refit
    from simnmt.profile.doubts import profile_doubts
    from simnmt.profile.profile_file import read_profile, write_profile
    from simnmt.results.live_log import LiveLogReader

    if not profiles:
        raise typer.BadParameter("give the profile of a device at least, such as gateway=gateway.json", param_hint="--profile")
    paths = {device: profile_path(path) for device, path in map(_named, profiles)}
    outputs = dict(_output(text, paths) for text in out or ())
    for path in outputs.values():
        check_output(path, force, log, *paths.values())
    watched = DriftWatch({device: read_profile(path) for device, path in paths.items()})
    reader = LiveLogReader(log)
    with _stop_requested(follow) as stop:
        while reader.has_more() or (follow and not stop.wait(POLL_S)):
            for alarm in watched.feed(reader.read()):
                if follow:
                    line = f"drift: {format_alarm(alarm)}"
                    note(line) if as_json else print(line, flush=True)
            if stop.is_set():
                break
    watched.feed(reader.finish())
    report = watched.report()
    last = {alarm.device: alarm for alarm in report.alarms if not alarm.batched}
    refits, of_whole_log = dict[str, Refit](), dict[str, bool]()
    for device, path in outputs.items():
        devices = [device] if device else sorted(last)
        if len(devices) > 1:
            raise typer.BadParameter(f"several devices drifted: name one, such as {devices[0]}={path}", param_hint="--out")
        for name in devices:
            since = last[name].since_line if name in last else 1
            result = refit(watched.profiles[name], watched.executions(name, since_line=since), log=log.name)
            done = describe_output(path)
            write_profile(path, result.profile)
            refits[str(path)], of_whole_log[str(path)] = result, name not in last or last[name].since_begin
            say(done)
        if not devices:
            note(f"no drift: {path} is not written (give DEVICE={path} to refit in any case)")
    for device in sorted(last):
        for doubt in profile_doubts(watched.profiles[device], ["execution"]):
            warn(f"the drift of {device} is judged by a doubtful profile; {doubt.message}")
    if as_json:
        print_json(report_document(report, refits))
    else:
        print(format_report(report))
        for name, result in refits.items():
            print(format_refit(name, result, of_whole_log=of_whole_log[name]))
    if fail_on_drift and report.alarms:
        raise typer.Exit(3)


POLL_S = 0.5
"""Seconds between two looks at a growing log."""


def _named(text: str) -> tuple[str, str]:
    device, equals, path = text.partition("=")
    if not (device and equals and path):
        raise typer.BadParameter(f"{text} names no device; write it as gateway=gateway.json", param_hint="--profile")
    return device, path


def _output(text: str, profiles: dict[str, Path]) -> tuple[str, Path]:
    """Return (device, path) of an option `--out`; an empty device means the one that drifted."""
    device, equals, path = text.partition("=")
    if not equals:
        return "", Path(text)
    if device not in profiles:
        raise typer.BadParameter(f"{device} has no --profile (devices: {', '.join(profiles)})", param_hint="--out")
    return device, Path(path)


@contextmanager
def _stop_requested(follow: bool) -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set while a log is followed; otherwise they end the program as usual."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM) if follow else ()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
