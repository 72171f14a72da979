"""A plan: its sentences and tables, and the page with them."""

from __future__ import annotations

from math import isfinite

from simnmt.experiment.capacity import SURE, Capacities, Capacity
from simnmt.experiment.deployment import Candidate, DeploymentPlan
from simnmt.experiment.trial import Outcome
from simnmt.report.page_template import Section, render_page
from simnmt.report.run_tables import PLACE
from simnmt.report.table import Column, Table
from simnmt.report.words import words
from simnmt.results.number_text import digits, format_interval, percent
from simnmt.results.summary import format_objective, objective_name


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
        details = Section("Policies", "policies", tables=[capacities_table(plan)])
    else:
        title = f"{plan.name}: deployment for {digits(plan.rate_rps)} requests/s with {plan.level}"
        details = Section("Candidates", "candidates", tables=[candidates_table(plan)])
    doubts = [Section("Warnings", "warnings", notes=plan.warnings, style="doubts")] if plan.warnings else []
    answer = Section("Answer", "answer", text=[*describe_answer(plan), f"{plan.sources}."])
    return render_page("simnmt plan", title, [answer, *doubts, details])
