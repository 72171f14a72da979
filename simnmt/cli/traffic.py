"""`simnmt traffic`: rates, peaks, burstiness, repeats and lengths of a log of requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from simnmt.base.text_tables import format_pairs
from simnmt.cli.options import AsJson, Force, Page, argument, check_output, option, print_page, print_result


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
