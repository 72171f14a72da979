"""The pages of several runs, as tables, figures and texts for the terminal too: a comparison, a sweep, a plan."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from math import inf, isfinite
from typing import Any

from simnmt.base.errors import shorten
from simnmt.base.suggestions import format_list
from simnmt.experiment.capacity import SURE, Capacities, Capacity
from simnmt.experiment.deployment import Candidate, DeploymentPlan
from simnmt.experiment.trial import Outcome
from simnmt.report.charts import SYMBOLS, Axis, Chart, Control, Mark, Panel, beside, plain, series_colour, short
from simnmt.report.figures import policy_line
from simnmt.report.page import colours_of
from simnmt.report.page_template import Section, render_page
from simnmt.report.run_tables import format_best
from simnmt.report.table import Column, Table, change, estimate, group_columns, share
from simnmt.report.words import words
from simnmt.results.comparison import NOTHING, Comparison, describe_value
from simnmt.results.metrics import OF_QUALITY, unanswered_share
from simnmt.results.number_text import digits, format_interval, percent
from simnmt.results.places import BEHIND, CellName, by_cell, wholes
from simnmt.results.statistics import is_tie
from simnmt.results.summary import Row, format_objective, objective_name
from simnmt.results.sweep_table import BEST, BOUND, EQUAL, POINT, TABLE, TIED, UNSTABLE, SweepTable

MOST_CHARACTERS = 400
"""Most characters of the value of a key."""
MOST_ROWS = 500
"""Most points in the page's table; the Parquet table has all."""
MOST_CASES = 48
"""Most choices of place and of values of the keys that a figure does not show."""
MOST_METRICS = 10
LOG_FROM = 10.0
"""Ratio of the greatest to the least value from which an axis is logarithmic."""
GAIN = "over_fixed_percent"
"""Column with the change of the objective against the best policy that sends every request to one device."""


def differences_table(comparison: Comparison, most: int | None = None) -> Table:
    """Return the keys of the scenarios that differ; `most`: characters of a value, None for any number."""
    rows = [
        (row["key"], *(shorten(text, most or len(text)) for name in comparison.names if (text := describe_value(row[name]))))
        for row in comparison.scenario_differences
    ]
    return Table.of_texts("", ["key", *comparison.names], rows, words=len(comparison.names) + 1, id="keys")


def changes_table(comparison: Comparison) -> Table:
    """Return the change of the mean latency of each policy against the first run."""
    several = len(comparison.names) > 2
    first, second = comparison.names[0], "" if several else f"{comparison.names[1]} "

    def milliseconds(key: str) -> Callable[[Row], str]:
        return lambda row: digits(1e3 * row[key])

    rows = [row | {"unstable": row["unstable_in"], "because": "; ".join(row["unpaired_because"])} for row in comparison.changes]
    columns = [
        Column("policy", "policy", words=True),
        Column(f"{first} ms", milliseconds("baseline_latency_s"), key="baseline_ms"),
        Column(f"{second}ms", milliseconds("mean_latency_s"), key="ms"),
        change("change %", lambda row: row, key="change_percent", interval_on_terminal=True),
        Column("how", lambda row: "paired" if row["paired"] else "unpaired", small="because", key="how"),
        Column("effect", "effect"),
    ]
    if several:
        columns.insert(1, Column("run", "run", words=True))
    note = "\n".join(words("changes", first=first, unstable=any(row["unstable"] for row in rows)))
    return Table(f"Change of the mean latency against {first}", columns, rows, note, id="changes", groups=CellName._fields)


def best_table(comparison: Comparison) -> Table:
    """Return the best policy of each run."""
    keys = [column.key for column in group_columns(CellName._fields, comparison.best)]
    by_run_of_cells = {cell: {row["run"]: row for row in of_cell} for cell, of_cell in by_cell(comparison.best).items()}
    rows = [
        (*(getattr(cell, key) for key in keys), *(_describe_best(by_run.get(name)) for name in comparison.names))
        for cell, by_run in by_run_of_cells.items()
    ]
    return Table.of_texts("Best policy", [*keys, *comparison.names], rows, words=len(comparison.names) + len(keys), id="best")


