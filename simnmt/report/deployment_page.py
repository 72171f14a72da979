"""The page of a plan: the answer in sentences, the figures, and a table of policies or candidates, in one HTML file."""

from __future__ import annotations

import os
from collections.abc import Sequence

from simnmt.experiment.plan.basis import Basis
from simnmt.experiment.plan.capacity import Capacities
from simnmt.experiment.plan.deployment import DeploymentPlan
from simnmt.experiment.plan.messages import (
    describe_capacities,
    describe_deployment,
    describe_plan,
    describe_values,
    format_objective,
)
from simnmt.report.charts import Control, Panel, pack, panel
from simnmt.report.page_template import render_template, write_page
from simnmt.report.plan_charts import candidates_chart, capacity_chart, rate_chart
from simnmt.report.typography import typeset, typeset_interval
from simnmt.results.number_text import digits

Line = Sequence[str]


def write_plan_page(path: str | os.PathLike[str], plan: Capacities | DeploymentPlan) -> None:
    """Write the page of a plan, whole or not at all. Raises `InputError` if the file cannot be written."""
    write_page(path, render_plan(plan))


def render_plan(plan: Capacities | DeploymentPlan) -> str:
    """Return the page as text; the same plan gives the same text, and every name of the input is escaped."""
    if isinstance(plan, Capacities):
        return _render(
            f"{plan.name}: highest rate with {plan.level}",
            list(describe_capacities(plan)),
            capacity_panels(plan),
            [("Policies", ("workload", "network", "policy", "requests/s", "at its limit"), _capacity_lines(plan))],
            plan.requests_simulated,
            plan.basis,
        )
    tables = [("Candidates", ("deployment", plan.objective.what, "requirements", "out because"), _candidate_lines(plan))]
    title = f"{plan.name}: deployment for {digits(plan.rate_rps)} requests/s with {plan.level}"
    return _render(title, list(describe_plan(plan)), plan_panels(plan), tables, plan.requests_simulated, plan.basis)


def _render(
    title: str,
    answer: list[str],
    panels: list[Panel],
    tables: Sequence[tuple[str, Line, list[Line]]],
    requests: int,
    basis: Basis,
) -> str:
    return render_template(
        "deployment_page.html.j2",
        ("tables.js", "charts.js"),
        title=title,
        answer=answer,
        sources=basis.sources,
        warnings=basis.warnings,
        panels=panels,
        packed=pack(panels),
        tables=[{"title": heading, "head": head, "lines": lines} for heading, head, lines in tables],
        requests=typeset(f"{requests:,}"),
    )


def capacity_panels(capacities: Capacities) -> list[Panel]:
    """Return the figures of capacities."""
    places = list(dict.fromkeys((row.workload, row.network) for row in capacities.rows))
    control = Control("place", "Workload and network", [(str(at), " on ".join(place)) for at, place in enumerate(places)])
    return [
        panel(
            "capacities",
            "Highest rate",
            f"Highest rate with {capacities.level} of each policy, requests per second, with 95 % intervals",
            lambda: capacity_chart(capacities),
            caption="Whiskers are 95 % intervals over the replications, without the error of the calibration.",
        ),
        panel(
            "rates",
            "Value over limit by rate",
            "Worst value over its limit of each simulated run, against the rate of requests",
            lambda at: rate_chart(capacities, *places[int(at)]),
            [control],
            caption="One point for each run. Below 1 a run keeps the level.",
        ),
    ]


def plan_panels(plan: DeploymentPlan) -> list[Panel]:
    """Return the figures of a deployment plan."""
    return [
        panel(
            "candidates",
            "Candidates",
            f"Candidates by {plan.objective.what} and by their worst value over its limit",
            lambda: candidates_chart(plan),
            caption="Candidates that are out were stopped after shorter runs.",
        )
    ]


def _capacity_lines(capacities: Capacities) -> list[Line]:
    lines: list[Line] = []
    for row in capacities.rows:
        rate, interval = typeset_interval(row.rate_rps, row.low, row.high, signs="minus") if row.is_met else ("none", "")
        lines.append((row.workload, row.network, row.policy, f"{rate} {interval}".rstrip(), str(row.binding)))
    return lines


def _candidate_lines(plan: DeploymentPlan) -> list[Line]:
    return [
        (describe_deployment(described), format_objective(plan, described), describe_values(described), rejected)
        for described, rejected in plan.judged
    ]
