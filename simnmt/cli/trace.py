"""`simnmt trace import` and `simnmt trace inspect`, and the frame of the others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simnmt.cli import trace_fetch, trace_record, trace_synth
from simnmt.cli.trace_fetch import Reply, ReplyName
from simnmt.files import refuse_replacing

if TYPE_CHECKING:
    from simnmt.network.traces.readings import Trace

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
    from simnmt.network.traces.summary import summarised
    from simnmt.network.traces.words import facts, title
    from simnmt.network.traces.writing import of_kind, targets, write_traces

    traces = _read(file, reply, probe, measurement, column, idle_below_kbps, interval)
    if kind is not None:
        traces = of_kind(traces, kind)
    paths = targets(traces, out)
    for path in paths:
        refuse_replacing(path, file)
    replaced = [os.path.lexists(path) for path in paths]
    write_traces(traces, out)
    for trace, path, before in zip(traces, paths, replaced, strict=True):
        summary = summarised(trace)
        said = dict(facts(summary))
        print(f"{'replaced' if before else 'wrote'} {path}: {title(summary)}; {said['samples']}; lost: {said['lost']}")
        for note in trace.said:
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
    from simnmt import shipped
    from simnmt.network.traces.summary import summarised
    from simnmt.network.traces.words import facts, title

    path = shipped.find("traces/rtt", file) if file.startswith("@") else Path(file)
    refuse_replacing(plot, path)
    traces = _read(path, reply, probe, measurement, column, idle_below_kbps, interval)
    summaries = [summarised(trace) for trace in traces]
    if plot is not None:
        from simnmt.report.trace_page import write_trace_page

        write_trace_page(plot, file if file.startswith("@") else path.name, traces)
    if as_json:
        print(json.dumps({"file": file, "series": [summary.as_json() for summary in summaries]}, indent=1))
        return
    for summary in summaries:
        print(f"{file}: {title(summary)}; {summary.source}")
        width = max(len(name) for name, _ in facts(summary))
        for name, figure in facts(summary):
            print(f"  {name.ljust(width)}  {figure}")
        for note in summary.said:
            print(f"  note: {note}")
    if plot is not None:
        print(f"plots: {plot}")


app.command("synth")(trace_synth.synth)
app.command("fetch")(trace_fetch.fetch)
app.command("record")(trace_record.record)
app.command("respond")(trace_record.respond)


def _read(
    file: Path,
    reply: ReplyName,
    probe: int | None,
    measurement: int | None,
    column: list[str] | None,
    idle_below_kbps: float,
    interval_s: float,
) -> list[Trace]:
    from simnmt.network.traces.how_to_read import HowToRead, column_choices
    from simnmt.network.traces.trace_file import read_trace

    how = HowToRead(
        reply=reply.value,
        probe=probe,
        measurement=measurement,
        columns=column_choices(column or ()),
        idle_below_bps=idle_below_kbps * 1e3,
        interval_s=interval_s,
    )
    return read_trace(file, how)
