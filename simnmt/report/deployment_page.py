"""A plan: its sentences, tables and figure, and the page with them."""

from __future__ import annotations

from math import isfinite

from simnmt.experiment.plan.capacity import INTERVAL_OVER, SURE, Capacities, Capacity
from simnmt.experiment.plan.deployment import Candidate, DeploymentPlan
from simnmt.experiment.plan.outcome import Outcome
from simnmt.report.charts import SYMBOLS, Axis, Chart, Control, Mark, Panel, panel, series_colour, short
from simnmt.report.page_template import Section, render_page
from simnmt.report.run_tables import PLACE
from simnmt.report.table import Column, Table
from simnmt.report.words import words
from simnmt.results.number_text import digits, format_interval, percent
from simnmt.results.summary import format_objective, objective_name

SHOWN = 4.0
"""Greatest ratio of a value to its limit that is drawn; greater ones, of overloads, are drawn there."""


def describe_answer(plan: Capacities | DeploymentPlan) -> list[str]:
    """Return the answer in sentences, for the terminal and the page."""
    if isinstance(plan, DeploymentPlan):
        return words("deployment", plan=plan, values=_format_values, objective=_format_objective)
    best = plan.best
    rate, interval = format_interval(best.rate_rps, best.low, best.high, signs="minus")
    facts = {
        "best": best,
        "rate": rate,
        "interval": interval.strip("[]").replace(", ", " to "),
        "values": _format_values(best.outcome),
        "interval_over": INTERVAL_OVER,
        "sure": SURE,
    }
    return words("capacity", plan=plan, **facts)


def _format_values(outcome: Outcome) -> str:
    """Describe how far each requirement is from its limit."""
    parts = []
    for requirement, left in outcome.headroom.items():
        value = outcome.values[requirement]
        distance = f"{percent(abs(left))} {'of the limit left' if left >= 0.0 else 'beyond the limit'}"
        parts.append(f"{requirement}: {digits(value)} ({distance})" if isfinite(value) else f"{requirement}: infinite")
    if outcome.lost_share > 0.0:
        parts.append(f"{percent(outcome.lost_share)} of the requests lost")
    return "; ".join(parts)


def _format_objective(plan: DeploymentPlan, candidate: Candidate) -> str:
    """Return the number of a candidate that is to be least, with its name and unit."""
    if plan.minimised == "servers":
        return f"{candidate.servers} server{'s' * (candidate.servers != 1)}"
    return f"{objective_name(plan.objective)} {format_objective(plan.objective, plan.value(candidate))}"


def capacities_table(capacities: Capacities) -> Table:
    """Return the highest rate of every workload, network and policy."""

    def limit(row: Capacity) -> str:
        return str(row.outcome.binding) if row.rate_rps else f"missed at any rate: {_format_values(row.outcome)}"

    ends = ("low", "high")
    columns = [
        *(Column(key, key, words=True) for key in (*PLACE, "policy")),
        Column("requests/s", lambda row: row.rate_rps or "none", interval=ends, rounded=True, interval_on_terminal=True),
        Column("at its limit", limit, words=True),
    ]
    return Table("", columns, capacities.rows, id="capacities")


def candidates_table(plan: DeploymentPlan) -> Table:
    """Return the simulated candidates of a plan, and how each was judged."""

    def outcome(candidate: Candidate) -> str:
        if candidate.outcome.excess > 0.0:
            return f"missed: {candidate.outcome.binding}"
        return "keeps it" if candidate.certainty is None else f"keeps it with a probability of {percent(candidate.probability)}"

    rows = [
        (str(candidate), _format_objective(plan, candidate), _format_values(candidate.outcome), outcome(candidate))
        for candidate in plan.simulated
    ]
    heads = ("deployment", plan.minimised, "requirements", "level")
    return Table.of_texts("", heads, rows, words=4, id="candidates")


def render_plan(plan: Capacities | DeploymentPlan) -> str:
    """Return the page as text; the same plan gives the same text, and every name of the input is escaped."""
    if isinstance(plan, Capacities):
        title = f"{plan.name}: highest rate with {plan.level}"
        details = [
            Section("Figures", "figures", panels=[rate_panel(plan)]),
            Section("Policies", "policies", tables=[capacities_table(plan)]),
        ]
    else:
        title = f"{plan.name}: deployment for {digits(plan.rate_rps)} requests/s with {plan.level}"
        details = [Section("Candidates", "candidates", tables=[candidates_table(plan)])]
    doubts = [Section("Warnings", "warnings", notes=plan.warnings, style="doubts")] if plan.warnings else []
    answer = Section("Answer", "answer", text=[*describe_answer(plan), f"{plan.sources}."])
    return render_page("simnmt plan", title, [answer, *doubts, *details])


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
