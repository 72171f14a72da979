"""`simnmt trace` and `simnmt traffic`: series of RTT and bandwidth, and the traffic of a log of requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from simnmt.base.errors import shorten
from simnmt.base.text_tables import format_pairs, format_table
from simnmt.cli.options import (
    AsJson,
    Force,
    Page,
    Seed,
    argument,
    check_output,
    grouped,
    option,
    outlines,
    print_page,
    print_result,
    time_option,
)
from simnmt.cli.terminal import describe_output, note

if TYPE_CHECKING:
    from simnmt.network.traces.trace import Trace

app = typer.Typer(help="Series of round-trip times and bandwidths.", no_args_is_help=True)

File = Annotated[Path, argument("FILE", "RIPE Atlas results, output of ping, JSON of iperf3 or irtt, or a CSV log.")]
Out = Annotated[Path, option("FILE", "CSV file to write; of several series each gets a word before .csv.")]


@dataclass(frozen=True, slots=True)
class Reading:
    """How a measurement is read."""

    reply: Annotated[Literal["min", "mean"], option(None, "Value of a round of several replies.")] = "min"
    probe: Annotated[int | None, option("ID", "Read this RIPE Atlas probe alone.")] = None
    column: Annotated[
        list[str] | None,
        option("ROLE=NAME[:UNIT]", "Column of a CSV file that holds time, rtt, downlink or uplink; repeatable."),
    ] = None
    interval: Annotated[
        float | None,
        time_option("Time between the requests of a ping that printed no times. [default: its summary's, else 1s]"),
    ] = None

    def read(self, file: Path) -> list[Trace]:
        """Return the traces of a file."""
        from simnmt.network.traces import read_trace
        from simnmt.network.traces.measured_csv import parse_columns
        from simnmt.network.traces.trace import ReadOptions

        return read_trace(file, ReadOptions(self.reply, self.probe, parse_columns(self.column or ()), self.interval))


def _write(verb: str, traces: list[Trace], out: Path, force: bool, file: Path, change: Callable[[Trace], Trace]) -> None:
    """Check the output, write the changed traces of a file there, and print what was written."""
    from simnmt.network.traces.summary import format_facts, format_title
    from simnmt.network.traces.trace import output_paths, write_traces

    paths = output_paths(traces, out)
    for path in paths:
        check_output(path, force, file)
    outputs = [describe_output(path) for path in paths]
    traces = [change(trace) for trace in traces]
    write_traces(traces, out, f"simnmt trace {verb}")
    for output, trace in zip(outputs, traces, strict=True):
        facts = dict(format_facts(trace))
        print(f"{output}: {format_title(trace)}; samples: {facts['samples']}; lost: {facts['lost']}")
        for remark in trace.remarks:
            print(f"  note: {remark}")
        if trace.quantity == "rtt" and trace.lost.any():
            print(f"  note: lost samples: {trace.lost_samples:,}; a run feels them only with outages: trace on the network")


@app.command("list")
def list_(
    folder: Annotated[Path | None, argument("[DIR]", "Folder with traces of yours. [default: traces/]")] = None,
    as_json: AsJson = False,
) -> None:
    """List series of RTT and bandwidth, shipped ones and yours.

    Example: simnmt trace list
    """
    from simnmt.network.traces import read_trace
    from simnmt.network.traces.summary import format_duration, format_value, summarise
    from simnmt.network.traces.trace import NOUN

    traces, left_out = outlines(["traces/rtt", "traces/bandwidth"], folder, lambda path: [*map(summarise, read_trace(path))])
    rows = []
    for trace in traces:
        names = [trace["name"], NOUN[trace["quantity"]], trace["kind"], shorten(trace["source"], 48)]
        span, mean = format_duration(trace["duration_s"]), format_value(trace["quantity"], trace["mean"])
        rows.append([*names, f"{trace['samples']:,}", span, mean])
    heads = ["trace", "quantity", "kind", "source", "samples", "span", "mean"]
    print_result(as_json, lambda: {"traces": traces, "left_out": left_out}, lambda: format_table(heads, rows, 4))
    for fault in left_out:
        note(f"left out {fault}")


@app.command("import")
@grouped
def import_(
    file: File,
    *,
    out: Out,
    reading: Reading,
    kind: Annotated[Literal["measured", "synthetic"] | None, option(None, "Where a CSV log does not name its kind.")] = None,
    force: Force = False,
) -> None:
    """Turn measurements into series that a scenario reads, mended, each loss and oddity counted.

    Example: simnmt trace import ping.txt --out office.csv
    """

    def stated(trace: Trace) -> Trace:
        return replace(trace, kind=kind) if kind and trace.kind == "unstated" else trace

    _write("import", reading.read(file), out, force, file, stated)


@app.command()
@grouped
def inspect(
    file: Annotated[str, argument("FILE|@NAME", "As for import, or a shipped RTT series.")],
    *,
    reading: Reading,
    as_json: AsJson = False,
    page: Page = None,
    force: Force = False,
) -> None:
    """Show a trace: clock, losses, quantiles, autocorrelation.

    Example: simnmt trace inspect @cp1 --page cp1.html
    """
    from simnmt.base import shipped_files
    from simnmt.network.traces.summary import format_facts, format_title, summarise

    def render() -> str:
        from simnmt.report.input_pages import render_traces  # takes 0.8 s, which few calls need

        return render_traces(file if file.startswith("@") else path.name, traces)

    path = shipped_files.find("traces/rtt", file) if file.startswith("@") else Path(file)
    check_output(page, force, path)
    traces = reading.read(path)
    lines: list[str] = []
    for trace in traces:
        lines += [f"{file}: {format_title(trace)}; {trace.source}", format_pairs(format_facts(trace), "  ")]
        lines += [f"  note: {remark}" for remark in trace.remarks]
    print_result(as_json, lambda: {"file": file, "series": [*map(summarise, traces)]}, lambda: "\n".join(lines))
    print_page(page, as_json, render)


@app.command()
@grouped
def resample(
    file: File,
    *,
    hours: Annotated[float, option("H", "Length to draw.")],
    out: Out,
    block: Annotated[float | None, time_option("Mean length of a block. [default: a twentieth of the trace]")] = None,
    seed: Seed = 1,
    reading: Reading,
    force: Force = False,
) -> None:
    """Draw a longer trace of random blocks of a measured one.

    Example: simnmt trace resample office.csv --hours 24 --out day.csv
    """
    from simnmt.network.traces import trace

    traces = reading.read(file)
    _write("resample", traces, out, force, file, lambda measured: trace.resample(measured, hours * 3600, seed, block))


def traffic(
    log: Annotated[Path, argument("LOG", "Requests as CSV or JSON Lines, plain or gzip, or the log of simnmt live gateway.")],
    time_unit: Annotated[Literal["s", "ms"] | None, option(None, "Unit of times that are numbers. [default: as known]")] = None,
    page: Page = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show the traffic of a log: rates and peaks, burstiness beside Poisson, repeated texts, lengths, language pairs.

    Example: simnmt traffic gateway.jsonl --page traffic.html
    """
    from simnmt.report.traffic_page import render_traffic, traffic_facts, traffic_tables
    from simnmt.workload.arrivals.traffic import read_traffic

    check_output(page, force, log)
    result = read_traffic(log, time_unit)

    def text() -> str:
        tables = [table.to_text() for table in traffic_tables(result)]
        return "\n\n".join([f"{result.name}:\n{format_pairs(traffic_facts(result), '  ')}", *tables])

    print_result(as_json, result.document, text)
    print_page(page, as_json, lambda: render_traffic(result))
