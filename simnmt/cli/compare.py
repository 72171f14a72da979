"""`simnmt compare`: what differs between finished runs, in their scenarios and in the latencies of their policies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from simnmt.base.files import is_standard
from simnmt.base.text_tables import format_table, shorten_on_terminal
from simnmt.cli.options import AsJson, Force, Page, argument, check_output, print_json

if TYPE_CHECKING:
    from simnmt.results.comparison import Comparison

MOST_KEYS = 40
"""Most keys of scenarios that are printed; `--json` and the page have all."""
MOST_CHARACTERS = 40
"""Most characters of a value of a key on a terminal."""


def compare(
    runs: Annotated[list[Path], argument("RUN...", "Run directories, two or more; the others are compared with the first.")],
    page: Page = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Compare finished runs by their scenarios and latencies.

    Shows the keys that differ, changes of the mean latency with their intervals, and the best policy of each run.

    Example: simnmt compare first far-away --page comparison.html
    """
    import simnmt.api
    from simnmt.results.run_directory import MANIFEST, OUTPUTS

    check_output(page, force, *(run / name for run in runs for name in (MANIFEST, *sorted(OUTPUTS))))
    comparison = simnmt.api.compare(*runs)
    if page is not None:
        from simnmt.report.comparison_page import write_comparison_page

        write_comparison_page(page, comparison)
    if as_json:
        print_json(comparison.document())
        return
    print(format_comparison(comparison))
    if page is not None and not is_standard(page):
        print(f"page: {page}")


def format_comparison(comparison: Comparison) -> str:
    """Return the text of a comparison: differing keys, changes, best policies, and what they rest on."""
    from simnmt.results.comparison import NOTHING

    parts = [f"{comparison.title}:", _format_differences(comparison)]
    parts.append(_format_changes(comparison) if comparison.changes else f"The runs have {NOTHING}.")
    if comparison.best:
        parts.append(_format_best(comparison))
    return "\n\n".join([*parts, "\n".join(comparison.notes)])


def _format_differences(comparison: Comparison) -> str:
    from simnmt.results.comparison import describe_value

    rows = [
        [row["key"], *(shorten_on_terminal(describe_value(row[name]), MOST_CHARACTERS) for name in comparison.names)]
        for row in comparison.scenario_differences
    ]
    if not rows:
        return "The scenarios do not differ."
    table = format_table(["key", *comparison.names], rows[:MOST_KEYS], len(rows[0]))
    more = len(rows) - MOST_KEYS
    return f"{table}\nand {more} more keys (--json and --page have all)" if more > 0 else table


def _format_changes(comparison: Comparison) -> str:
    from simnmt.results.number_text import digits, format_interval

    several = len(comparison.names) > 2
    names = [f"{comparison.names[0]} ms", "ms" if several else f"{comparison.names[1]} ms"]
    header = ["workload", "network", "policy", *["run"] * several, *names, "change %", "95 % interval", "how", "verdict"]
    rows = []
    for row in comparison.changes:
        change, interval = format_interval(row["change_percent"], row["low_percent"], row["high_percent"])
        rows.append(
            [
                *(row[key] for key in ("workload", "network", "policy")),
                *[row["run"]] * several,
                *(digits(1e3 * row[key]) for key in ("baseline_latency_s", "mean_latency_s")),
                change + "*" * bool(row["unstable_in"]),
                interval or "-",
                "paired" if row["paired"] else "unpaired",
                row["verdict"],
            ]
        )
    table = format_table(header, rows, 3 + several)
    unstable = any(row["unstable_in"] for row in comparison.changes)
    marks = "\n* a policy that overloads a device has no mean: its change depends on how long a run lasts" * unstable
    return f"Change of the mean latency against {comparison.names[0]}:\n{table}{marks}"


def _format_best(comparison: Comparison) -> str:
    from simnmt.results.recommendation_text import describe_best

    rows = [
        [*place, *(describe_best(by_run.get(name)) for name in comparison.names)]
        for place, by_run in comparison.best_by_place.items()
    ]
    return f"Best policy:\n{format_table(['workload', 'network', *comparison.names], rows, len(rows[0]))}"
