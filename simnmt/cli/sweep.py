"""`simnmt sweep`: run a scenario at many points of its keys, resumable, and gather one table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from simnmt.base.errors import SimnmtError
from simnmt.cli.options import VALUES, AsJson, Changes, MostJobs, argument, grouped, option, print_result, prints_of_users
from simnmt.cli.terminal import progress_bar, say, warn

if TYPE_CHECKING:
    from simnmt.experiment.sweep import SweepResult

_CLUSTER = "Dask scheduler; it executes what it is sent, so on this machine or with tls:// only."
MOST_FAILURES = 10
"""Most errors of failed points that are printed; failed.json has all."""


class PartlyEnded(SimnmtError):
    """A sweep of which some points failed."""

    exit_status = 4


@grouped
def sweep(
    changes: Changes,
    given: Annotated[str, argument("SWEEP.yaml|SCENARIO|DIR", "A scenario takes --grid; the folder of a sweep goes on.")],
    grid: Annotated[list[str] | None, option("KEY=VALUES", f"{VALUES} May be repeated.")] = None,
    out: Annotated[Path | None, option("DIR", "Folder to write. [default: a new one under reports/]")] = None,
    jobs: MostJobs = 0,
    cluster: Annotated[str | None, option("tcp://HOST:PORT", _CLUSTER)] = None,
    as_json: AsJson = False,
) -> None:
    """Run a scenario at many points of its keys; a sweep that stopped goes on by the name of its folder.

    Example: simnmt sweep @open-loop --grid devices.cloud.workers=1,2 --grid workloads.de-en.arrivals.rate_rps=5:11:4
    """
    from simnmt.api import sweep as run_sweep
    from simnmt.scenario.varied_keys import parse_varied_key

    overrides = changes.values
    with progress_bar() as bar, prints_of_users():
        result = run_sweep(
            given,
            grid=[parse_varied_key(text, "--grid") for text in grid or []],
            out=out,
            overrides=overrides,
            jobs=jobs or None,
            progress=lambda done, total: bar.runs(done, total, "points"),
            cluster=cluster,
            allow_code=changes.allow_code,
            announce=say,
        )
    print_result(as_json, lambda: _document(result), lambda: format_sweep(result))
    if result.failures:
        for failure in result.failures[:MOST_FAILURES]:
            warn(f"point {failure.point}: {failure.error}")
        counts = f"{result.table.failed} of {result.points} points failed; the others are in the table"
        raise PartlyEnded(f"{counts} (try again: simnmt sweep {result.directory})")


def _document(result: SweepResult) -> dict[str, object]:
    """Return the content of `--json`."""
    return {
        "directory": str(result.directory),
        "points": result.points,
        "points_run": result.ran,
        "keys": list(result.table.keys),
        "objective": result.table.objective,
        "rows": result.table.rows,
        "failures": [{"point": failure.point, "error": failure.error} for failure in result.failures],
    }


def format_sweep(result: SweepResult) -> str:
    """Return the text of a sweep that has ended: how often each policy is best, and where the table is."""
    from simnmt.base.text_tables import format_table
    from simnmt.results.sweep_table import BEST, BOUND, EQUAL, PAGE, TABLE, TIED, UNSTABLE, WORSE

    table = result.table
    standings = Counter((row["policy"], row["standing"]) for row in table.rows)
    policies = list(dict.fromkeys(row["policy"] for row in table.rows if row["standing"] != BOUND))
    bounds = list(dict.fromkeys(row["policy"] for row in table.rows if row["standing"] == BOUND))
    shown = {BEST: "best", EQUAL: "as good", TIED: "not distinguishable from it", WORSE: "worse", UNSTABLE: "unstable"}
    rows = [[policy, *(str(standings[policy, standing]) for standing in shown)] for policy in policies]
    best = [row for row in table.rows if row["standing"] == BEST]
    missing = sum(row["slo_met"] == 0.0 for row in best)
    losses = [row["lost_share"] for row in best if row.get("lost_share")]
    lines = [
        f"{result.points} point{'s' * (result.points != 1)} of {', '.join(table.keys)}",
        f"\nBy {table.objective}, policies are at so many points:\n{format_table(['policy', *shown.values()], rows)}\n"
        if rows
        else "",
        f"Left out: {', '.join(bounds)}, a bound that cannot be deployed (the table has its numbers)." if bounds else "",
        f"At {missing} of {len(best)} points the best policy misses the service level, as all do." if missing else "",
        f"At {len(losses)} of {len(best)} points the best policy loses requests, up to {100.0 * max(losses):.2g} %."
        if losses
        else "",
        f"table: {result.directory / TABLE}\npage: {result.directory / PAGE}",
    ]
    return "\n".join(filter(None, lines))
