"""`simnmt plan`: how many requests per second a deployment can take under a service level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from simnmt.base.text_tables import format_table
from simnmt.cli.options import AllowCode, AsJson, Jobs, argument, option, parse_share, print_json, prints_of_users
from simnmt.cli.progress import progress_bar

if TYPE_CHECKING:
    from simnmt.experiment.plan.capacity import Capacities, Capacity

MISSED = 3
"""Exit status if no deployment keeps the service level."""


def plan(
    scenario: Annotated[str, argument("SCENARIO|@NAME", "A file or -, or a shipped scenario.")],
    slo: Annotated[list[str], option("REQUIREMENT", "What must hold, such as 'p95_ms<=300'; may be repeated.", "--slo")],
    overrides: Annotated[list[str] | None, option("KEY=VALUE", "Override any key of the scenario.", "--set")] = None,
    requests: Annotated[int | None, option("N", "Requests per run.")] = None,
    replications: Annotated[int | None, option("R", "Fewest independent repeats.")] = None,
    seed: Annotated[int | None, option("S", "Seed of the random numbers. [default: the scenario's]")] = None,
    precision: Annotated[
        float | None,
        option("P%", "Half width of the interval at which replications end. [default: 2%]", parser=parse_share),
    ] = None,
    jobs: Jobs = 1,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Find the highest rate of requests under a service level.

    Example: simnmt plan @load-sweep --slo 'p95_ms<=300'
    """
    import simnmt.api

    with progress_bar() as bar, prints_of_users():
        capacities = simnmt.api.plan(
            scenario,
            slo,
            overrides=overrides or [],
            requests=requests,
            replications=replications,
            seed=seed,
            precision=precision or 0.02,
            jobs=jobs or None,
            progress=bar.runs,
            allow_code=allow_code,
        )
    if as_json:
        print_json(capacities.document())
    else:
        print(format_capacities(capacities))
    if not capacities.is_met:
        raise typer.Exit(MISSED)


def format_capacities(capacities: Capacities) -> str:
    """Return the text of the capacities of a scenario."""
    header = ["workload", "network", "policy", "requests/s", "95 % interval", "at its limit"]
    table = format_table(header, [_capacity_line(row) for row in capacities.rows], 3)
    return f"{capacities.name}: highest rate with {capacities.level}\n\n{table}"


def _capacity_line(row: Capacity) -> list[str]:
    from simnmt.results.number_text import digits, format_interval

    if not row.is_met:
        values = ", ".join(f"{name} is {digits(value)}" for name, value in row.values.items())
        return [row.workload, row.network, row.policy, "none", "-", f"missed at any rate: {values}"]
    value, interval = format_interval(row.rate_rps, row.low, row.high, signs="minus")
    return [row.workload, row.network, row.policy, value, interval or "-", str(row.binding)]
