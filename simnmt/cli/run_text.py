"""The text of a run on a terminal: the policies to deploy with the reasons, and the tables of its page."""

from __future__ import annotations

from collections.abc import Sequence

from simnmt.report.run_tables import energy_table, gaps_table, policies_table, recommendations_table
from simnmt.report.table import Table
from simnmt.report.words import gap_words, verdicts
from simnmt.results.run import Run, format_sources
from simnmt.results.statistics import prediction_sentences
from simnmt.results.summary import by_cell, warm_up_notes

MOST_IN_SENTENCES = 4
"""Most cells whose recommendations are printed as sentences; more cells become a table."""


def format_result(result: Run) -> str:
    """Return the text of a run: the policy to deploy with its reasons, then the table of all policies."""
    one = result.summary_rows[0]
    repeats = "one replication" if one["replications"] == 1 else f"means of {one['replications']} replications"
    policies = policies_table(result)
    parts = [
        [f"{result.name}: {one['requests']:,} requests each, {repeats}", *_sources(result), *result.scope],
        *_recommendations(result),
        [
            policies.to_text(),
            *["< recommended"] * any(map(policies.chosen, policies.rows)),
            policies.note,
            *warm_up_notes(result.summary_rows),
        ],
        _predictions(result),
        _lines(energy_table(result.summary_rows)),
        *_gaps(result),
        _missed_deadlines(result),
    ]
    return "\n\n".join("\n".join(filter(None, lines)) for lines in parts if lines)


def _lines(table: Table | None) -> list[str]:
    """Return the text of a table with what stands below it."""
    return [] if table is None else list(filter(None, (table.to_text(), table.note)))


def _recommendations(result: Run) -> list[list[str]]:
    """Return the lines on the policy to deploy, by workload and network."""
    if len(result.recommendations) > MOST_IN_SENTENCES:
        return [_lines(recommendations_table(result.recommendations))]
    parts = ("sentence", "gap", "reason")
    return [[verdict[part] for part in parts if verdict[part]] for verdict in verdicts(result)]


def _predictions(result: Run) -> list[str]:
    """Return the prediction intervals of every policy; empty if no profiles were drawn."""
    lines = [
        f"{row['workload']} on {row['network']}, {row['policy']}: {'; '.join(sentences)}"
        for row in result.summary_rows
        if (sentences := prediction_sentences(row))
    ]
    uncertainty = result.scenario.get("profile_uncertainty") or {}
    share = f" of {100 * uncertainty['confidence']:g} %" if "confidence" in uncertainty else ""
    return [f"Prediction intervals{share} (calibration and replications):", *lines] if lines else []


def _gaps(result: Run) -> list[list[str]]:
    rows = by_cell(result.summary_rows)
    return [[*_lines(gaps_table(gaps)), *gap_words(gaps, rows[place])] for place, gaps in by_cell(result.gaps).items()]


def _missed_deadlines(result: Run) -> list[str]:
    """Return how often each streaming device missed its deadline, as a range over policies and networks."""
    deadlines_s: dict[str, list[float]] = {}
    for cell in result.cells:
        for device, planned in zip(cell.devices, cell.planned, strict=False):
            if planned is not None:
                deadlines_s[device.name] = [planned.deadline_s, *(change.deadline_s for change in planned.changes)]
    lines = []
    for name, limits_s in deadlines_s.items():
        limits = ", then ".join(f"{1e3 * limit_s:g}" for limit_s in dict.fromkeys(limits_s))
        shares = [100 * row[key] for row in result.summary_rows if row.get(key := f"{name}_missed_share") is not None]
        if shares:
            ends = " to ".join(dict.fromkeys(f"{end:.1f}" for end in (min(shares), max(shares))))
            lines.append(f"{name}: {ends} % of what it executed missed the deadline of {limits} ms")
    return lines


def _sources(result: Run) -> Sequence[str]:
    """Return the kinds of the device profiles and the round trips of a run."""
    devices = [
        (kind, device.name) for cell in result.cells for kind, device in zip(cell.shown_kinds, cell.devices, strict=True)
    ]
    series = [(cell.series.kind, cell.series.name) for cell in result.cells]
    return [format_sources(devices, series)] if result.cells else []
