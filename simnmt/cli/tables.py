"""Texts of `simnmt run`: recommendations, table of policies, and gap analysis, in milliseconds and percent."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from simnmt.base.suggestions import format_list
from simnmt.base.text_tables import format_table
from simnmt.results.metrics import SPENDINGS
from simnmt.results.number_text import digits, format_interval, format_number
from simnmt.results.prediction import prediction_sentences
from simnmt.results.recommendation import by_objective
from simnmt.results.recommendation_text import gap_sentences, is_gap
from simnmt.results.result import RunResult, format_sources
from simnmt.results.stability import worst_overload
from simnmt.results.summary import Row, format_objective, objective_column, objective_name
from simnmt.results.warm_up import warm_up_notes


def format_result(result: RunResult) -> str:
    """Return the text of a run: the policy to deploy with its reasons, then the table of all policies."""
    one = result.summary_rows[0]
    repeats = "one replication" if one["replications"] == 1 else f"means of {one['replications']} replications"
    lines = [f"{result.name}: {one['requests']:,} requests each, {repeats}"]
    lines += [_sources(result)] * bool(result.cells) + result.scope + [""]
    lines += [sweep["sentence"] for sweep in result.load_sweeps] + [""] * bool(result.load_sweeps)
    lines += _recommendations(result)
    lines += ["", *_policies(result)]
    lines += warm_up_notes(result.summary_rows, by_rule=result.scenario.get("warm_up") == "mser5")
    lines += _predictions(result)
    lines += _energy(result)
    lines += _gaps(result)
    lines += _missed_deadlines(result)
    return "\n".join(lines)


def _objective(record: Row) -> str:
    if record["objective_value"] is None:
        return "-"
    if record["objective"] in SPENDINGS:
        return format_objective(record["objective"], record["objective_value"])
    return format_number(record, "objective_value", 1e3)


MOST_IN_SENTENCES = 4
"""Most cells whose recommendations are printed as sentences; more cells become a table."""


def _recommendations(result: RunResult) -> list[str]:
    """Return the lines on the policy to deploy, by workload and network."""
    if len(result.recommendations) <= MOST_IN_SENTENCES:
        parts = ("sentence", "service_level", "caution", "gap", "reason", "triviality", "variants")
        texts = [[verdict[part] for part in parts if verdict.get(part)] for verdict in result.verdicts]
        return [line for number, of_cell in enumerate(texts) for line in ([""] * bool(number) + of_cell)]
    what = objective_name(result.recommendations[0]["objective"])
    spends = result.recommendations[0]["objective"] in SPENDINGS
    header = [
        "workload",
        "network",
        "deploy",
        "not distinguishable",
        what if spends else f"{what} ms",
        "change %",
        "95 % interval",
        "against",
    ]
    header += ["above oracle %"]
    rows = [
        [
            record["workload"],
            record["network"],
            (record["policy"] or "-") + ("*" if record["unstable"] else "") + ("!" if record["slo_met"] is False else ""),
            ", ".join(record["indistinguishable"]) or "-",
            _objective(record),
            *_relative_change(record, "margin"),
            record["runner_up"] or "-",
            _relative_change(record, "above_oracle")[0],
        ]
        for record in result.recommendations
    ]
    lines = ["The policy to deploy, with its paired change against the runner-up:"]
    lines += [format_table(header, rows, 4)]
    lines += ["* unstable, as every deployable policy is there"] * any(record["unstable"] for record in result.recommendations)
    lines += ["! misses the service level"] * any(record["slo_met"] is False for record in result.recommendations)
    lines += dict.fromkeys(verdict["caution"] for verdict in result.verdicts if verdict["caution"])
    return lines + _reasons(result.verdicts)


def _reasons(verdicts: Sequence[Row]) -> list[str]:
    """Return the reasons of the recommendations of many cells, one line for all cells with the same reason."""
    by_reason: dict[str, list[str]] = {}
    for verdict in verdicts:
        by_reason.setdefault(verdict["short_reason"], []).append(f"{verdict['workload']} on {verdict['network']}")
    named = {reason: format_list(cells, most=MOST_IN_SENTENCES) for reason, cells in by_reason.items() if reason}
    if len(named) == 1 and len(by_reason) == 1:
        return [f"The reason everywhere: {reason}." for reason in named]
    return ["The reasons, in full in summary.json (verdicts):"] * bool(named) + [
        f"{cells}: {reason}" for reason, cells in named.items()
    ]


ENERGY_COLUMNS = {
    "mean_energy_j": "J",
    "mean_static_j": "static J",
    "mean_dynamic_j": "executing J",
    "mean_transfer_j": "links J",
    "energy_j_per_thousand_tokens": "J/1000 tokens",
    "energy_j_per_million_characters": "J/million chars",
    "mean_cost": "money",
    "cost_per_thousand_tokens": "money/1000 tokens",
    "cost_per_million_characters": "money/million chars",
}
"""Keys of the summary with their heads; columns without any number are left out."""


def _energy(result: RunResult) -> list[str]:
    """Return the table of energy and money; empty without powers and prices."""
    columns = [key for key in ENERGY_COLUMNS if any(row.get(key) is not None for row in result.summary_rows)]
    if not columns:
        return []
    places = ("workload", "network", "policy")
    rows = [
        [*(row[place] for place in places), *("-" if row.get(key) is None else digits(row[key]) for key in columns)]
        for row in result.summary_rows
    ]
    about = "Energy and money, modelled, per request, target token and source character (notes in summary.json):"
    return ["", about, format_table([*places, *(ENERGY_COLUMNS[key] for key in columns)], rows, 3)]


def _format_scaled(value: float | None, factor: float, form: str) -> str:
    return "-" if value is None else f"{factor * value:{form}}"


FAULTS = {"lost_share": "lost %", "fallback_share": "fell back %"}
"""Columns of the table of policies that are shown only if such requests exist, by their keys."""


def _policies(result: RunResult) -> list[str]:
    """Return the table of all policies with the meaning of its marks; the best one of each workload and network is first."""
    named = {row["baseline"] for row in result.comparisons}
    baselines = [name for name in dict.fromkeys(row["policy"] for row in result.summary_rows) if name in named]
    # Energy and money have a table of their own.
    further = sorted({record["objective"] for record in result.recommendations}.difference(SHOWN_LATENCIES, SPENDINGS))
    latencies = (*SHOWN_LATENCIES, *further)
    header = ["workload", "network", "policy", "total s", *(f"{name} ms" for name in latencies), "offloaded %"]
    misrouted = any(row["misrouted_share"] is not None for row in result.summary_rows)
    faults = {key: head for key, head in FAULTS.items() if any(row.get(key) for row in result.summary_rows)}
    limits_s = {row["good_within_s"] for row in result.summary_rows if row.get("good_within_s") is not None}
    header += ["misrouted %"] * misrouted + list(faults.values()) + ["goodput /s"] * bool(limits_s)
    header += [f"vs {name} %" for name in baselines]
    changes = {(row["workload"], row["network"], row["policy"], row["baseline"]): row for row in result.comparisons}
    best = {(record["workload"], record["network"], record["policy"]) for record in result.recommendations}
    rows = []
    for row in by_objective(result.summary_rows, result.recommendations):
        key = (row["workload"], row["network"], row["policy"])
        policy = f"{row['policy']} <" if key in best and not row.get("unstable") else row["policy"]
        cells = [
            *key[:2],
            policy,
            *_latency_cells(row, latencies),
            f"{100 * row['offloaded_share']:.1f}",
            *[_format_scaled(row["misrouted_share"], 100.0, ".1f")] * misrouted,
            *(_format_scaled(row.get(key), 100.0, ".3g") for key in faults),
            *([format_number(row, "goodput_rps")] if limits_s else []),
        ]
        rows.append(cells + [_change_cell(changes.get((*key, name))) for name in baselines])
    recommended = [number for number, cells in enumerate(rows) if cells[2].endswith(" <")]
    lines = [format_table(header, rows, 3, bold=recommended), ""]
    lines += [] if misrouted else textwrap.wrap(result.unknown_misroutes, 100)
    lines += ["< recommended"] * bool(recommended)
    if limits_s:
        within = f"{1e3 * limits_s.pop():g} ms" if len(limits_s) == 1 else "the deadline of the workload"
        lines += [f"goodput: answers within {within}, a second"]
    if baselines and result.summary_rows[0]["replications"] > 1:
        lines += ["vs: change of the total time, the ratio of the means over the replications"]
    if any(row["verdict"] == "not distinguishable" for row in result.comparisons):
        lines += ["~ not distinguishable: the 95 % interval of the paired difference contains 0"]
    if any(row.get("unstable") for row in result.summary_rows):
        lines += ["* with an unstable policy: a number of this run, which depends on how long it lasts"]
    return lines if lines[-1] else lines[:-1]


def _predictions(result: RunResult) -> list[str]:
    """Return the prediction intervals of every policy; empty if no profiles were drawn."""
    lines = [
        f"{row['workload']} on {row['network']}, {row['policy']}: {'; '.join(sentences)}"
        for row in result.summary_rows
        if (sentences := prediction_sentences(row))
    ]
    uncertainty = result.scenario.get("profile_uncertainty") or {}
    share = f" of {100 * uncertainty['confidence']:g} %" if "confidence" in uncertainty else ""
    return ["", f"Prediction intervals{share} (calibration and replications):", *lines] if lines else []


def _missed_deadlines(result: RunResult) -> list[str]:
    """Return how often each streaming device missed its deadline, as a range over policies and networks."""
    deadlines_s = {
        device.name: list(dict.fromkeys([planned.deadline_s, *(change.deadline_s for change in planned.changes)]))
        for cell in result.cells
        for device, planned in zip(cell.devices, cell.planned, strict=False)
        if planned is not None
    }
    lines = []
    for name, deadline_s in deadlines_s.items():
        which = f"deadline{'s' * (len(deadline_s) > 1)} of {', then '.join(f'{1e3 * limit_s:g}' for limit_s in deadline_s)} ms"
        shares = [100 * row[key] for row in result.summary_rows if row.get(key := f"{name}_missed_share") is not None]
        if shares:
            ends = f"{min(shares):.1f}" if max(shares) - min(shares) < 0.05 else f"{min(shares):.1f} to {max(shares):.1f}"
            lines.append(f"{name}: {ends} % of what it executed missed the {which}")
    return lines


def _sources(result: RunResult) -> str:
    """Return the kinds of the device profiles and the round trips of a run."""
    devices = [
        (kind, device.name) for cell in result.cells for device, kind in zip(cell.devices, cell.shown_kinds, strict=True)
    ]
    return format_sources(devices, [(cell.series.kind, cell.series.name) for cell in result.cells])


SHOWN_LATENCIES = ("mean", "p50", "p95", "p99")
"""Latencies that the table always has; an objective beside them has a column of its own."""


def _latency_cells(row: dict[str, Any], latencies: Sequence[str]) -> list[str]:
    """Return total, mean and quantiles; where there is no steady state, the run's total and which device is overloaded."""
    overload = worst_overload(row)
    if overload is not None:
        partly = f" in {overload.replications} of {overload.of}" if overload.replications < overload.of else ""
        unstable = f"unstable ({overload.device} {overload.load:.2f}{partly})"
        return [f"{format_number(row, 'total_latency_s')}*", unstable, *[""] * (len(latencies) - 1)]
    shown = (format_number(row, objective_column(name), 1e3) for name in latencies)
    return [format_number(row, "total_latency_s"), *shown]


