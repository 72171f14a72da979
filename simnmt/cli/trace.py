"""`simnmt trace`: list, import, inspect and resample series of RTT and bandwidth."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simnmt.base.files import is_standard
from simnmt.base.text_tables import format_pairs, format_table, shorten_on_terminal
from simnmt.cli.options import (
    AsJson,
    Force,
    Page,
    Seed,
    argument,
    check_output,
    chosen,
    option,
    outlines,
    parse_bit_rate,
    parse_duration,
    parse_seconds,
    print_json,
)
from simnmt.cli.terminal import describe_output, note

if TYPE_CHECKING:
    from simnmt.network.traces.readings import Trace
    from simnmt.network.traces.summary import TraceSummary

app = typer.Typer(help="Series of round-trip times and bandwidths.", no_args_is_help=True)


ReplyName = Enum("ReplyName", {"min": "min", "mean": "mean", "first": "first"}, type=str)
"""The value of a round of several replies."""

Reply = Annotated[ReplyName, option(None, "Value of a round of several replies.", "--reply")]
Probe = Annotated[int | None, option("ID", "Read this RIPE Atlas probe alone.", "--probe")]
Measurement = Annotated[int | None, option("ID", "Read this RIPE Atlas measurement alone.", "--measurement")]
Columns = Annotated[
    list[str] | None,
    option("ROLE=NAME[:UNIT]", "Column of a CSV file that holds time, rtt, downlink or uplink; repeatable.", "--column"),
]
IdleBelow = Annotated[
    float,
    option(
        "RATE",
        "Count throughputs below this rate, such as 500kbit/s, as lost pauses. [default: 0bit/s]",
        "--idle-below",
        parser=parse_bit_rate,
        show_default=False,
    ),
]
PingInterval = Annotated[
    float,
    option(
        "TIME",
        "Time between the requests of a ping that printed no times. [default: 1s]",
        "--interval",
        parser=parse_seconds,
        show_default=False,
    ),
]

_MOST_OF_SOURCE = 48
"""Characters of a trace's source that a list shows."""


def _read_traces(context: typer.Context, file: Path) -> list[Trace]:
    """Read a file by the options that `import` and `inspect` share."""
    from simnmt.network.trace_options import ReadOptions, parse_columns
    from simnmt.network.traces.trace_file import read_trace

    given = context.params
    how = chosen(
        context,
        ReadOptions,
        reply=given["reply"].value,
        columns=parse_columns(given["column"] or ()),
        idle_below_bps=given["idle_below"],
        interval_s=given["interval"],
    )
    return read_trace(file, how)


def _print_written(output: str, summary: TraceSummary) -> None:
    from simnmt.network.traces.summary import format_facts, format_title

    facts = dict(format_facts(summary))
    print(f"{output}: {format_title(summary)}; {facts['samples']}; lost: {facts['lost']}")


def _print_notes(notes: tuple[str, ...] | list[str]) -> None:
    for remark in notes:
        print(f"  note: {remark}")


@app.command("list")
def list_(
    folder: Annotated[Path | None, argument("[DIR]", "Folder with traces of yours. [default: traces/]")] = None,
    as_json: AsJson = False,
) -> None:
    """List series of RTT and bandwidth, shipped ones and yours.

    Example: simnmt trace list
    """
    from simnmt.network.traces.readings import NOUN
    from simnmt.network.traces.summary import format_duration, format_value, outline
    from simnmt.network.traces.trace_file import read_trace

    traces, left_out = outlines(["traces/rtt", "traces/bandwidth"], folder, lambda path: [*map(outline, read_trace(path))])
    if as_json:
        print_json({"traces": traces, "left_out": left_out})
        return
    rows = [
        [
            trace["name"],
            NOUN[trace["quantity"]],
            trace["kind"],
            shorten_on_terminal(trace["source"], _MOST_OF_SOURCE),
            f"{trace['points']:,}",
            format_duration(trace["duration_s"]),
            format_value(trace["quantity"], trace["mean"]),
        ]
        for trace in traces
    ]
    print(format_table(["trace", "quantity", "kind", "source", "points", "span", "mean"], rows, 4))
    for fault in left_out:
        note(f"left out {fault}")


