"""`simnmt trace`: list, import, inspect and synthesise series of RTT and bandwidth."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simnmt.base.errors import InputError
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
    parse_bit_rate,
    parse_seconds,
    print_json,
)
from simnmt.cli.terminal import describe_output, note

if TYPE_CHECKING:
    from simnmt.network.rtt_comparison import Judgement
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
    from simnmt.base import shipped_files
    from simnmt.network.traces.readings import NOUN
    from simnmt.network.traces.summary import format_duration, format_value, outline
    from simnmt.network.traces.trace_file import read_trace

    files = shipped_files.listing(["traces/rtt", "traces/bandwidth"], folder, "traces")
    traces, left_out = shipped_files.outlines(files, lambda path: [*map(outline, read_trace(path))])
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
        from simnmt.report.trace_page import write_trace_page

        write_trace_page(page, file if file.startswith("@") else path.name, traces)
    if as_json:
        print_json({"file": file, "series": [summary.as_json() for summary in summaries]})
        return
    for summary in summaries:
        print(f"{file}: {format_title(summary)}; {summary.source}")
        print(format_pairs(format_facts(summary), "  "))
        _print_notes(summary.remarks)
    if page is not None and not is_standard(page):
        print(f"page: {page}")


_JUDGED_SEEDS = range(1, 21)
_DECIMALS_MS = 6


@app.command()
def synth(
    like: Annotated[Path | None, option("FILE", "Fit a process to this measured RTT, in any form that import reads.")] = None,
    params: Annotated[Path | None, option("FILE", "Take a process that was fitted before.")] = None,
    hours: Annotated[float | None, option("H", "Length to draw. [default: that of the fit]")] = None,
    out: Annotated[Path | None, option("FILE", "CSV file to write what was drawn.")] = None,
    params_out: Annotated[Path | None, option("FILE", "JSON file to keep the process.")] = None,
    unseen: Annotated[Path | None, option("FILE", "Judge it by this series, not by halves.", "--judge")] = None,
    seed: Seed = 1,
    column: Annotated[
        list[str] | None, option("ROLE=NAME[:UNIT]", "As for import, of the files read. May be repeated.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Draw a synthetic RTT series like a measured one, and report how alike the two are.

    Example: simnmt trace synth --like office.csv --hours 24 --out day.csv
    """
    from simnmt.network import rtt_process
    from simnmt.network.rtt_comparison import judge
    from simnmt.network.series_csv import series_text
    from simnmt.network.text_files import write_texts
    from simnmt.network.trace_options import ReadOptions, parse_columns
    from simnmt.network.traces.trace_file import read_rtt

    if (like is None) == (params is None):
        raise InputError("give either a series with --like or a process with --params")
    for written in (out, params_out):
        check_output(written, force, like, params, unseen)
    if out and params_out and not is_standard(out) and os.path.realpath(out) == os.path.realpath(params_out):
        raise InputError("--out and --params-out name the same file", remedy="write to two")
    how = ReadOptions(columns=parse_columns(column or ()))
    seen = read_rtt(like, how) if like else None
    process = rtt_process.fit_process(seen) if seen else rtt_process.read_process(params or "")
    duration_s = process.lap_s if hours is None else hours * 3600
    rtt_process.check_duration(process, duration_s)
    judgement = judge(process, _JUDGED_SEEDS, seen, read_rtt(unseen, how) if unseen else None)
    messages, texts = [], {}
    if params_out:
        messages.append(f"{describe_output(params_out)}: the parameters of the process")
        texts[params_out] = rtt_process.process_text(process)
    if out:
        series = rtt_process.draw_series(process, duration_s, seed, out.stem)
        messages.append(
            f"{describe_output(out)}: {len(series.rtt_s):,} samples, {series.duration_s / 3600:g} h, seed {seed}, none lost"
        )
        texts[out] = series_text(series, decimals=_DECIMALS_MS)
    write_texts(texts)
    if as_json:
        document = {"process": process.model_dump(exclude_none=True), "judgement": [verdict.as_json() for verdict in judgement]}
        print_json(document)
        return
    print("\n".join([rtt_process.describe_process(process), *messages]))
    if judgement:
        print(_format_judgement(judgement))


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
