"""`simnmt trace`: import, inspect, synthesise, fetch and record series of RTT and bandwidth."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simnmt.base.errors import InputError
from simnmt.base.files import refuse_replacing
from simnmt.base.text_tables import format_pairs, format_table

if TYPE_CHECKING:
    from simnmt.network.recording.recorder import Progress, Recorder
    from simnmt.network.recording.samples import RecordingSamples
    from simnmt.network.rtt_comparison import Judgement
    from simnmt.network.traces.readings import Trace


class ReplyName(str, Enum):
    """What a round of replies may be worth."""

    min = "min"
    mean = "mean"
    first = "first"


Reply = Annotated[ReplyName, typer.Option("--reply", help="What a round of replies is worth.")]


def fetch(
    measurement: Annotated[int, typer.Option("--measurement", metavar="ID", help="Of RIPE Atlas, a ping or a traceroute.")],
    probe: Annotated[int, typer.Option("--probe", metavar="ID", help="Whose results.")],
    start: Annotated[str, typer.Option("--start", metavar="DATE", help="2026-01-01, 2026-01-01T12:30 (UTC), or Unix seconds.")],
    stop: Annotated[str, typer.Option("--stop", metavar="DATE", help="Likewise.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="CSV file to write.")],
    cache: Annotated[
        Path | None, typer.Option("--cache", metavar="DIR", help="Keep the answer here; default: the user's folder for caches.")
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option("--api-key-file", metavar="FILE", help="For a measurement that is not public.")
    ] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", metavar="URL", help="Of another site with this API.")] = None,
    reply: Reply = ReplyName.min,
) -> None:
    """Fetch round-trip times from RIPE Atlas, as a series that a scenario reads."""
    from simnmt.network.ripe_atlas_api import BASE_URL, Cache, Query, default_folder, read_key
    from simnmt.network.ripe_atlas_api import fetch as fetch_results
    from simnmt.network.trace_options import ReadOptions, parse_moment_s
    from simnmt.network.traces.summary import format_facts, format_title, summarise
    from simnmt.network.traces.trace_file import write_traces

    query = Query(measurement, probe, parse_moment_s(start, "--start"), parse_moment_s(stop, "--stop"), base_url or BASE_URL)
    refuse_replacing(out, api_key_file)
    key = None if api_key_file is None else read_key(api_key_file)
    kept_in = Cache(cache or default_folder())
    fetched = fetch_results(query, kept_in, key=key, how=ReadOptions(reply=reply.value))
    replaced = os.path.lexists(out)
    write_traces([fetched.trace], out, made="simnmt trace fetch", notes=fetched.notes)
    summary = summarise(fetched.trace)
    facts = dict(format_facts(summary))
    print(f"{'replaced' if replaced else 'wrote'} {out}: {format_title(summary)}; {facts['samples']}; lost: {facts['lost']}")
    place = kept_in.files(query.url)[0]
    print(f"  {'from' if fetched.from_cache else 'kept in'} {place}, sha256 {fetched.kept.sha256[:16]}...")
    for note in (*fetched.remarks, *fetched.trace.remarks):
        print(f"  note: {note}")


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
    from simnmt.network.recording.recorder import Recorder, RecordingPlan
    from simnmt.network.trace_options import parse_bytes, parse_seconds

    plan = RecordingPlan(
        host=host,
        port=port,
        duration_s=parse_seconds(duration, "--duration"),
        interval_s=parse_seconds(interval, "--interval"),
        timeout_s=parse_seconds(timeout, "--timeout"),
        bandwidth_every_s=parse_seconds(bandwidth_every, "--bandwidth-every"),
        transfer_bytes=parse_bytes(transfer, "--transfer"),
        method=method.value,
    )
    recorder = Recorder(plan, out)
    try:
        with _recording_bar(plan.duration_s) as progress:
            recorder.run(progress)
    finally:
        _print_recording(recorder)


def _print_recording(recorder: Recorder) -> None:
    from simnmt.network.recording.samples import describe_bandwidths, describe_rtts

    for path in recorder.written:
        description = describe_bandwidths(recorder.samples) if path == recorder.targets[1] else describe_rtts(recorder.samples)
        print(f"wrote {path}: {description}")
    if recorder.written:
        for what in recorder.oddities:
            print(f"  note: {what}")
    for path in recorder.left:
        print(f"what was recorded until then stands in {path}", file=sys.stderr)


@contextmanager
def _recording_bar(duration_s: float) -> Iterator[Progress | None]:
    """On a terminal, how far it is and what was found so far."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    from simnmt.cli.progress import DescriptionColumn, live_progress
    from simnmt.network.recording.samples import describe_progress

    with live_progress(TextColumn("recording"), BarColumn(), DescriptionColumn(), TimeRemainingColumn()) as shown:
        task = shown.add_task("", total=duration_s)

        def progress(passed_s: float, samples: RecordingSamples) -> None:
            shown.update(task, completed=min(passed_s, duration_s), description=describe_progress(samples))

        yield progress


