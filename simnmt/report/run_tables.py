"""The tables of a run, on the terminal and on the page: policies, recommendations, causes of loss, devices, energy, fits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from simnmt.base.suggestions import format_list
from simnmt.report.page_template import is_number, significant
from simnmt.report.table import Column, Table, change, estimate, group_columns, latency, read_value, share
from simnmt.report.words import gap_outcome, words
from simnmt.results import Cell, Run
from simnmt.results.device_accounts import HEADS, PlannedDevice, PlannedState
from simnmt.results.metrics import OF_DOCUMENTS
from simnmt.results.number_text import digits
from simnmt.results.places import CellName, Place, by_world, class_of
from simnmt.results.recommendation import by_objective
from simnmt.results.run import format_sources
from simnmt.results.stability import LOAD_SUFFIX, device_names, is_overloaded
from simnmt.results.summary import Device, Row, format_objective, objective_name

ALWAYS = ("p50", "p90", "p95", "p99", "p999")
"""Percentiles of every run; those beside them are shown, since somebody asked for them."""


def policies_table(result: Run, colours: Mapping[str, int] | None = None) -> Table:
    """Return the table of all policies, the best of each cell first. `colours`: of the policies on the page."""
    changes = {(Place.of(row), row["baseline"]): row for row in result.comparisons}
    badges = recommendation_badges(result.recommendations)
    bounds = {record["oracle"] for record in result.recommendations}
    rows = []
    for row in by_objective(result.whole_rows, result.recommendations):
        key = Place.of(row)
        rows.append(_steady(row) | {"key": key, "about": badges.get(key, "")})

    def vs(name: str) -> Column:
        # A bound is not bad to miss.
        style = {"outcome": None} if name in bounds else {}
        return change(f"vs {name} %", lambda row: changes.get((row["key"], name)), key=f"change_vs_{name}", **style)

    compared = {row["baseline"] for row in result.comparisons}
    columns = [
        _policy_column(colours, small="about"),
        estimate("total s", "total_latency_s", mark=lambda row: "*" * bool(row.get("unstable"))),
        *_latency_columns(result),
        *_share_columns(rows),
        *_quality_columns(rows),
        *(vs(name) for name in dict.fromkeys(row["policy"] for row in result.whole_rows) if name in compared),
    ]
    return Table(
        "",
        columns,
        rows,
        "\n".join(words("policies", **_policies_facts(result))),
        id="policies",
        groups=CellName._fields,
        remarks={cell.name: _origin(cell) for cell in result.cells},
        chosen=lambda row: badges.get(row["key"]) == "recommended",
    )


def _policy_column(colours: Mapping[str, int] | None, **style: Any) -> Column:
    return Column(
        "policy", "policy", colour=lambda row: f"policy-{colours[row['policy']]}" if colours else "", words=True, **style
    )


def _mean_column(**style: Any) -> Column:
    return latency("mean ms", "mean_latency_s", outcome=lambda row: "unstable" if row.get("unstable") else "", **style)


def _policies_facts(result: Run) -> Row:
    rows = result.whole_rows
    limits_s = {row["good_within_s"] for row in rows if row.get("good_within_s") is not None}
    judged = {CellName.of(row) for row in rows if row.get("misrouted_share") is not None}
    unknown = [cell for cell in result.cells if cell.name not in judged]
    return {
        "compared": bool(result.comparisons) and rows[0]["replications"] > 1,
        "unclear": any(row["effect"] == "not distinguishable" for row in result.comparisons),
        "unstable": any(row.get("unstable") for row in rows),
        "goodput": "" if not limits_s else f"{1e3 * limits_s.pop():g} ms" if len(limits_s) == 1 else "the workload's deadline",
        "misrouted": bool(judged),
        "quality": any("chrf" in row for row in rows),
        "unknown": bool(unknown),
        "unknown_since": _no_misroutes(result, unknown),
    }


def _no_misroutes(result: Run, unknown: Sequence[Cell]) -> str:
    """Return why misroutes are not known in some cells; empty if nothing says so."""
    if any(cell.planned and not cell.batches for cell in unknown):
        return "set foresee_misroutes: true to see them, which costs as much as an oracle for every policy"
    reasons = {
        "live, only the device that was taken has known times": result.live is not None,
        "sentences that come later join batches": any(cell.batches for cell in unknown),
        "waits for the memory of models are not foreseen": any("model_loads" in row for row in result.whole_rows),
        "with classes, requests that come later may overtake": any("class" in row for row in result.whole_rows),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _steady(row: Row) -> Row:
    if not row.get("unstable"):
        return row
    ends = ("_latency_s", *(f"_{sample}_s" for sample in OF_DOCUMENTS))
    latencies = [key for key in row if key.endswith(ends) and key != "total_latency_s"]
    return row | dict.fromkeys([*latencies, "mean_queue_s"]) | {"mean_latency_s": "unstable"}


def _latency_columns(result: Run) -> list[Column]:
    first = result.whole_rows[0]
    keys = [key.removesuffix("_latency_s") for key in first if re.fullmatch(r"p\d{2,3}_latency_s", key)]
    objectives = [record["objective"] for record in result.recommendations]
    asked = [key for key in keys if key not in ALWAYS or key in objectives]
    columns = [_mean_column(small=_below_mean)]
    for name in dict.fromkeys(("p50", "p95", "p99", *asked)):
        key = f"{name}_latency_s"
        columns.append(latency(f"{name[:3]}.{name[3:]}".rstrip(".") + " ms", key, small=partial(_predicted, key)))
    if any(is_number(row.get("mean_queue_s")) and row["mean_queue_s"] > 0 for row in result.whole_rows):
        columns.append(latency("waiting ms", "mean_queue_s", on_terminal=False))
    return [*columns, *_document_columns(result.whole_rows)]


def _document_columns(rows: Sequence[Row]) -> list[Column]:
    """Return columns for the latencies of documents; none if no workload has documents."""
    if not any("mean_document_s" in row for row in rows):
        return []
    first = latency("first sentence ms", "mean_first_sentence_s", on_terminal=False)
    return [latency("document ms", "mean_document_s"), latency("document p95 ms", "p95_document_s"), first]


def _quality_columns(rows: Sequence[Row]) -> list[Column]:
    """Return columns for the quality of the translations; none if it is unknown."""
    if not any("chrf" in row for row in rows):
        return []
    return [estimate("chrF", "chrf", interval_on_terminal=True), estimate("BLEU", "bleu", on_terminal=False)]


def _below_mean(row: Row) -> str:
    return row.get("unstable") or _predicted("mean_latency_s", row)


def _predicted(key: str, row: Row) -> str:
    low, high = (row.get(f"{key}_predicted_{end}") for end in ("low", "high"))
    if low is None or high is None or row.get("unstable"):
        return ""
    return f"predicted [{digits(1e3 * low)}, {digits(1e3 * high)}]"


def _share_columns(rows: Sequence[Row]) -> list[Column]:
    """Return columns for shares of the requests, goodput and loads; those without any number are left out."""
    columns = [
        share("offloaded %", "offloaded_share"),
        share("misrouted %", "misrouted_share"),
        share("cached %", "hit_share"),
        share("lost %", "lost_share", 2),
        share("refused %", "refused_share", 2),
        share("given up %", "gave_up_share", 2),
        share("fell back %", "fallback_share", 2),
        share("in deadline %", "deadline_met_share", on_terminal=False),
    ]
    if any(row.get("good_within_s") is not None for row in rows):
        columns.append(estimate("goodput /s", "goodput_rps"))
    columns += _device_columns(rows)
    optional = ("lost_share", "refused_share", "gave_up_share", "fallback_share")
    return [
        column
        for column in columns
        if any(is_number(value := read_value(row, column.value)) and (column.value not in optional or value) for row in rows)
    ]


def _device_columns(rows: Sequence[Row]) -> list[Column]:
    """Return a column for the load of each device's busiest box; of more than two devices, also for their requests."""
    names = device_names(rows[0])

    def column(name: str) -> Column:
        def overloaded(row: Row) -> str:
            return "overloaded" if is_overloaded(row, name) else ""

        if len(names) <= 2:
            behind = name != names[0]
            return Column(f"{name} load", name + LOAD_SUFFIX, 2, small=overloaded, outcome=overloaded, on_terminal=behind)

        def load(row: Row) -> str:
            value = row[name + LOAD_SUFFIX]
            return f"load {value:.2f}" if is_number(value) else ""

        return Column(f"{name} %", f"{name}_share", 1, scale=100.0, small=load, outcome=overloaded, on_terminal=False)

    return [column(name) for name in names]