def _describe_best(record: Row | None) -> str:
    if record is None or record["policy"] is None:
        return ""
    return f"{record['policy']}, {objective_name(record['objective'])} {format_best(record) or 'unstable'}"


def render_comparison(comparison: Comparison) -> str:
    """Return the page as text; the same comparison gives the same text, and every name of the input is escaped."""
    heads = ("run", "directory", "seed", "replications", "requests", "latencies")
    runs = [
        (*(str(run[head] or "") for head in heads[:-1]), "measured live" if run["live"] else "simulated")
        for run in comparison.runs
    ]
    changed = bool(comparison.changes)
    sections = [
        Section("Runs", "runs", tables=[Table.of_texts("", heads, runs, words=2)], notes=comparison.notes),
        Section("Keys of the scenarios that differ", "keys", tables=[differences_table(comparison, MOST_CHARACTERS)])
        if comparison.scenario_differences
        else Section("Keys of the scenarios that differ", "keys", text=["The scenarios do not differ."]),
        Section(
            f"Changes against {comparison.names[0]}",
            "changes",
            text=[] if changed else [f"The runs have {NOTHING}."],
            panels=[change_panel(comparison)] if changed else [],
            tables=[changes_table(comparison)] if changed else [],
        ),
        *([Section("Best policy of each run", "best", tables=[best_table(comparison)])] if comparison.best else []),
    ]
    return render_page("simnmt compare", comparison.title, sections)


def change_panel(comparison: Comparison) -> Panel:
    """Return the figure of the changes: a row for each policy of a cell, a point with whiskers for each run."""
    cells = by_cell(comparison.changes)
    control = Control("place", "Workload and network", [(str(at), str(cell)) for at, cell in enumerate(cells)])
    return Panel(
        "changes",
        "Change of the mean latency",
        f"Change of the mean latency of each policy against {comparison.names[0]}, percent, with 95 % intervals",
        lambda at: _change_chart([*cells.values()][int(at)], comparison.names[1:]),
        [control],
        caption="Left of zero a run is faster. Whiskers are 95 % intervals over replications.",
        across=True,
    )