_JUDGED_SEEDS = range(1, 21)
_DECIMALS_MS = 6


def synth(
    like: Annotated[
        Path | None,
        typer.Option("--like", metavar="FILE", help="Fit a process to this measured RTT, in any form that import reads."),
    ] = None,
    params: Annotated[
        Path | None, typer.Option("--params", metavar="FILE", help="Take a process that was fitted before.")
    ] = None,
    hours: Annotated[
        float | None, typer.Option("--hours", metavar="H", help="Length to draw; default: that of the fit.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="CSV file to write what was drawn.")] = None,
    params_out: Annotated[
        Path | None, typer.Option("--params-out", metavar="FILE", help="JSON file to keep the process.")
    ] = None,
    unseen: Annotated[
        Path | None, typer.Option("--judge", metavar="FILE", help="Judge it by this series, not by halves.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", min=0, help="Same seed, same bytes.")] = 1,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="ROLE=NAME[:UNIT]", help="As for import, of the files read. May be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the judgement as JSON and nothing else.")] = False,
) -> None:
    """Draw a synthetic RTT series like a measured one, and say how like it is."""
    from simnmt.network.rtt_comparison import judge
    from simnmt.network.rtt_process import (
        check_duration,
        describe_process,
        draw_series,
        fit_process,
        process_text,
        read_process,
    )
    from simnmt.network.series_csv import series_text
    from simnmt.network.text_files import write_texts
    from simnmt.network.trace_options import ReadOptions, parse_columns
    from simnmt.network.traces.trace_file import read_rtt

    if (like is None) == (params is None):
        raise InputError("give either a series with --like or a process with --params")
    for written in (out, params_out):
        refuse_replacing(written, like, params, unseen)
    if out and params_out and os.path.realpath(out) == os.path.realpath(params_out):
        raise InputError("--out and --params-out name the same file", remedy="write to two")
    how = ReadOptions(columns=parse_columns(column or ()))
    seen = read_rtt(like, how) if like else None
    process = fit_process(seen) if seen else read_process(params or "")
    duration_s = process.lap_s if hours is None else hours * 3600
    check_duration(process, duration_s)
    judgement = judge(process, _JUDGED_SEEDS, seen, read_rtt(unseen, how) if unseen else None)
    messages, texts = [], {}
    if params_out:
        messages.append(f"{_verb(params_out)} {params_out}: the parameters of the process")
        texts[params_out] = process_text(process)
    if out:
        series = draw_series(process, duration_s, seed, out.stem)
        messages.append(
            f"{_verb(out)} {out}: {len(series.rtt_s):,} samples, {series.duration_s / 3600:g} h, seed {seed}, none lost"
        )
        texts[out] = series_text(series, decimals=_DECIMALS_MS)
    write_texts(texts)
    if as_json:
        document = {"process": process.model_dump(exclude_none=True), "judgement": [verdict.as_json() for verdict in judgement]}
        print(json.dumps(document, indent=1))
        return
    print("\n".join([describe_process(process), *messages]))
    if judgement:
        print(_format_judgement(judgement))


def _verb(path: Path) -> str:
    return "replaced" if os.path.lexists(path) else "wrote"


def _format_judgement(judgement: list[Judgement]) -> str:
    from simnmt.network.rtt_comparison import LAG_1_TOLERANCE, QUANTILE_TOLERANCE

    rows = [
        [
            verdict.label,
            *(f"{1e3 * value:.2f}" for value in verdict.figures.quantiles_s),
            f"{verdict.figures.lag_1:.3f}",
            f"{verdict.held} of {verdict.draws}" if verdict.draws else "",
        ]
        for verdict in judgement
    ]
    within = f"quantiles within {QUANTILE_TOLERANCE:.0%} and lag-1 autocorrelation within {LAG_1_TOLERANCE:g}"
    meaning = f"alike: {within}, all at once, lost samples held at the value before"
    return f"\n{format_table(['', 'p50 ms', 'p95 ms', 'p99 ms', 'lag-1', 'alike'], rows, 1)}\n{meaning}; of draws the medians"