PARTS = {"site": "By site", "workload": "By workload", "class": "By class"}
"""Keys by which the requests of a mix are divided, with the titles of their tables."""


def parts_tables(result: Run, world: CellName, colours: Mapping[str, int] | None = None) -> Iterator[Table]:
    """Yield the numbers of each policy at each site, and for each workload, of a mix; nothing for another world."""
    cells = by_world(result.summary_rows)[world]
    recommended = next((record for record in result.recommendations if CellName.of(record) == world), {})
    kept = {Place.of(part): part["slo_met"] for part in recommended.get("parts", ())}

    def level(row: Row) -> str:
        met = kept.get(Place.of(row))
        return "" if met is None else "kept" if met else "missed"

    for key, title in PARTS.items():
        divided = [cell for cell in cells if cell != world and _divided_by(cell, world) == key]
        rows = [row for cell in divided for row in cells[cell]]
        if not rows:
            continue
        columns = [
            _policy_column(colours),
            _mean_column(),
            *(latency(f"{name} ms", f"{name}_latency_s") for name in ("p50", "p95", "p99")),
            share("offloaded %", "offloaded_share"),
            latency("waiting ms", "mean_queue_s"),
            *_document_columns(rows),
            *_quality_columns(rows),
        ]
        if any(map(level, rows)):
            columns.append(Column("level", level, words=True))
        yield Table(
            f"{title}, {world}",
            columns,
            [_steady(row) for row in rows],
            id=f"by-{key}",
            groups=(key,),
            chosen=lambda row: row["policy"] == recommended.get("policy"),
        )


