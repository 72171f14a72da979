"""`simnmt plan`: how many requests per second a deployment takes under a service level, or the least deployment for a rate."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from simnmt.base.errors import InputError
from simnmt.base.files import is_standard, written_whole
from simnmt.cli.options import (
    VALUES,
    AsJson,
    Changes,
    Force,
    Page,
    argument,
    check_output,
    grouped,
    option,
    print_page,
    print_result,
    prints_of_users,
    share_option,
)
from simnmt.cli.terminal import progress_bar, warn

if TYPE_CHECKING:
    from simnmt.experiment.capacity import Capacities
    from simnmt.experiment.deployment import Candidate, DeploymentPlan

Minimised = Literal["servers", "cost", "energy", "latency"]
MISSED = 3
"""Exit status if no deployment keeps the service level."""
UNSAVED = "SCENARIO.yaml"
"""What commands call a scenario from standard input, which no file holds."""
MODEL = "your translation model, since the profile of the device was not measured with one that simnmt can load"


@grouped
def plan(
    changes: Changes,
    scenario: Annotated[str, argument("SCENARIO|@NAME", "A file or -, or a shipped scenario.")],
    slo: Annotated[list[str] | None, option("REQUIREMENT", "Such as 'p95_ms<=300'. [default: the scenario's slo]")] = None,
    rate: Annotated[float | None, option("R", "Requests/s to find the least deployment for. [default: find the rate]")] = None,
    minimise: Annotated[Minimised | None, option(None, "What is to be least at the rate. [default: servers]")] = None,
    vary: Annotated[list[str] | None, option("KEY=VALUES", f"{VALUES} [default: boxes of the last device]")] = None,
    precision: Annotated[float | None, share_option("Half width of the rate's interval that is enough. [default: 2%]")] = None,
    certainty: Annotated[float | None, share_option("Probability of the level that is enough. [default: 95%]")] = None,
    out: Annotated[Path | None, option("FILE", "Write the scenario of the choice, at the rate.")] = None,
    page: Page = None,
    force: Force = False,
    jobs: Annotated[int, option("J", "Processes of the highest rate; 0: one per processor.", min=0, max=1024)] = 1,
    as_json: AsJson = False,
) -> None:
    """Find the highest rate under a service level or, for a rate, the least deployment.

    Example: simnmt plan @load-sweep --slo 'p95_ms<=300'
    """
    from simnmt.api import plan as find_plan
    from simnmt.experiment.capacity import Capacities
    from simnmt.report.study_pages import render_plan
    from simnmt.scenario.varied_keys import parse_varied_key
    from simnmt.scenario.yaml_text import write_document

    overrides = changes.values
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
            overrides=overrides,
            precision=precision,
            certainty=certainty,
            jobs=jobs or None,
            progress=bar.runs,
            allow_code=changes.allow_code,
        )
    if out is not None and not isinstance(answer, Capacities) and answer.is_met:
        with written_whole(out) as partial:
            partial.write_text(write_document(answer.scenario.document()), encoding="utf-8")
    for warning in answer.warnings:
        warn(warning)
    print_result(as_json, answer.document, lambda: format_answer(answer, scenario, out))
    print_page(page, as_json, lambda: render_plan(answer))
    if not answer.is_met:
        raise typer.Exit(MISSED)


def format_answer(plan: Capacities | DeploymentPlan, scenario: str, out: Path | None) -> str:
    """Return the text of a plan. `scenario`: as the user named it; `out`: the file to which the choice is written."""
    from simnmt.experiment.capacity import Capacities
    from simnmt.report.study_pages import capacities_table, describe_answer

    lines = [plan.sources, "", *describe_answer(plan)]
    if isinstance(plan, Capacities):
        lines = [f"{plan.name}: highest rate with {plan.level}", *lines, "", capacities_table(plan).to_text()]
        return "\n".join(lines)
    lines.insert(0, f"{plan.name}: deployment for {plan.rate_rps:g} requests/s with {plan.level}")
    if plan.choice is not None:
        written = None if out is None or is_standard(out) else str(out)
        commands = deploy_commands(plan, plan.choice, UNSAVED if is_standard(scenario) else scenario, written)
        lines += ["", "Deploy it:", *(f"  {command}" for command in commands)]
        if any(" --model MODEL" in command for command in commands):
            lines.append(f"MODEL: {MODEL}.")
        if written is not None:
            lines += ["", f"scenario: {written}"]
    return "\n".join(lines)


def deploy_commands(plan: DeploymentPlan, choice: Candidate, name: str, written: str | None) -> list[str]:
    """Return the commands that deploy a choice: a server for each box of every device but the first, and the gateway.

    `name`: the scenario as the user named it; `written`: the file to which the choice was written, None for none.
    """
    from simnmt.experiment.deployment import format_choice
    from simnmt.scenario.configuration import END_NODE
    from simnmt.scenario.errors import format_location

    devices = plan.scenario.devices
    if streamed := [device for device, part in devices.items() if part.sti is not None]:
        return [f"# services of your own, since {', '.join(streamed)} streams a model, which no live service of simnmt does"]
    given = shlex.quote(name if written is None else written)
    settings = [f"{format_location(part.location)}={format_choice(part.value)}" for part in choice.overrides]
    sets = "" if written is not None else "".join(f" --set {shlex.quote(setting)}" for setting in settings)
    engines = {target.device: target.profile.engine for case in choice.sites[0].plan.cases.values() for target in case.targets}
    has_model = {device for device, engine in engines.items() if engine is not None and engine.architecture}
    model = {device: "" if device in has_model else " --model MODEL" for device in devices}
    first, *others = devices
    commands = {device: f"simnmt live server {given} --device {device}{model[device]}{sets}" for device in devices}
    if not others:
        return [commands[first]]
    servers = [device for device in others if device in choice.sites[0].used]
    for device in servers:
        count, balancer = devices[device].count or 1, str(plan.scenario.balancer_of(device))
        if count > 1:
            attached = "one URL for each share of the end nodes"
            where = attached if balancer == "attached" else f"behind a load balancer at {_address(device)}"
            commands[device] += f"   # on each of {count} boxes, {where} (simulated: {balancer})"
    addresses = "".join(f" --server {device}={_address(device)}" for device in servers)
    nodes = "   # on every end node" if first == END_NODE else ""
    gateway = f"simnmt live gateway {given} --policy {choice.policy}{model[first]}{addresses}{sets}{nodes}"
    return [*(commands[device] for device in servers), gateway]


def _address(device: str) -> str:
    return f"http://{device.upper()}:5001"