app = typer.Typer(help="Series of round-trip times and bandwidths.", no_args_is_help=True)


Probe = Annotated[int | None, typer.Option("--probe", metavar="ID", help="The one RIPE Atlas probe that is meant.")]
Measurement = Annotated[
    int | None, typer.Option("--measurement", metavar="ID", help="The one RIPE Atlas measurement that is meant.")
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="ROLE=NAME[:UNIT]",
        help="A column of a CSV file whose name does not tell: time, rtt, downlink, uplink. May be repeated.",
    ),
]
IdleBelow = Annotated[
    float, typer.Option("--idle-below-kbps", metavar="RATE", help="Count lower throughputs as pauses of the traffic: lost.")
]
Interval = Annotated[
    float, typer.Option("--interval", metavar="SECONDS", help="Between the requests of a ping that printed no times.")
]


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="RIPE Atlas results, what ping printed, or a CSV log.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="CSV file to write; of several series each gets a word before .csv.")
    ],
    reply: Reply = ReplyName.min,
    probe: Probe = None,
    measurement: Measurement = None,
    column: Columns = None,
    idle_below_kbps: IdleBelow = 0.0,
    interval: Interval = 1.0,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Where a CSV log does not say it: measured, synthetic.")
    ] = None,
) -> None:
    """Turn measurements into series that a scenario reads, mended, each loss and oddity counted."""
    from simnmt.network.traces.summary import format_facts, format_title, summarise
    from simnmt.network.traces.trace_file import output_paths, with_kind, write_traces

    traces = _read_traces(file, reply, probe, measurement, column, idle_below_kbps, interval)
    if kind is not None:
        traces = with_kind(traces, kind)
    paths = output_paths(traces, out)
    for path in paths:
        refuse_replacing(path, file)
    replaced = [os.path.lexists(path) for path in paths]
    write_traces(traces, out)
    for trace, path, before in zip(traces, paths, replaced, strict=True):
        summary = summarise(trace)
        facts = dict(format_facts(summary))
        print(f"{'replaced' if before else 'wrote'} {path}: {format_title(summary)}; {facts['samples']}; lost: {facts['lost']}")
        for note in trace.remarks:
            print(f"  note: {note}")


@app.command()
def inspect(
    file: Annotated[str, typer.Argument(metavar="FILE", help="As for import, or the @name of a shipped RTT series.")],
    reply: Reply = ReplyName.min,
    probe: Probe = None,
    measurement: Measurement = None,
    column: Columns = None,
    idle_below_kbps: IdleBelow = 0.0,
    interval: Interval = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in SI units and nothing else.")] = False,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Write an HTML page with plots.")] = None,
) -> None:
    """Say what a trace is like: clock, losses, quantiles, autocorrelation."""
    from simnmt.base import shipped_files
    from simnmt.network.traces.summary import format_facts, format_title, summarise

    path = shipped_files.find("traces/rtt", file) if file.startswith("@") else Path(file)
    refuse_replacing(plot, path)
    traces = _read_traces(path, reply, probe, measurement, column, idle_below_kbps, interval)
    summaries = [summarise(trace) for trace in traces]
    if plot is not None:
        from simnmt.report.trace_page import write_trace_page

        write_trace_page(plot, file if file.startswith("@") else path.name, traces)
    if as_json:
        print(json.dumps({"file": file, "series": [summary.as_json() for summary in summaries]}, indent=1))
        return
    for summary in summaries:
        print(f"{file}: {format_title(summary)}; {summary.source}")
        print(format_pairs(format_facts(summary), "  "))
        for note in summary.remarks:
            print(f"  note: {note}")
    if plot is not None:
        print(f"plots: {plot}")


app.command("synth")(synth)
app.command("fetch")(fetch)
app.command("record")(record)
app.command("respond")(respond)


def _read_traces(
    file: Path,
    reply: ReplyName,
    probe: int | None,
    measurement: int | None,
    column: list[str] | None,
    idle_below_kbps: float,
    interval_s: float,
) -> list[Trace]:
    from simnmt.network.trace_options import ReadOptions, parse_columns
    from simnmt.network.traces.trace_file import read_trace

    how = ReadOptions(
        reply=reply.value,
        probe=probe,
        measurement=measurement,
        columns=parse_columns(column or ()),
        idle_below_bps=idle_below_kbps * 1e3,
        interval_s=interval_s,
    )
    return read_trace(file, how)