def _divided_by(cell: CellName, world: CellName) -> str:
    """Return the key by which a part of a world is one."""
    return "site" if cell.site != world.site else "workload" if class_of(cell.workload) is None else "class"


def _origin(cell: Cell) -> str:
    lengths = dict.fromkeys(part.lengths.name for part in cell.inputs)
    return f"{sources_of([cell])}; lengths from {format_list(lengths, 'and')}"


def sources_of(cells: Iterable[Cell]) -> str:
    """Return a line on the kinds of the device profiles and of the round trips of some cells."""
    inputs = [part for cell in cells for part in cell.inputs]
    devices = [(kind, device.name) for part in inputs for kind, device in zip(part.shown_kinds, part.devices, strict=True)]
    return format_sources(devices, [(part.series.kind, part.series.name) for part in inputs])


def recommendation_badges(recommendations: Sequence[Row]) -> dict[Place, str]:
    """Return the badges of policies in the table, by place."""
    badges = {}
    for record in recommendations:
        cell, policy = CellName.of(record), record["policy"]
        if policy is None or record["unstable"]:
            continue
        badges[Place(*cell, policy)] = "recommended"
        badges |= {Place(*cell, name): f"not distinguishable from {policy}" for name in record["indistinguishable"]}
        badges |= {Place(*cell, name): "answers fewer requests" for name in record["lost_shares"] if name != policy}
        badges |= {Place(*cell, name): f"as good as {policy}" for name in record["as_good"]}
        badges |= {Place(*cell, name): "misses the service level" for name in record["slo_missed_by"] if name != policy}
    return badges


def recommendations_table(recommendations: Sequence[Row], colours: Mapping[str, int] | None = None) -> Table:
    """Return the policy to deploy in each cell, with its paired change against the runner-up."""

    def policy(record: Row) -> str:
        return (record["policy"] or "") + "*" * bool(record["unstable"]) + "!" * (record["slo_met"] is False)

    def unclear(record: Row) -> str:
        return ", ".join(name for name in record["indistinguishable"] if name not in record["as_good"])

    margin = ("margin_low", "margin_high")
    columns = [
        *group_columns(CellName._fields, recommendations),
        Column("deploy", policy, colour=lambda row: f"policy-{colours[row['policy']]}" if colours and row["policy"] else "",
               words=True),
        Column("not distinguishable", unclear, words=True),
        Column("as good", lambda record: ", ".join(record["as_good"]), words=True),
        Column(objective_name(recommendations[0]["objective"]), format_best),
        Column("change %", "margin", scale=100.0, signed=True, interval=margin, rounded=True, interval_on_terminal=True),
        Column("against", "runner_up"),
    ]  # fmt: skip
    notes = ["The policy to deploy, with its paired change against the runner-up."]
    notes += ["* unstable, as every deployable policy is there."] * any(record["unstable"] for record in recommendations)
    notes += ["! misses the service level."] * any(record["slo_met"] is False for record in recommendations)
    return Table("", columns, recommendations, "\n".join(notes), id="recommendations")


