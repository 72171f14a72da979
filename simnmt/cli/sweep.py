"""`simnmt sweep`: run a scenario at many points of its keys, resumable, and gather one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from simnmt.base.errors import SimnmtError
from simnmt.cli.options import AllowCode, AsJson, argument, option, print_json, prints_of_users
from simnmt.cli.progress import progress_bar
from simnmt.cli.terminal import say, warn

if TYPE_CHECKING:
    from simnmt.experiment.sweep import SweepResult

MOST_FAILURES = 10
"""Most errors of failed points that are printed; failed.json has all."""


class PartlyEnded(SimnmtError):
    """A sweep of which some points failed."""

    exit_status = 4


def sweep(
    given: Annotated[
        str,
        argument("SWEEP.yaml|SCENARIO|DIR", "A sweep file, a scenario with --grid, or the folder of a sweep to go on with."),
    ],
    grid: Annotated[
        list[str] | None,
        option("KEY=V1,V2,...", "Values of a key, or KEY=FROM:TO, or N numbers KEY=FROM:TO:N; may be repeated.", "--grid"),
    ] = None,
    out: Annotated[Path | None, option("DIR", "Folder to write. [default: a new one under reports/]")] = None,
    overrides: Annotated[list[str] | None, option("KEY=VALUE", "Override a key at all points.", "--set")] = None,
    requests: Annotated[int | None, option("N", "Requests per run.")] = None,
    replications: Annotated[int | None, option("R", "Independent repeats.")] = None,
    seed: Annotated[int | None, option("S", "Same seed, same bytes. [default: the scenario's, else 1]")] = None,
    jobs: Annotated[
        int, option("J", "Processes; 0: as many as save time, at most one per processor.", "--jobs", min=0, max=1024)
    ] = 0,
    cluster: Annotated[
        str | None,
        option(
            "tcp://HOST:PORT",
            "Dask scheduler whose workers run the points; it executes what it is sent, so on this machine or with tls:// only.",
            "--cluster",
        ),
    ] = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Run a scenario at many points of its keys; a sweep that stopped goes on by the name of its folder.

    Example: simnmt sweep @open-loop --grid devices.cloud.workers=1,2 --grid workloads.de-en.arrivals.rate_rps=5:11:4
    """
    from simnmt.api import sweep as run_sweep
    from simnmt.scenario.document import overrides_of_call
    from simnmt.scenario.varied_keys import parse_varied_key

    given_values = overrides_of_call(overrides or [], as_options=True, requests=requests, replications=replications, seed=seed)
    with progress_bar() as bar, prints_of_users():
        result = run_sweep(
            given,
            grid=[parse_varied_key(text, "--grid") for text in grid or []],
            out=out,
            overrides=given_values,
            jobs=jobs or None,
            progress=lambda done, total: bar.runs(done, total, "points"),
            cluster=cluster,
            allow_code=allow_code,
            announce=say,
        )
    if as_json:
        print_json(document_of(result))
    else:
        print(format_sweep(result))
    if result.failures:
        raise PartlyEnded(_describe_failures(result))


def document_of(result: SweepResult) -> dict[str, object]:
    """Return the content of `--json`."""
    failures = [{"point": failure.point, "error": failure.error} for failure in result.failures]
    table = result.table
    return {
        "directory": str(result.directory),
        "points": result.points,
        "points_run": result.ran,
        "keys": list(table.keys),
        "objective": table.objective,
        "rows": table.rows,
        "failures": failures,
    }


def format_sweep(result: SweepResult) -> str:
    """Return the text of a sweep that has ended: how often each policy is best, and where the table is."""
    from simnmt.base.suggestions import format_list
    from simnmt.report.table import Table
    from simnmt.results.sweep_table import BEST, BOUND, EQUAL, PAGE, TABLE, TIED, UNSTABLE, WORSE

    table = result.table
    counts: dict[str, dict[str, int]] = {}
    bounds = dict.fromkeys(row["policy"] for row in table.rows if row["standing"] == BOUND)
    for row in table.rows:
        if row["policy"] in bounds:
            continue
        of_policy = counts.setdefault(row["policy"], {})
        of_policy[row["standing"]] = of_policy.get(row["standing"], 0) + 1
    header = ["policy", "best", "as good", "not distinguishable from it", "worse", "unstable"]
    rows = [
        [policy, *(str(of.get(standing, 0)) for standing in (BEST, EQUAL, TIED, WORSE, UNSTABLE))]
        for policy, of in counts.items()
    ]
    lines = [f"{result.points} point{'s' * (result.points != 1)} of {', '.join(table.keys)}"]
    if rows:
        lines.append(f"\nBy {table.objective}, policies are at so many points:\n{Table.of_texts('', header, rows).to_text()}\n")
    if bounds:
        lines.append(f"Left out: {format_list(bounds, 'and')}, a bound that cannot be deployed (the table has its numbers).")
    best = [row for row in table.rows if row["standing"] == BEST]
    if missing := sum(row["slo_met"] == 0.0 for row in best):
        lines.append(f"At {missing} of {len(best)} points the best policy misses the service level, as all do.")
    if losing := sum(bool(row.get("lost_share")) for row in best):
        most = max(row.get("lost_share") or 0.0 for row in best)
        lines.append(f"At {losing} of {len(best)} points the best policy loses requests, up to {100.0 * most:.2g} %.")
    return "\n".join([*lines, f"table: {result.directory / TABLE}", f"page: {result.directory / PAGE}"])


def _describe_failures(result: SweepResult) -> str:
    for failure in result.failures[:MOST_FAILURES]:
        warn(f"point {failure.point}: {failure.error}")
    more = len(result.failures) - MOST_FAILURES
    if more > 0:
        warn(f"and {more} more (failed.json has all)")
    again = f"try again: simnmt sweep {result.directory}"
    return f"{result.table.failed} of {result.points} points failed; the others are in the table ({again})"