def _change_chart(rows: Sequence[Row], runs: Sequence[str]) -> Chart:
    """Draw a row for each policy of one cell; the order of `runs`, all after the first, gives the colours."""
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    marks = []
    for place, name in enumerate(runs):
        of_run = [row for row in rows if row["run"] == name]
        x, low, high = ([row[f"{key}_percent"] for row in of_run] for key in ("change", "low", "high"))
        y = [policies.index(row["policy"]) + beside(place, len(runs)) for row in of_run]
        look: dict[str, Any] = {"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 9.0, "level": True, "hover": "%{x:+.3~g} %"}
        marks.append(Mark("points", x, y, short(name, 40), series_colour(place), low=low, high=high, **look))
    ticks = {float(place): short(policy, 20) for place, policy in enumerate(policies)}
    change_axis = Axis(f"change of the mean latency against {short(rows[0]['baseline'], 40)}, %", zero_line=True)
    return Chart(marks, change_axis, Axis(ticks=ticks, span=(len(policies) - 0.5, -0.5)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _format_swept(value: Any) -> str:
    return f"{value:.6g}" if _is_number(value) else str(value)


def _short_key(key: str) -> str:
    return ".".join(key.split(".")[-2:])


def _cases(table: SweepTable, shown: str) -> dict[str, list[Row]]:
    """Return the first cases of a figure over one key: rows by cell and the values of the other keys."""
    cases: dict[str, list[Row]] = {}
    for row in table.rows:
        values = [f"{_short_key(key)} {_format_swept(row[key])}" for key in table.keys if key != shown]
        cases.setdefault(", ".join([str(CellName.of(row)), *values]), []).append(row)
    return dict(list(cases.items())[:MOST_CASES])


def _scale(table: SweepTable, key: str) -> tuple[Axis, dict[str, float]]:
    """Return the axis of a key, and the place of each of its values: numbers by size, others as they come."""
    values = {json.dumps(row[key]): row[key] for row in table.rows}
    title = plain(_short_key(key))
    if all(map(_is_number, values.values())):
        return Axis(title), {text: float(value) for text, value in values.items()}
    ticks = {float(place): short(_format_swept(value), 20) for place, value in enumerate(values.values())}
    return Axis(title, ticks=ticks, span=(-0.5, len(values) - 0.5)), dict(zip(values, ticks, strict=True))


def response_panel(table: SweepTable, number: int, key: str) -> Panel:
    """Return the metrics of every policy over one swept key."""
    (across, places), cases = _scale(table, key), _cases(table, key)
    # That of the objective comes first; latencies have their unit in the name.
    ordered = sorted(table.metrics, key=lambda one: (one.name != table.objective, one.name not in OF_QUALITY))[:MOST_METRICS]
    titles = {known.name: known.name if known.unit in ("ms", "") else f"{known.name}, {known.unit}" for known in ordered}
    units = {known.name: plain(known.unit) for known in ordered}
    scored = any(known.name in OF_QUALITY for known in ordered)
    intervals = f"with 95 % intervals over replications{', of chrF and BLEU over sentences' if scored else ''}"

    def draw(metric: str, case: str) -> Chart:
        rows, marks = list(cases.values())[int(case)], []
        for policy, colour in colours_of(row["policy"] for row in table.rows).items():
            stable = [row for row in rows if row["policy"] == policy and row.get(metric) is not None and not row["unstable"]]
            stable.sort(key=lambda row: places[json.dumps(row[key])])
            values, low, high = ([row[f"{metric}{end}"] for row in stable] for end in ("", "_low", "_high"))
            look: dict[str, Any] = {"symbol": "circle", "size": 5.0, "hover": f"%{{y:,.4~g}} {units[metric]} at %{{x}}"}
            at = [places[json.dumps(row[key])] for row in stable]
            marks.append(policy_line(policy, colour, at, values, low=low, high=high, **look))
        unstable = sorted({row["policy"] for row in rows if row["unstable"]})
        reading = f"Left out where unstable: {plain(format_list(unstable))}." if unstable else ""
        shown = [value for mark in marks for value in mark.y]
        log = bool(shown) and 0.0 < LOG_FROM * min(shown) < max(shown)
        # An interval that reaches far must not flatten the lines.
        span = (min(shown) / 1.3, max(shown) * 1.3) if log else None
        up = Axis(plain(titles[metric]), log=log, span=span, from_zero=True)
        return Chart(marks, across, up, reading, message="" if shown else "no point has a steady value")

    return Panel(
        f"response-{number}",
        f"Response over {_short_key(key)}",
        f"Metric of each policy over {key}, {intervals}",
        draw,
        [
            Control("metric", "Metric", list(titles.items())),
            Control("case", "Of", [(str(place), name) for place, name in enumerate(cases)]),
        ],
        caption=f"Every policy over {key}, {intervals}.",
        across=True,
    )


def render_sweep(table: SweepTable) -> str:
    """Return the page as text; the same table gives the same text, and every name of the input is escaped."""
    panels = [response_panel(table, number, key) for number, key in enumerate(table.keys) if table.rows]
    first = table.rows[0] if table.rows else {}
    counts = [(name, first.get(name)) for name in ("replications", "requests") if name not in table.keys]
    facts = [
        ("points", f"{len({row[POINT] for row in table.rows}):,}"),
        ("swept keys", ", ".join(table.keys)),
        *((name, f"{count:,}") for name, count in counts if count is not None),
        ("seed", str(table.seed)),
        ("objective", table.objective),
    ]
    failed = []
    if table.failed:
        failed.append(f"{table.failed} points failed and are missing here; `failed.json` has their errors.")
    sections = [Section("Sweep", "sweep", text=failed, facts=facts)]
    if panels:
        sections.append(Section("Response over the keys", "response", panels=panels))
    sections.append(Section("Best policy of each point", "points", tables=[points_table(table)]))
    if (front := front_table(table)).rows:
        sections.append(Section("Quality and its price", "front", tables=[front]))
    return render_page("simnmt sweep", table.name, sections)


def _swept_column(key: str) -> Column:
    return Column(_short_key(key), lambda row: _format_swept(row[key]))


_OF_DEPLOYMENT = re.compile(r"((sites|workloads)\..+\.)?(devices|policies|quality)\.")


def front_table(table: SweepTable) -> Table:
    """Return the Pareto fronts of the objective and chrF; no rows without quality.

    A front is of one cell and one value of each key that no deployment chooses, such as a rate. Policies that are unstable,
    or answer fewer requests than another, are on none, as they are not recommended.
    """
    conditions = [key for key in table.keys if not _OF_DEPLOYMENT.match(key)]
    groups, front = dict[tuple[str, ...], list[Row]](), list[Row]()
    for cell, of_cell in wholes(table.rows).items():
        for row in of_cell:
            is_known = row.get("chrf") is not None and row.get(table.objective) is not None
            if is_known and row["standing"] not in (BOUND, UNSTABLE):
                groups.setdefault((str(cell), *(json.dumps(row[key]) for key in conditions)), []).append(row)
    for (place, *_), rows in groups.items():
        best, fewest = -inf, min(map(unanswered_share, rows))
        for row in sorted(rows, key=lambda row: (row[table.objective], -row["chrf"])):
            if row["chrf"] > best and is_tie(unanswered_share(row), fewest):
                best = row["chrf"]
                front.append(row | {"place": place})
    colours = colours_of(row["policy"] for row in table.rows)
    columns = [
        Column("point", POINT, digits=0),
        *map(_swept_column, table.keys),
        Column("workload and network", "place", words=True),
        Column("policy", "policy", colour=lambda row: f"policy-{colours[row['policy']]}", words=True),
        estimate(table.objective, table.objective),
        estimate("chrF", "chrf"),
    ]
    scope = format_list(["workload", "network", *(f"value of {_short_key(key)}" for key in conditions)], "and")
    note = (
        f"The Pareto front of each {scope}: no other policy and deployment there has both a lower value and a higher chrF. "
        "Left out are policies that are unstable or answer fewer requests than another. Intervals of chrF are over sentences."
    )
    return Table("", columns, front[:MOST_ROWS], note, id="front")


def points_table(table: SweepTable) -> Table:
    """Return the best policy of each point in each cell."""
    colours = colours_of(row["policy"] for row in table.rows)
    cells: dict[tuple[int, CellName], list[Row]] = {}
    for row in itertools.chain.from_iterable(wholes(table.rows).values()):
        cells.setdefault((row[POINT], CellName.of(row)), []).append(row)
    rows = [_point_row(table.keys, of_cell) for of_cell in cells.values()]

    def colour(row: Row) -> str:
        return f"policy-{colours[row['best']]}" if row["best"] in colours else ""

    gain = (f"{GAIN}_low", f"{GAIN}_high")
    columns = [
        Column("point", POINT, digits=0),
        *map(_swept_column, table.keys),
        Column("workload and network", "place", words=True),
        Column("best policy", "best", colour=colour, words=True),
        estimate(table.objective, table.objective),
        Column("against the best fixed policy, %", GAIN, signed=True, interval=gain, rounded=True, on_terminal=False),
        Column("as good", "equal", words=True, on_terminal=False),
        Column("not distinguishable from", "tied", words=True, on_terminal=False),
    ]
    if has_caches(table):
        columns.insert(-3, share("cached %", "hit_share"))
    scored = any(row.get("chrf") is not None for row in table.rows)
    if scored:
        columns.insert(-3, estimate("chrF", "chrf"))
    note = "\n".join(words("points", more=len(rows) - MOST_ROWS, table=TABLE, scored=scored))
    return Table("", columns, rows[:MOST_ROWS], note, id="points")


def has_caches(table: SweepTable) -> bool:
    """Return whether a cache stands before the decisions at some point."""
    return any(row.get("hit_share") is not None for row in table.rows)


def _point_row(keys: Sequence[str], rows: Sequence[Row]) -> Row:
    """Return the row of a point's best policy, with the swept values and the policies that are as good."""
    by_standing: dict[str, list[str]] = {}
    for row in rows:
        by_standing.setdefault(row["standing"], []).append(row["policy"])
    nothing = "no policy that can be deployed" if [*by_standing] == [BOUND] else "every policy is unstable"
    (best,) = by_standing.get(BEST, [nothing])
    numbers = next((row for row in rows if row["standing"] == BEST), {})
    return numbers | {
        **{key: rows[0][key] for key in (POINT, *keys)},
        "place": str(CellName.of(rows[0])),
        "best": best,
        "equal": ", ".join(by_standing.get(EQUAL, ())),
        "tied": ", ".join(by_standing.get(TIED, ())),
    }


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


MOST_CHECKS = 6
"""Most requirements, by site and workload, whose values are shown."""


def _format_values(outcome: Outcome) -> str:
    parts, headroom = [], outcome.headroom
    if len(headroom) > MOST_CHECKS:  # of many sites, those that are nearest to their limits
        headroom = dict(sorted(headroom.items(), key=lambda pair: pair[1])[:MOST_CHECKS])
    for check, left in headroom.items():
        value = outcome.values[check]
        distance = f"{percent(abs(left))} {'of the limit left' if left >= 0.0 else 'beyond the limit'}"
        parts.append(f"{check}: {digits(value)} ({distance})" if isfinite(value) else f"{check}: infinite")
    if more := len(outcome.values) - len(headroom):
        parts.append(f"{more} more are further from their limits")
    if outcome.lost_share > 0.0:
        parts.append(f"{percent(outcome.lost_share)} of the requests not answered")
    return "; ".join(parts)


def _format_objective(plan: DeploymentPlan, candidate: Candidate) -> str:
    if plan.minimised == "servers":
        return f"{candidate.servers} server{'s' * (candidate.servers != 1)}"
    return f"{objective_name(plan.objective)} {format_objective(plan.objective, plan.value(candidate))}"


def capacities_table(capacities: Capacities) -> Table:
    """Return the highest rate of every place."""

    def limit(row: Capacity) -> str:
        return str(row.outcome.binding) if row.rate_rps else f"missed at any rate: {_format_values(row.outcome)}"

    ends = ("low", "high")
    columns = [
        *group_columns(CellName._fields, capacities.rows),
        Column("policy", "policy", words=True),
        Column("requests/s", lambda row: row.rate_rps or "none", interval=ends, rounded=True, interval_on_terminal=True),
        *([Column("times the rates", "factor")] if any(row.factor is not None for row in capacities.rows) else []),
        Column("at its limit", limit, words=True),
    ]
    return Table("", columns, capacities.rows, id="capacities")


def candidates_table(plan: DeploymentPlan) -> Table:
    """Return the simulated candidates of a plan, and how each was judged."""

    def outcome(candidate: Candidate) -> str:
        if candidate.outcome.excess > 0.0:
            return f"missed: {candidate.outcome.binding}"
        return "keeps it" if candidate.certainty is None else f"keeps it with a probability of {percent(candidate.probability)}"

    def apart(candidate: Candidate) -> list[str]:
        by_site = dict(candidate.boxes_by_site)
        behind = by_site.pop(BEHIND, None)
        return [] if behind is None else [", ".join(f"{name} {boxes}" for name, boxes in by_site.items()), str(behind)]

    rows = [
        (
            str(candidate),
            _format_objective(plan, candidate),
            *apart(candidate),
            _format_values(candidate.outcome),
            outcome(candidate),
        )
        for candidate in plan.candidates
        if candidate.trials
    ]
    boxes = ("boxes at sites", "boxes behind") if plan.scenario.sites else ()
    heads = ("deployment", plan.minimised, *boxes, "requirements", "level")
    return Table.of_texts("", heads, rows, words=len(heads), id="candidates")


def render_plan(plan: Capacities | DeploymentPlan) -> str:
    """Return the page as text; the same plan gives the same text, and every name of the input is escaped."""
    if isinstance(plan, Capacities):
        title = f"{plan.name}: highest rate with {plan.level}"
        details = Section("Policies", "policies", tables=[capacities_table(plan)])
    else:
        title = f"{plan.name}: deployment for {digits(plan.rate_rps)} requests/s{plan.characters} with {plan.level}"
        details = Section("Candidates", "candidates", tables=[candidates_table(plan)])
    doubts = [Section("Warnings", "warnings", notes=plan.warnings, style="doubts")] if plan.warnings else []
    answer = Section("Answer", "answer", text=[*describe_answer(plan), f"{plan.sources}."])
    return render_page("simnmt plan", title, [answer, *doubts, details])