def format_best(record: Row) -> str:
    """Return the objective's value of a recommendation."""
    value, low, high = (record[f"objective_value{end}"] for end in ("", "_low", "_high"))
    return "" if value is None else format_objective(record["objective"], value, low, high)


def gaps_table(gaps: Sequence[Row]) -> Table:
    """Return the causes of loss of one cell; shares are those of a gap that is beyond chance."""
    shared = any(row["removed"] == "everything" and gap_outcome(row) == "faster" for row in gaps)
    ends = ("low_percent", "high_percent")
    columns = [
        Column(f"{gaps[0]['policy']} without its", "removed", words=True),
        estimate("total s", "total_latency_s"),
        Column(
            "change %",
            "change_percent",
            signed=True,
            interval=ends,
            rounded=True,
            interval_on_terminal=True,
            outcome=gap_outcome,
        ),
        Column("share of the gap %", lambda row: row["share_of_gap_percent"] if shared else None, digits=0),
    ]
    return Table(f"What wrong beliefs cost, {CellName.of(gaps[0])}", columns, gaps, id="gaps")


def _small(key: str, form: str, scale: float = 1.0) -> Any:
    return lambda row: form.format(significant(scale * row[key])) if is_number(row.get(key)) else ""


BATCH_COLUMNS = (
    Column("policy", "policy", small="device", words=True),
    Column("mean batch", "mean_batch"),
    share("full, % of steps", "full_share"),
    share("below 8, % of steps", "below_8_share"),
    share("padding, % of source tokens", "padding_share"),
    share("busy, % of the time", "busy_share"),
    Column("waiting, ms", "mean_queue_s", scale=1e3),
    Column("to the first token, ms", "first_token_mean_s", scale=1e3, small=_small("first_token_p95_s", "p95 {}", 1e3)),
    Column("sentences/s", "sentences_per_s", small=_small("busy_sentences_per_s", "{} while busy")),
    Column("tokens/s", "tokens_per_s", small=_small("busy_tokens_per_s", "{} while busy")),
)
MODEL_COLUMNS = (
    Column("policy", "policy", small="device", words=True),
    Column("loads", "model_loads", digits=0),
    share("misses, % of requests", "miss_share"),
    share("that waited for a load, %", "delayed_share"),
    Column("mean wait for a load, ms", "mean_load_wait_s", scale=1e3),
)
STREAM_COLUMNS = (
    Column("policy", "policy", words=True),
    share("found cold, %", "cold_share"),
    Column("cold, ms", "cold_mean_s", scale=1e3),
    Column("first turn, ms", "first_turn_mean_s", scale=1e3),
    Column("later turns, ms", "later_turn_mean_s", scale=1e3),
    share("stalled, % of the execution", "stall_share"),
    share("after the deadline, %", "missed_share"),
    Column("lost by a cold one, ms", "cold_decision_regret_s", scale=1e3),
    Column("read for a request, MB", "read_mean_bytes", scale=1e-6),
    Column("in the buffer, MB", "mean_buffer_bytes", scale=1e-6, small=_small("peak_buffer_bytes", "peak {}", 1e-6)),
    Column("at most with what is read, MB", "peak_shard_bytes", scale=1e-6),
    share("computing, % of the time", "compute_busy_share"),
    share("disk busy, % of the time", "disk_busy_share"),
)


def _device_rows(rows: Sequence[Row], used: Iterable[tuple[str, str]]) -> list[Row]:
    """Return the numbers of each device under each policy, (device, policy), by their keys without the device's name."""
    by_policy = {row["policy"]: row for row in rows}
    return [
        {"device": device, "policy": policy}
        | {
            key.removeprefix(f"{device}_"): value
            for key, value in by_policy.get(policy, {}).items()
            if key.startswith(f"{device}_")
        }
        for device, policy in used
    ]


def batch_table(cell: Cell, rows: Sequence[Row]) -> Table | None:
    """Return the numbers of each batching device under each policy that used it; None without any. `rows`: of the cell."""
    used = [
        (device.name, policy)
        for place, device in enumerate(cell.devices)
        for policy in cell.logs
        if (accounts := cell.batches.get(policy)) and (account := accounts[place]) is not None and account.sentences
    ]
    note = (
        "Means over replications. Sentences and tokens a second are those of the whole run; below them, of the time in which "
        "the device worked."
    )
    return Table("Batches, per policy", BATCH_COLUMNS, _device_rows(rows, used), note, id="batches") if used else None


