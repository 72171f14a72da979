"""The charts of a plan: value over limit against the rate, and candidates by objective and value."""

from __future__ import annotations

from math import exp

from simnmt.experiment.plan.capacity import Capacities
from simnmt.experiment.plan.deployment import DeploymentPlan
from simnmt.experiment.plan.messages import describe_deployment
from simnmt.report.charts import SYMBOLS, Axis, Chart, Mark, bar_chart, bar_series, plain, series_colour, short

SHOWN = 4.0
"""Greatest ratio of a value to its limit that is drawn; greater ones, of overloads, are drawn there."""


def rate_chart(capacities: Capacities, workload: str, network: str) -> Chart:
    """Draw the worst value over its limit against the rate, one point for each simulated run."""
    marks = []
    rows = [row for row in capacities.rows if (row.workload, row.network) == (workload, network)]
    for place, row in enumerate(rows):
        points = sorted(row.points)
        marks.append(
            Mark(
                "points",
                [rate_rps for rate_rps, _ in points],
                [min(ratio, SHOWN) for _, ratio in points],
                short(row.policy, 40),
                series_colour(place),
                symbol=SYMBOLS[place % len(SYMBOLS)],
                hover="%{y:.3~g} of the limit at %{x:,.4~g} requests/s",
            )
        )
    rates = [rate_rps for row in rows for rate_rps, _ in row.points]
    marks.append(limit_mark([min(rates), max(rates)]))
    return Chart(marks, Axis("requests per second"), Axis("worst value over its limit", from_zero=True))


def limit_mark(x: list[float]) -> Mark:
    """Return the line at the limit."""
    return Mark("line", x, [1.0, 1.0], "limit", "ink", "dash", 1.4, hover="")


def capacity_chart(capacities: Capacities) -> Chart:
    """Draw the highest rate of every workload, network and policy with its interval."""
    several = len({(row.workload, row.network) for row in capacities.rows}) > 1
    names = [f"{row.policy}, {row.workload} on {row.network}" if several else row.policy for row in capacities.rows]
    series = bar_series(
        "",
        [row.rate_rps for row in capacities.rows],
        [row.low for row in capacities.rows],
        [row.high for row in capacities.rows],
    )
    return bar_chart(names, "requests per second", [series])


def candidates_chart(plan: DeploymentPlan) -> Chart:
    """Draw every simulated candidate by its objective and by its worst value over the limit."""
    groups: dict[str, list[tuple[float, float, str]]] = {"the choice": [], "the runner-up": [], "kept": [], "out": []}
    for described, rejected in plan.judged:
        name = "out" if rejected else "kept"
        name = "the runner-up" if plan.runner_up is not None and described.choice == plan.runner_up.choice else name
        name = "the choice" if plan.choice is not None and described.choice == plan.choice.choice else name
        x = float(described.servers) if plan.objective.is_exact else plan.objective.per_si_unit * described.objective
        groups[name].append((x, min(exp(described.excess), SHOWN), plain(describe_deployment(described))))
    marks = [
        Mark(
            "points",
            [x for x, _, _ in points],
            [y for _, y, _ in points],
            name,
            series_colour(place),
            symbol=SYMBOLS[place],
            size=11.0 if place < 2 else 7.0,
            text=[text for _, _, text in points],
            hover="%{text}: %{y:.3~g} of the limit",
        )
        for place, (name, points) in enumerate(groups.items())
        if points
    ]
    drawn = [x for points in groups.values() for x, _, _ in points]
    if drawn:
        marks.append(limit_mark([min(drawn), max(drawn)]))
    unit = f", {plan.objective.unit}" if plan.objective.unit else ""
    message = "" if drawn else "no candidate was simulated"
    x_axis, y_axis = Axis(f"{plan.objective.what}{unit}"), Axis("worst value over its limit", from_zero=True)
    return Chart(marks, x_axis, y_axis, message=message)
