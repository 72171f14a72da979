"""A plan: its sentences and tables, and the page with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from statistics import mean

from simnmt.experiment.plan.capacity import INTERVAL_OVER, SURE, Capacities, Capacity
from simnmt.experiment.plan.deployment import Candidate, DeploymentPlan, describe_choice, headroom
from simnmt.report.page_template import Section, render_page
from simnmt.report.run_tables import PLACE
from simnmt.report.table import Column, Table
from simnmt.report.words import words
from simnmt.results.number_text import digits, format_interval, percent
from simnmt.results.summary import format_objective, objective_name


def describe_answer(plan: Capacities | DeploymentPlan) -> list[str]:
    """Return the answer in sentences, for the terminal and the page."""
    if isinstance(plan, DeploymentPlan):
        return words("deployment", plan=plan, choice=describe_choice, values=_format_values, objective=_objective_of(plan))
    best = plan.best
    rate, interval = format_interval(best.rate_rps, best.low, best.high, signs="minus")
    facts = {
        "best": best,
        "rate": rate,
        "interval": interval.strip("[]").replace(", ", " to "),
        "values": _list_values(best.values),
        "interval_over": INTERVAL_OVER,
        "sure": SURE,
    }
    return words("capacity", plan=plan, **facts)


def _list_values(values: Mapping[str, float]) -> str:
    return "; ".join(f"{name}: {digits(value) if isfinite(value) else 'infinite'}" for name, value in values.items())


def _format_values(candidate: Candidate) -> str:
    """Describe how far each requirement of a candidate is from its limit."""
    parts = []
    for requirement, value in candidate.values.items():
        left = headroom(requirement, value)
        distance = f"{percent(abs(left))} {'of the limit left' if left >= 0.0 else 'beyond the limit'}"
        parts.append(f"{requirement}: {digits(value)} ({distance})" if isfinite(value) else f"{requirement}: infinite")
    if candidate.excess > 0.0 and candidate.worst == "stable":
        parts.append("more work than its devices can do")
    if candidate.lost_share > 0.0:
        parts.append(f"{percent(candidate.lost_share)} of the requests lost")
    return "; ".join(parts)


def _objective_of(plan: DeploymentPlan) -> Callable[[Candidate], str]:
    """Return the function that describes what is to be least of a candidate, with its unit."""

    def describe(candidate: Candidate) -> str:
        if plan.minimised == "servers":
            return f"{candidate.servers} server{'s' * (candidate.servers != 1)}"
        return f"{objective_name(plan.objective)} {format_objective(plan.objective, mean(plan.objective_values(candidate)))}"

    return describe


def capacities_table(capacities: Capacities) -> Table:
    """Return the highest rate of every workload, network and policy."""

    def limit(row: Capacity) -> str:
        return str(row.binding) if row.binding is not None else f"missed at any rate: {_list_values(row.values)}"

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
        if candidate.excess > 0.0:
            return f"misses {candidate.worst}"
        return "keeps it" if candidate.certainty is None else f"keeps it with a probability of {percent(candidate.probability)}"

    objective = _objective_of(plan)
    rows = [(describe_choice(one), objective(one), _format_values(one), outcome(one)) for one in plan.simulated]
    heads = ("deployment", plan.minimised, "requirements", "level")
    return Table.of_texts("", heads, rows, words=4, id="candidates")


def render_plan(plan: Capacities | DeploymentPlan) -> str:
    """Return the page as text; the same plan gives the same text, and every name of the input is escaped."""
    if isinstance(plan, Capacities):
        title = f"{plan.name}: highest rate with {plan.level}"
        details = Section("Policies", "policies", tables=[capacities_table(plan)])
    else:
        title = f"{plan.name}: deployment for {digits(plan.rate_rps)} requests/s with {plan.level}"
        details = Section("Candidates", "candidates", tables=[candidates_table(plan)])
    doubts = [Section("Warnings", "warnings", notes=plan.warnings, style="doubts")] if plan.warnings else []
    answer = Section("Answer", "answer", text=[*describe_answer(plan), f"{plan.sources}."])
    return render_page("simnmt plan", title, [answer, *doubts, details])