def model_table(cell: Cell, rows: Sequence[Row]) -> Table | None:
    """Return the loads of models at each device under each policy that used it; None without any. `rows`: of the cell."""
    used = [
        (device.name, row["policy"])
        for device in cell.devices
        for row in rows
        if row.get(f"{device.name}_miss_share") is not None
    ]
    note = "Means over replications. A request misses if its model is not in memory and is loaded for it."
    return Table("Models, per policy", MODEL_COLUMNS, _device_rows(rows, used), note, id="models") if used else None


def stream_table(cell: Cell, rows: Sequence[Row], device: str) -> Table:
    """Return what a device streamed, under each policy that used it. `rows`: of the cell."""
    used = [(device, policy) for policy, name, account in cell.accounts("streams") if name == device and account.requests.any()]
    foreseen = any(row.get(f"{device}_cold_decision_regret_s") is not None for row in rows)
    basis = "as an oracle foresaw both" if foreseen else "not known in this run (foresee_misroutes)"
    note = (
        "Means over replications; times are executions, stalls included. A cold request loses what it takes longer than at "
        f"the best device: {basis}."
    )
    return Table(f"What the {device} streamed, per policy", STREAM_COLUMNS, _device_rows(rows, used), note, id="streams")


def plans_table(device: str, planned: PlannedDevice) -> Table:
    """Return the plans of a streamed model by how much of it is in memory when a request comes."""
    states = [(state.name, state) for state in planned.states]
    states += [(f"{state.name}, from {change.at_s:,.0f} s on", state) for change in planned.changes for state in change.states]

    def bits(row: tuple[str, PlannedState]) -> str:
        return ", ".join(f"{count} of {width}" for width, count in row[1].bits)

    columns = [
        Column("plan", lambda row: row[0], words=True),
        Column("reads, MB", lambda row: row[1].read_bytes, scale=1e-6),
        Column("held before, MB", lambda row: row[1].held_bytes, scale=1e-6),
        Column("shards by bits", bits),
        Column("predicted, ms", lambda row: row[1].latency_s, scale=1e3),
        Column("of it stalled, ms", lambda row: row[1].stall_s, scale=1e3),
    ]
    return Table(f"Plans of the {device}", columns, states, id="plans")


def boxes(device: Device) -> str:
    """Return the number of boxes and of workers in each; empty for one box with one worker."""
    parts = [f"{device.servers:,} boxes"] * (device.servers > 1) + [f"{device.workers:,} workers"] * (device.workers > 1)
    return " of ".join(parts)


def energy_table(rows: Sequence[Row]) -> Table | None:
    """Return energy and money of every policy; None without powers and prices. Columns without any number are left out."""
    columns = [Column(head, key, significant=3) for key, head in HEADS.items() if any(row.get(key) is not None for row in rows)]
    title = "Energy and money, modelled, per request and target token"
    note = "Powers and prices times simulated times, means over replications; requests share evenly what is drawn at all times."
    name = Column("policy", "policy", words=True)
    return Table(title, [name, *columns], rows, note, id="energy", groups=CellName._fields) if columns else None


def fits_table(fits: Sequence[Row]) -> Table:
    """Return how well the beliefs of the policies fit."""

    def error(row: Row) -> str:
        if "pairs_mse" in row:
            return f"{significant(row['pairs_mse'])} tokens²"
        return f"{significant(row['mse_ms2'])} ms²" if "mse_ms2" in row else "the profile's own plane, not fitted again"

    columns = [
        *group_columns(("site", "workload"), fits),
        Column("fit", "of", small="kind", words=True),
        Column("samples", "samples", digits=0),
        Column("R²", lambda row: share_explained(row.get("pairs_r2", row.get("r2")))),
        Column("mean squared error", error),
    ]
    return Table("How well the fits hold", columns, fits, id="fits")


def share_explained(r2: Any) -> str:
    """Return R² with three decimals; an imperfect fit never shows as 1."""
    if not is_number(r2):
        return "-"
    return "> 0.999" if 0.9995 <= r2 < 1.0 else f"{r2:.3f}"