def _change_cell(comparison: dict[str, Any] | None) -> str:
    if comparison is None:
        return "-"
    mark = "~" if comparison["verdict"] == "not distinguishable" else ""
    return f"{mark}{_change_and_interval(comparison)[0]}{'*' if comparison.get('unstable') else ''}"


def _change_and_interval(row: Row) -> tuple[str, str]:
    return _interval(row["change_percent"], row["low_percent"], row["high_percent"])


def _interval(change: float, low: float | None, high: float | None) -> tuple[str, str]:
    text, interval = format_interval(change, low, high)
    return text, interval or "-"


def _relative_change(record: Row, name: str) -> tuple[str, str]:
    """Return a relative change of a recommendation and its interval as texts, percent; dashes where it is not known."""
    if record[name] is None:
        return "-", "-"
    low, high = (None if record[f"{name}_{end}"] is None else 100.0 * record[f"{name}_{end}"] for end in ("low", "high"))
    return _interval(100.0 * record[name], low, high)


def _gaps(result: RunResult) -> list[str]:
    """Return the gap analysis of every workload and network: a table and sentences."""
    lines: list[str] = []
    for place in dict.fromkeys((row["workload"], row["network"]) for row in result.gaps):
        here = [row for row in result.gaps if (row["workload"], row["network"]) == place]
        beside = [row for row in result.summary_rows if (row["workload"], row["network"]) == place]
        shared = is_gap(here)
        rows = [
            [
                row["removed"],
                format_number(row, "total_latency_s"),
                *_change_and_interval(row),
                f"{row['share_of_gap_percent']:.0f}" if shared and row["share_of_gap_percent"] is not None else "-",
            ]
            for row in here
        ]
        header = [f"{here[0]['policy']} without its", "total s", "change %", "95 % interval", "share of the gap %"]
        lines += [
            "",
            f"What wrong beliefs cost, {place[0]} on {place[1]}:",
            format_table(header, rows, 1),
            *gap_sentences(here, beside),
        ]
    return lines
