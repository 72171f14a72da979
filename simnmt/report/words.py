"""Sentences of reports: templates in `words/`, filled from records of facts, the same on a terminal and on a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from simnmt.base.suggestions import format_list
from simnmt.report.page_template import significant
from simnmt.results.metrics import Assessment
from simnmt.results.number_text import digits, duration, percent, percent_interval
from simnmt.results.places import CellName
from simnmt.results.run import LiveMeasurement, Run
from simnmt.results.stability import device_names
from simnmt.results.statistics import is_tie
from simnmt.results.summary import Row, format_objective, objective_name


def words(template: str, **facts: Any) -> list[str]:
    """Return the paragraphs of the template `words/TEMPLATE.j2`; a blank line ends one, and empty ones are left out."""
    text = _environment().get_template(f"{template}.j2").render(facts)
    return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]


@cache
def _environment() -> Environment:
    # Plain text: whoever puts it on a page escapes it there.
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).resolve().parent / "words"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "digits": digits,
        "duration": duration,
        "listed": format_list,
        "objective": objective_name,
        "percent": percent,
        "change": describe_change,
        "percent_interval": percent_interval,
        "significant": significant,
    }
    return environment


def describe_change(record: Row, name: str) -> str:
    """Return a relative change of a record in percent with its sign, and its interval of `..._low` and `..._high`."""
    value, low, high = (None if record[name + end] is None else 100.0 * record[name + end] for end in ("", "_low", "_high"))
    if value is None:
        return "unknown"
    return percent(value / 100.0, signed=True) if low is None else percent_interval(value, low, high)


def verdicts(result: Run) -> list[Row]:
    """Return three texts for each cell of a run.

    `sentence`: what to deploy; `gap`: how far it is from the oracle; `reason`: why. All but the first may be empty. A live
    replay has one text on what was measured.
    """
    if result.live is not None:
        return [_live_verdict(result.summary_rows[0], result.live)]
    return [_verdict(record, result.summary_rows) for record in result.recommendations]


def _verdict(recommended: Row, rows: Sequence[Row]) -> Row:
    """Return the verdict for one recommendation: the texts of deploy.j2, gap.j2 and reason.j2, filled with the same facts."""
    cell = CellName.of(recommended)
    by_policy = {row["policy"]: row for row in rows if CellName.of(row) == cell}
    row, ends = by_policy.get(recommended["policy"]), (recommended[f"objective_value{end}"] for end in ("", "_low", "_high"))
    value, low, high = ends
    alone = " (one replication: no interval)" if low is None else ""
    # A border of lengths explains no decision of a policy that nearly always chooses alike.
    is_divided = row is not None and 0.01 <= row["offloaded_share"] <= 0.99
    facts = {
        "cell": cell,
        "recommended": recommended,  # the record of `simnmt.results.recommendation.recommend`
        "row": row,  # of the recommended policy
        "oracle": by_policy.get(recommended["oracle"]),  # its row
        "value": "" if value is None else format_objective(recommended["objective"], value, low, high, interval=True) + alone,
        "unclear": [name for name in recommended["indistinguishable"] if name not in recommended["as_good"]],
        "unstable": [
            by_policy[name]
            for name in recommended["deployable"]
            if by_policy[name].get("unstable") and name != recommended["policy"]
        ],
        "assessments": [Assessment.of_json(record) for record in recommended["slo_assessments"]],
        "tied": recommended["above_oracle"] is not None and is_tie(1.0 + recommended["above_oracle"], 1.0),
        "kept": recommended["reason"]["kept"].get(recommended["policy"], "") if is_divided else "",
    }
    parts = {"sentence": "deploy", "gap": "gap", "reason": "reason"}
    return cell._asdict() | {name: " ".join(words(template, **facts)) for name, template in parts.items()}


def _live_verdict(row: Row, live: LiveMeasurement) -> Row:
    answered = live.outcomes["done"] + live.outcomes["fallback"]
    (sentence,) = words("live", row=row, answered=answered, sent=sum(live.outcomes.values()), devices=device_names(row))
    return {**CellName.of(row)._asdict(), "sentence": sentence, "gap": "", "reason": ""}


def gap_words(gaps: Sequence[Row], rows: Sequence[Row] = ()) -> list[str]:
    """Return the sentences on the gap analysis of one cell; `rows`: of the same cell."""
    if not gaps:
        return []
    best = next(row for row in gaps if row["removed"] == "everything")
    unstable = next((row.get("unstable") for row in rows if row["policy"] == best["policy"]), None)
    return words("gaps", best=best, outcome=gap_outcome(best), unstable=unstable)


def gap_outcome(row: Row) -> str:
    """Return `faster`, `slower`, `same` or `not distinguishable` for one truth in a gap analysis."""
    low, high = (row["change_percent"] if row[key] is None else row[key] for key in ("low_percent", "high_percent"))
    if low == high == 0.0:
        return "same"
    return "faster" if high < 0.0 else "slower" if low > 0.0 else "not distinguishable"
