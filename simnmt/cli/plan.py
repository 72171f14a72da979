"""`simnmt plan`: how many requests per second a deployment can take under a service level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from simnmt.base.text_tables import format_table
from simnmt.cli.options import AllowCode, AsJson, Jobs, argument, option, parse_share, print_json, prints_of_users
from simnmt.cli.progress import progress_bar

if TYPE_CHECKING:
    from simnmt.experiment.plan.capacity import Capacities, Capacity
    from simnmt.experiment.plan.deployment import DeploymentPlan

Minimised = Literal["servers", "cost", "energy", "latency"]
MISSED = 3
"""Exit status if no deployment keeps the service level."""


def plan(
    scenario: Annotated[str, argument("SCENARIO|@NAME", "A file or -, or a shipped scenario.")],
    slo: Annotated[list[str], option("REQUIREMENT", "What must hold, such as 'p95_ms<=300'; may be repeated.", "--slo")],
    rate: Annotated[
        float | None,
        option("R", "Requests/s of every workload: find the least deployment. [default: find the highest rate]", "--rate"),
    ] = None,
    minimise: Annotated[Minimised, option(None, "What is to be least at the rate.")] = "servers",
    vary: Annotated[
        list[str] | None,
        option("KEY=V1,V2|FROM:TO", "Values of a key for the candidates. [default: boxes of the last device]", "--vary"),
    ] = None,
    overrides: Annotated[list[str] | None, option("KEY=VALUE", "Override any key of the scenario.", "--set")] = None,
    requests: Annotated[int | None, option("N", "Requests per run.")] = None,
    replications: Annotated[int | None, option("R", "Independent repeats; without --rate the fewest.")] = None,
    seed: Annotated[int | None, option("S", "Seed of the random numbers. [default: the scenario's]")] = None,
    precision: Annotated[
        float | None,
        option("P%", "Half width of the rate's interval at which repeats end. [default: 2%]", parser=parse_share),
    ] = None,
    certainty: Annotated[
        float | None,
        option("P%", "Probability of the level from which a deployment is chosen. [default: 95%]", parser=parse_share),
    ] = None,
    jobs: Jobs = 1,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Find the highest rate under a service level or, for a rate, the least deployment.

    Example: simnmt plan @load-sweep --slo 'p95_ms<=300'
    """
    import simnmt.api
    from simnmt.experiment.plan.capacity import Capacities

    with progress_bar() as bar, prints_of_users():
        answer = simnmt.api.plan(
            scenario,
            slo,
            rate=rate,
            minimise=minimise,
            vary=vary or [],
            overrides=overrides or [],
            requests=requests,
            replications=replications,
            seed=seed,
            precision=precision or 0.02,
            certainty=certainty or 0.95,
            jobs=jobs or None,
            progress=bar.runs,
            allow_code=allow_code,
        )
    if as_json:
        print_json(answer.document())
    elif isinstance(answer, Capacities):
        print(format_capacities(answer))
    else:
        print(format_plan(answer))
    if not answer.is_met:
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


def format_plan(plan: DeploymentPlan) -> str:
    """Return the text of a deployment plan."""
    return "\n".join(map(str, plan.document().items()))
