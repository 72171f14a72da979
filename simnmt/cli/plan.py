"""`simnmt plan`: how many requests per second a deployment takes under a service level, or the least deployment for a rate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from simnmt.base.errors import InputError
from simnmt.base.files import is_standard
from simnmt.cli.options import (
    AllowCode,
    AsJson,
    Force,
    Overrides,
    Page,
    argument,
    check_output,
    option,
    parse_share,
    print_json,
    prints_of_users,
)
from simnmt.cli.progress import progress_bar
from simnmt.cli.terminal import warn

if TYPE_CHECKING:
    from simnmt.experiment.plan.capacity import Capacities
    from simnmt.experiment.plan.deployment import DeploymentPlan

Minimised = Literal["servers", "cost", "energy", "latency"]
MISSED = 3
"""Exit status if no deployment keeps the service level."""
UNSAVED = "SCENARIO.yaml"
"""What commands call a scenario from standard input, which no file holds."""


def plan(
    scenario: Annotated[str, argument("SCENARIO|@NAME", "A file or -, or a shipped scenario.")],
    slo: Annotated[
        list[str] | None,
        option("REQUIREMENT", "What must hold, such as 'p95_ms<=300'; repeatable. [default: the scenario's slo]", "--slo"),
    ] = None,
    rate: Annotated[
        float | None,
        option("R", "Requests/s of every workload: find the least deployment. [default: find the highest rate]", "--rate"),
    ] = None,
    minimise: Annotated[Minimised | None, option(None, "What is to be least at the rate. [default: servers]")] = None,
    vary: Annotated[
        list[str] | None,
        option(
            "KEY=V1,V2,...",
            "Values of a key, or KEY=FROM:TO, or N numbers KEY=FROM:TO:N. [default: boxes of the last device]",
            "--vary",
        ),
    ] = None,
    overrides: Overrides = None,
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
    out: Annotated[
        Path | None, option("FILE", "Write the scenario of the choice, at the rate; - for standard output.", "--out")
    ] = None,
    page: Page = None,
    force: Force = False,
    jobs: Annotated[
        int, option("J", "Processes of the highest rate; 0: one per processor. With --rate one.", "--jobs", min=0, max=1024)
    ] = 1,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Find the highest rate under a service level or, for a rate, the least deployment.

    Example: simnmt plan @load-sweep --slo 'p95_ms<=300'
    """
    from simnmt.experiment.plan.capacity import Capacities
    from simnmt.plans import plan as find_plan
    from simnmt.scenario.document import overrides_of_call
    from simnmt.scenario.varied_keys import parse_varied_key

    given = overrides_of_call(overrides or [], as_options=True, requests=requests, replications=replications, seed=seed)
    for path in (out, page):
        check_output(path, force, scenario)
    if out is not None and rate is None:
        raise InputError("--out writes the deployment that is found for a rate", remedy="give --rate, or leave --out out")
    with progress_bar() as bar, prints_of_users():
        answer = find_plan(
            scenario,
            slo or (),
            rate=rate,
            minimise=minimise,
            vary=[parse_varied_key(text, "--vary") for text in vary or []],
            overrides=given,
            precision=precision,
            certainty=certainty,
            jobs=jobs or None,
            progress=bar.runs,
            allow_code=allow_code,
        )
    if out is not None and not isinstance(answer, Capacities) and answer.is_met:
        write_scenario(answer, out)
    if page is not None:
        from simnmt.report.deployment_page import render_plan
        from simnmt.report.page_template import write_page

        write_page(page, render_plan(answer))
    for warning in answer.basis.warnings:
        warn(warning)
    if as_json:
        print_json(answer.document())
    elif isinstance(answer, Capacities):
        print(format_capacities(answer))
    else:
        print(format_plan(answer, scenario, out))
    if page is not None and not is_standard(page) and not as_json:
        print(f"page: {page}")
    if not answer.is_met:
        raise typer.Exit(MISSED)


def write_scenario(plan: DeploymentPlan, path: Path) -> None:
    """Write the scenario of a plan's choice, whole or not at all."""
    from simnmt.base.files import written_whole
    from simnmt.scenario.yaml_text import write_document

    with written_whole(path) as partial:
        partial.write_text(write_document(plan.scenario.document()), encoding="utf-8")


def format_capacities(capacities: Capacities) -> str:
    """Return the text of the capacities of a scenario."""
    from simnmt.experiment.plan.messages import describe_capacities
    from simnmt.report.deployment_page import capacities_table

    title = f"{capacities.name}: highest rate with {capacities.level}"
    answer = "\n".join(describe_capacities(capacities))
    return f"{title}\n{capacities.basis.sources}\n\n{answer}\n\n{capacities_table(capacities).to_text()}"


def format_plan(plan: DeploymentPlan, scenario: str, out: Path | None) -> str:
    """Return the text of a deployment plan. `scenario`: as the user named it; `out`: the file that holds the choice."""
    from simnmt.experiment.plan.messages import PLACEHOLDERS, deploy_commands, describe_plan

    lines = [f"{plan.name}: deployment for {plan.rate_rps:g} requests/s with {plan.level}"]
    lines += [plan.basis.sources, "", *describe_plan(plan)]
    if plan.choice is None:
        return "\n".join(lines)
    written = None if out is None or is_standard(out) else str(out)
    name = UNSAVED if is_standard(scenario) else scenario
    commands = deploy_commands(plan, name, written)
    lines += ["", "Deploy it:", *(f"  {command}" for command in commands)]
    words = {word for command in commands for word in command.split()}
    lines += [f"{word}: {meaning}." for word, meaning in PLACEHOLDERS.items() if word in words]
    lines += ["" if written is None else f"scenario: {written}", f"{plan.requests_simulated:,} requests were simulated."]
    return "\n".join(lines)