@app.command("import")
def import_(
    context: typer.Context,
    file: Annotated[Path, argument("FILE", "RIPE Atlas results, output of ping, JSON of iperf3 or irtt, or a CSV log.")],
    out: Annotated[Path, option("FILE", "CSV file to write; of several series each gets a word before .csv.")],
    reply: Reply = ReplyName.min,
    probe: Probe = None,
    measurement: Measurement = None,
    column: Columns = None,
    idle_below: IdleBelow = 0.0,
    interval: PingInterval = 1.0,
    kind: Annotated[str | None, option("KIND", "Where a CSV log does not name its kind: measured, synthetic.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Turn measurements into series that a scenario reads, mended, each loss and oddity counted.

    Example: simnmt trace import ping.txt --out office.csv
    """
    from simnmt.network.traces.summary import describe_use_of_losses, summarise
    from simnmt.network.traces.trace_file import output_paths, with_kind, write_traces

    traces = _read_traces(context, file)
    if kind is not None:
        traces = with_kind(traces, kind)
    paths = output_paths(traces, out)
    for path in paths:
        check_output(path, force, file)
    outputs = [describe_output(path) for path in paths]
    write_traces(traces, out)
    summaries = [summarise(trace) for trace in traces]
    if as_json:
        series = [{"file": str(path)} | summary.as_json() for path, summary in zip(paths, summaries, strict=True)]
        print_json({"series": series})
        return
    for output, summary in zip(outputs, summaries, strict=True):
        _print_written(output, summary)
        _print_notes([*summary.remarks, *describe_use_of_losses(summary)])


@app.command()
def inspect(
    context: typer.Context,
    file: Annotated[str, argument("FILE|@NAME", "As for import, or a shipped RTT series.")],
    reply: Reply = ReplyName.min,
    probe: Probe = None,
    measurement: Measurement = None,
    column: Columns = None,
    idle_below: IdleBelow = 0.0,
    interval: PingInterval = 1.0,
    as_json: AsJson = False,
    page: Page = None,
    force: Force = False,
) -> None:
    """Show a trace: clock, losses, quantiles, autocorrelation.

    Example: simnmt trace inspect @cp1 --page cp1.html
    """
    from simnmt.base import shipped_files
    from simnmt.network.traces.summary import format_facts, format_title, summarise

    path = shipped_files.find("traces/rtt", file) if file.startswith("@") else Path(file)
    check_output(page, force, path)
    traces = _read_traces(context, path)
    summaries = [summarise(trace) for trace in traces]
    if page is not None:
        from simnmt.report.input_pages import render_traces
        from simnmt.report.page_template import write_page

        write_page(page, render_traces(file if file.startswith("@") else path.name, traces))
    if as_json:
        print_json({"file": file, "series": [summary.as_json() for summary in summaries]})
        return
    for summary in summaries:
        print(f"{file}: {format_title(summary)}; {summary.source}")
        print(format_pairs(format_facts(summary), "  "))
        _print_notes(summary.remarks)
    if page is not None and not is_standard(page):
        print(f"page: {page}")


@app.command()
def resample(
    file: Annotated[Path, argument("FILE", "As for import.")],
    hours: Annotated[float, option("H", "Length to draw.")],
    out: Annotated[Path, option("FILE", "CSV file to write; of several series each gets a word before .csv.")],
    block: Annotated[
        float | None, option("TIME", "Mean length of a block. [default: a twentieth of the trace]", parser=parse_duration)
    ] = None,
    seed: Seed = 1,
    column: Columns = None,
    force: Force = False,
) -> None:
    """Draw a longer trace of random blocks of a measured one.

    Example: simnmt trace resample office.csv --hours 24 --out day.csv
    """
    from simnmt.network.trace_options import ReadOptions, parse_columns
    from simnmt.network.traces import resampling
    from simnmt.network.traces.summary import summarise
    from simnmt.network.traces.trace_file import output_paths, read_trace, write_traces

    traces = read_trace(file, ReadOptions(columns=parse_columns(column or ())))
    paths = output_paths(traces, out)
    for path in paths:
        check_output(path, force, file)
    outputs = [describe_output(path) for path in paths]
    drawn = [resampling.resample(trace, hours * 3600, seed, block) for trace in traces]
    write_traces(drawn, out, made="simnmt trace resample")
    for output, trace in zip(outputs, drawn, strict=True):
        _print_written(output, summarise(trace))
