"""A plan: its tables and figures, and the page with the answer in sentences."""

from __future__ import annotations

import os
from math import exp

from simnmt.experiment.plan.capacity import Capacities, Capacity
from simnmt.experiment.plan.deployment import DeploymentPlan
from simnmt.experiment.plan.messages import (
    describe_capacities,
    describe_deployment,
    describe_plan,
    describe_values,
    format_objective,
)
from simnmt.report.charts import (
    SYMBOLS,
    Axis,
    Chart,
    Control,
    Mark,
    Panel,
    bar_chart,
    bar_series,
    panel,
    plain,
    series_colour,
    short,
)
from simnmt.report.page_template import Section, render_page, write_page
from simnmt.report.run_tables import PLACE
from simnmt.report.table import Column, Table
from simnmt.results.number_text import digits

SHOWN = 4.0
"""Greatest ratio of a value to its limit that is drawn; greater ones, of overloads, are drawn there."""


def capacities_table(capacities: Capacities) -> Table:
    """Return the highest rate of every workload, network and policy."""

    def limit(row: Capacity) -> str:
        values = ", ".join(f"{name} is {digits(value)}" for name, value in row.values.items())
        return str(row.binding) if row.is_met else f"missed at any rate: {values}"

    ends = ("low", "high")
    columns = [
        *(Column(key, key, words=True) for key in (*PLACE, "policy")),
        Column("requests/s", lambda row: row.rate_rps if row.is_met else "none", interval=ends, rounded=True,
               interval_on_terminal=True),
        Column("at its limit", limit, words=True),
    ]  # fmt: skip
    return Table("", columns, capacities.rows, id="capacities")


def candidates_table(plan: DeploymentPlan) -> Table:
    """Return the candidates of a plan, and why they are out."""
    rows = [
        (describe_deployment(described), format_objective(plan, described), describe_values(described), rejected)
        for described, rejected in plan.judged
    ]
    heads = ("deployment", plan.objective.what, "requirements", "out because")
    return Table.of_texts("", heads, rows, words=4, id="candidates")


def write_plan_page(path: str | os.PathLike[str], plan: Capacities | DeploymentPlan) -> None:
    """Write the page of a plan, whole or not at all. Raises `InputError` if the file cannot be written."""
    write_page(path, render_plan(plan))


def render_plan(plan: Capacities | DeploymentPlan) -> str:
    """Return the page as text; the same plan gives the same text, and every name of the input is escaped."""
    if isinstance(plan, Capacities):
        title = f"{plan.name}: highest rate with {plan.level}"
        answer, panels = describe_capacities(plan), capacity_panels(plan)
        table = Section("Policies", "policies", tables=[capacities_table(plan)])
    else:
        title = f"{plan.name}: deployment for {digits(plan.rate_rps)} requests/s with {plan.level}"
        answer, panels = describe_plan(plan), plan_panels(plan)
        table = Section("Candidates", "candidates", tables=[candidates_table(plan)])
    warnings = plan.basis.warnings
    sections = [
        Section("Answer", "answer", text=[*answer, f"{plan.basis.sources}."]),
        *([Section("Warnings", "warnings", notes=warnings, style="doubts")] if warnings else []),
        Section("Figures", "figures", panels=panels),
        table,
    ]
    return render_page("simnmt plan", title, sections, [f"{plan.requests_simulated:,} requests simulated"])


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


def rate_chart(capacities: Capacities, workload: str, network: str) -> Chart:
    """Draw the worst value over its limit against the rate, one point for each simulated run."""
    rows = [row for row in capacities.rows if (row.workload, row.network) == (workload, network)]
    hover = "%{y:.3~g} of the limit at %{x:,.4~g} requests/s"
    marks = [
        _points(place, short(row.policy, 40), [(rate, ratio, "") for rate, ratio in sorted(row.points)], hover, 6.0)
        for place, row in enumerate(rows)
    ]
    return _over_limit(marks, "requests per second")


def candidates_chart(plan: DeploymentPlan) -> Chart:
    """Draw every simulated candidate by its objective and by its worst value over the limit."""
    groups: dict[str, list[tuple[float, float, str]]] = {"the choice": [], "the runner-up": [], "kept": [], "out": []}
    for described, rejected in plan.judged:
        name = "out" if rejected else "kept"
        name = "the runner-up" if plan.runner_up is not None and described.choice == plan.runner_up.choice else name
        name = "the choice" if plan.choice is not None and described.choice == plan.choice.choice else name
        x = float(described.servers) if plan.objective.is_exact else plan.objective.per_si_unit * described.objective
        groups[name].append((x, exp(described.excess), plain(describe_deployment(described))))
    hover = "%{text}: %{y:.3~g} of the limit"
    marks = [
        _points(place, name, points, hover, 11.0 if place < 2 else 7.0)
        for place, (name, points) in enumerate(groups.items())
        if points
    ]
    return _over_limit(marks, ", ".join(filter(None, (plan.objective.what, plan.objective.unit))))


def _points(place: int, name: str, points: list[tuple[float, float, str]], hover: str, size: float) -> Mark:
    x, ratios, texts = zip(*points, strict=True) if points else ((), (), ())
    symbol, heights = SYMBOLS[place % len(SYMBOLS)], [min(ratio, SHOWN) for ratio in ratios]
    return Mark("points", x, heights, name, series_colour(place), symbol=symbol, size=size, text=texts, hover=hover)


def _over_limit(marks: list[Mark], title: str) -> Chart:
    """Return a chart of values over their limit, with a line at the limit."""
    drawn = [x for mark in marks for x in mark.x]
    limit = [Mark("line", [min(drawn), max(drawn)], [1.0, 1.0], "limit", "ink", "dash", 1.4, hover="")] if drawn else []
    message = "" if drawn else "no candidate was simulated"
    return Chart([*marks, *limit], Axis(title), Axis("worst value over its limit", from_zero=True), message=message)


def capacity_chart(capacities: Capacities) -> Chart:
    """Draw the highest rate of every workload, network and policy with its interval."""
    several = len({(row.workload, row.network) for row in capacities.rows}) > 1
    names = [f"{row.policy}, {row.workload} on {row.network}" if several else row.policy for row in capacities.rows]
    rates, low, high = ([getattr(row, key) for row in capacities.rows] for key in ("rate_rps", "low", "high"))
    return bar_chart(names, "requests per second", [bar_series("", rates, low, high)])
