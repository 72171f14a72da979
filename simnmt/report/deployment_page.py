"""A plan: its tables and figures, and the page with the answer in sentences."""

from __future__ import annotations

from simnmt.experiment.plan.capacity import Capacities, Capacity
from simnmt.experiment.plan.deployment import DeploymentPlan
from simnmt.experiment.plan.messages import (
    describe_capacities,
    describe_deployment,
    describe_plan,
    describe_values,
    format_objective,
)
from simnmt.report.charts import SYMBOLS, Axis, Chart, Control, Mark, Panel, panel, series_colour, short
from simnmt.report.page_template import Section, render_page
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


def render_plan(plan: Capacities | DeploymentPlan) -> str:
    """Return the page as text; the same plan gives the same text, and every name of the input is escaped."""
    if isinstance(plan, Capacities):
        title = f"{plan.name}: highest rate with {plan.level}"
        answer = describe_capacities(plan)
        figure = [Section("Figures", "figures", panels=[rate_panel(plan)])]
        table = Section("Policies", "policies", tables=[capacities_table(plan)])
    else:
        title = f"{plan.name}: deployment for {digits(plan.rate_rps)} requests/s with {plan.level}"
        answer, figure = describe_plan(plan), list[Section]()
        table = Section("Candidates", "candidates", tables=[candidates_table(plan)])
    warnings = plan.basis.warnings
    sections = [
        Section("Answer", "answer", text=[*answer, f"{plan.basis.sources}."]),
        *([Section("Warnings", "warnings", notes=warnings, style="doubts")] if warnings else []),
        *figure,
        table,
    ]
    return render_page("simnmt plan", title, sections, [f"{plan.requests_simulated:,} requests simulated"])


def rate_panel(capacities: Capacities) -> Panel:
    """Return the figure of the worst value over its limit against the rate, one point for each simulated run."""
    places = list(dict.fromkeys((row.workload, row.network) for row in capacities.rows))

    def draw(at: str) -> Chart:
        rows = [row for row in capacities.rows if (row.workload, row.network) == places[int(at)]]
        marks = [_points(place, row) for place, row in enumerate(rows)]
        rates = [rate for mark in marks for rate in mark.x]
        limit = [Mark("line", [min(rates), max(rates)], [1.0, 1.0], "limit", "ink", "dash", 1.4, hover="")] if rates else []
        return Chart([*marks, *limit], Axis("requests per second"), Axis("worst value over its limit", from_zero=True))

    return panel(
        "rates",
        "Value over limit by rate",
        "Worst value over its limit of each simulated run, against the rate of requests",
        draw,
        [Control("place", "Workload and network", [(str(at), " on ".join(place)) for at, place in enumerate(places)])],
        caption="One point for each run. Below 1 a run keeps the level.",
        across=True,
    )


def _points(place: int, row: Capacity) -> Mark:
    points = sorted(row.points)
    rates, ratios = [rate for rate, _ in points], [min(ratio, SHOWN) for _, ratio in points]
    hover = "%{y:.3~g} of the limit at %{x:,.4~g} requests/s"
    symbol = SYMBOLS[place % len(SYMBOLS)]
    return Mark("points", rates, ratios, short(row.policy, 40), series_colour(place), symbol=symbol, hover=hover)
