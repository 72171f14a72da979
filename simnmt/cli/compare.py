"""`simnmt compare`: what differs between finished runs, in their scenarios and in the latencies of their policies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from simnmt.cli.options import AsJson, Force, Page, argument, check_output, print_page, print_result

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
    from simnmt.report.comparison_page import render_comparison
    from simnmt.results.run_directory import MANIFEST, OUTPUTS

    check_output(page, force, *(run / name for run in runs for name in (MANIFEST, *sorted(OUTPUTS))))
    comparison = simnmt.api.compare(*runs)
    print_result(as_json, comparison.document, lambda: format_comparison(comparison))
    print_page(page, as_json, lambda: render_comparison(comparison))


def format_comparison(comparison: Comparison) -> str:
    """Return the text of a comparison: differing keys, changes, best policies, and what they rest on."""
    from simnmt.report.comparison_page import best_table, changes_table, differences_table
    from simnmt.results.comparison import NOTHING

    changes, keys = changes_table(comparison), len(comparison.scenario_differences)
    most = MOST_CHARACTERS if sys.stdout.isatty() else None
    parts = [
        f"{comparison.title}:",
        differences_table(comparison, most).to_text(most=MOST_KEYS) if keys else "The scenarios do not differ.",
        f"and {keys - MOST_KEYS} more keys (--json and --page have all)" if keys > MOST_KEYS else "",
        changes.to_text() if comparison.changes else f"The runs have {NOTHING}.",
        changes.note if comparison.changes else "",
        best_table(comparison).to_text() if comparison.best else "",
        "\n".join(comparison.notes),
    ]
    return "\n\n".join(filter(None, parts))
