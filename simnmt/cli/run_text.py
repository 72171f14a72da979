"""The text of a run on a terminal: the policies to deploy with the reasons, and the tables of its page."""

from __future__ import annotations

from collections.abc import Iterator

from simnmt.report.run_tables import energy_table, gaps_table, parts_tables, policies_table, recommendations_table, sources_of
from simnmt.report.table import Table
from simnmt.report.words import gap_words, verdicts
from simnmt.results.places import CellName, by_cell, wholes
from simnmt.results.run import Run
from simnmt.results.statistics import prediction_sentences
from simnmt.results.summary import warm_up_notes

MOST_OF_PARTS = 60
"""Most rows that are printed of a table by site or by workload; the page has all."""
MOST_IN_SENTENCES = 4
"""Most cells whose recommendations are printed as sentences; more cells become a table."""


def format_result(result: Run) -> str:
    """Return the text of a run: the policy to deploy with its reasons, then the table of all policies."""
    return "\n\n".join("\n".join(filter(None, lines)) for lines in _parts(result) if lines)


def _parts(result: Run) -> Iterator[list[str]]:
    one = result.whole_rows[0]
    repeats = "one replication" if one["replications"] == 1 else f"means of {one['replications']} replications"
    sources = [sources_of(result.cells)] if result.cells else []
    yield [f"{result.name}: {one['requests']:,} requests each, {repeats}", *sources, *result.scope]
    if len(result.recommendations) > MOST_IN_SENTENCES:
        yield _lines(recommendations_table(result.recommendations))
    else:
        yield from ([verdict[part] for part in ("sentence", "gap", "reason")] for verdict in verdicts(result))
    policies = policies_table(result)
    marked = "< recommended" if any(map(policies.chosen, policies.rows)) else ""
    yield [policies.to_text(), marked, policies.note, *warm_up_notes(result.summary_rows)]
    for table in (table for world in wholes(result.summary_rows) for table in parts_tables(result, world)):
        more = len(table.rows) - MOST_OF_PARTS
        yield [table.to_text(most=MOST_OF_PARTS), f"and {more:,} more (the page and --json have all)" if more > 0 else ""]
    predictions = [
        f"{CellName.of(row)}, {row['policy']}: {'; '.join(sentences)}"
        for row in result.summary_rows
        if (sentences := prediction_sentences(row))
    ]
    if predictions:
        confidence = (result.scenario.get("profile_uncertainty") or {}).get("confidence")
        share = "" if confidence is None else f" of {100 * confidence:g} %"
        yield [f"Prediction intervals{share} (calibration and replications):", *predictions]
    yield _lines(energy_table(result.whole_rows))
    rows = by_cell(result.whole_rows)
    yield from ([*_lines(gaps_table(gaps)), *gap_words(gaps, rows[place])] for place, gaps in by_cell(result.gaps).items())
    yield list(_missed_deadlines(result))


def _lines(table: Table | None) -> list[str]:
    """Return the text of a table with what stands below it."""
    return [] if table is None else [table.to_text(), table.note]


def _missed_deadlines(result: Run) -> Iterator[str]:
    """Yield how often each streaming device missed its deadline, as a range over policies and networks."""
    planned = {
        device.name: plan for cell in result.cells for device, plan in zip(cell.devices, cell.planned, strict=False) if plan
    }
    for name, plan in planned.items():
        limits_s = dict.fromkeys([plan.deadline_s, *(change.deadline_s for change in plan.changes)])
        shares = [100 * row[key] for row in result.summary_rows if row.get(key := f"{name}_missed_share") is not None]
        if shares:
            ends = " to ".join(dict.fromkeys(f"{end:.1f}" for end in (min(shares), max(shares))))
            limits = ", then ".join(f"{1e3 * limit_s:g}" for limit_s in limits_s)
            yield f"{name}: {ends} % of what it executed missed the deadline of {limits} ms"
