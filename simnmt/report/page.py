"""The page of one run, as one HTML file that opens without a network."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from simnmt.base.suggestions import format_list
from simnmt.report import pipelines
from simnmt.report.charts import packed
from simnmt.report.devices import (
    BATCH_COLUMNS,
    PLAN_COLUMNS,
    STREAM_COLUMNS,
    STREAMED_STYLE,
    batch_lines,
    batching_devices,
    boxes,
    device_table,
    most_used,
    profile_kinds,
    roles,
    streamed_devices,
)
from simnmt.report.figures import estimating_policy, figures, over_load
from simnmt.report.page_template import render_template
from simnmt.report.plane_figures import execution_means, length_means, share_explained
from simnmt.report.tables import cell_of, gap_lines, overview, policy_table, recommendation_badges, verdict_cards
from simnmt.report.typography import DASH, is_number, number, significant
from simnmt.results import Cell, RunResult
from simnmt.results.recommendation_text import gap_sentences
from simnmt.results.request_log import UNKNOWN_MISROUTES
from simnmt.results.result import doubtful_profiles
from simnmt.results.stability import busiest_device, busiest_load
from simnmt.results.summary import Row

_COLOURS = ("edge", "cloud", "oracle", "naive", "cnmt")
"""Policies with a colour of their own (`page.css`); others take the colours after these, in the order they appear."""
_ALL_COLOURS = 12
_SCRIPTS = (
    "tables.js", "page_tools.js", "page_requests.js", "page_network.js", "page_plane.js", "page_causes.js", "page_fits.js",
    "page_batches.js", "page.js",
)  # fmt: skip
_MOST_TOGETHER = 3
"""Devices whose execution times are shown in one figure before one must be chosen."""


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A paper's table beside ours, ready to be shown: what was published, what is ours, and what does not fit in the paper."""

    title: str
    columns: Sequence[str]
    """Heads of all columns, the unit in them; the first names the line."""
    rows: Sequence[Sequence[str]]
    """As many texts in each as there are columns."""
    notes: Sequence[str] = ()
    """Slips of the paper, how ours came about: one sentence each."""


def render(result: RunResult, *, published_tables: Sequence[PublishedTable] = ()) -> str:
    """The page as text, to be written as UTF-8; the same result gives the same text.

    It opens from disk without a network, and every name that came with the input is escaped.
    """
    colours = _colours(result)
    cells = {(cell.workload, cell.network): cell for cell in result.cells}
    workloads = _first_by_name((cell.workload, cell) for cell in result.cells)
    first = result.rows[0] if result.rows else {}
    batching, streaming = any(map(batching_devices, result.cells)), any(any(cell.planned) for cell in result.cells)
    return render_template(
        "page.html.j2",
        _scripts(result),
        style=pipelines.STYLE + STREAMED_STYLE if streaming else "",
        result=result,
        seed=result.seed,
        replications=first.get("replications"),
        requests=first.get("requests"),
        verdicts=verdict_cards(result, colours),
        overview=overview(result, colours),
        table=policy_table(
            result.rows, result.comparisons, colours, roles(result), recommendation_badges(result.recommendations)
        ),
        cells=cells,
        judged_by=_judged_by(result, batching, streaming),
        batching=batching,
        sections=[_section(index, cell, result, colours) for index, cell in enumerate(result.cells)],
        sweeps=[_sweep(sweep, result) for sweep in over_load(result.rows, result.load_sweeps, colours)],
        fit_groups=[
            _fit_group(index, names, cell, result) for index, (names, cell) in enumerate(_group_alike(workloads, _fitted))
        ],
        boxes=boxes,
        doubtful_profiles=doubtful_profiles(result.cells),
        profile_kinds=profile_kinds,
        lengths=_group_alike(workloads, lambda cell: (*_length_source(cell), cell.regression_slope, cell.regression_offset)),
        said=" ".join(result.notes),
        notes=_merge_notes(result.notes, [cell.workload for cell in result.cells]),
        series=_first_by_name((cell.network, cell) for cell in result.cells),
        devices=_group_alike(workloads, lambda cell: (cell.devices, cell.profile_names, cell.shown_kinds)),
        closed_loop=_closed_loop(result),
        published_tables=published_tables,
        grouped=lambda count: number(count, 0),
        significant=lambda value: significant(value, 4) if is_number(value) else DASH,
        share_explained=share_explained,
        streaming=streaming,
    )


def _scripts(result: RunResult) -> list[str]:
    """The page's scripts, the one that draws batches only where there are any."""
    batched = any(cell.batches for cell in result.cells)
    return [name for name in _SCRIPTS if batched or name != "page_batches.js"]


def _section(index: int, cell: Cell, result: RunResult, colours: dict[str, int]) -> dict[str, Any]:
    """One cell's figures: their data as JSON, and the words around them."""
    rows, gaps = _rows_of_cell(result.rows, cell), _rows_of_cell(result.gaps, cell)
    content = figures(cell, rows, gaps, len(result.cells))
    content["colours"] = [colours[policy] for policy in cell.logs]
    requests = next(iter(cell.logs.values()))["src_len"].size
    estimating = estimating_policy(cell.logs)
    spans = content["timeline"]["spans"] if content["timeline"] else []
    names = [device.name for device in cell.devices]
    busiest = busiest_device([row for row in rows if row["policy"] == (estimating or row["policy"])])
    return {
        "index": index,
        "cell": cell,
        "foreseen": _is_foreseen(cell),
        "no_misroutes": _no_misroutes(cell),
        "misrouted_of": _misrouted_of(cell, estimating),
        "packed": _packed_json(content | {"requests": requests}),
        "estimating": estimating,
        "zoomed": content["rtt"]["used"] is not None,
        "timeline": content["timeline"] is not None,
        "drained": any(len(runs) > 1 for runs in spans),
        "unstable": any(content["unstable"]),
        "policies": list(enumerate(cell.logs)),
        "shown": list(cell.logs).index(estimating) if estimating is not None else 0,
        "devices": list(enumerate(names)),
        "busiest": names.index(busiest) if busiest in names else 0,
        "device_table": device_table(cell, rows) if len(names) > 2 else [],
        "batches": batch_lines(cell, rows),
        "batch_columns": [head for _, head, _, _ in BATCH_COLUMNS],
        "batching": [(place, names[number]) for place, number in enumerate(batching_devices(cell))],
        "batches_of": most_used(cell) if cell.batches else 0,
        "streamed": streamed_devices(cell, rows),
        "stream_columns": [head for _, head, _, _ in STREAM_COLUMNS],
        "plan_columns": PLAN_COLUMNS,
        "gaps": gap_lines(gaps),
        "gap_words": gap_sentences(gaps, rows),
        "sampled": len(content["plane"]["src_len"]),
        "requests": requests,
    }


def _is_foreseen(cell: Cell) -> bool:
    """Whether decisions are judged by what an oracle foresaw, queues included."""
    return any(misroutes.foreseen for misroutes in cell.misroutes.values())


def _judged_by(result: RunResult, batching: bool, streaming: bool) -> str:
    """What the misrouted share is judged by, in a sentence under the table."""
    cells = result.cells
    known = [cell for cell in cells if cell.misroutes]
    if not known:
        return UNKNOWN_MISROUTES if cells else ""
    by_cell = {_is_foreseen(cell) for cell in known}
    queueing = any(busiest_load(row) is not None for row in result.rows)
    state = format_list(["queues"] * queueing + ["batches"] * batching + ["streamed models"] * streaming)
    foreseen = f"with the {state} of that moment, as an oracle foresees them"
    where = format_list(["requests queue"] * queueing + ["a model is streamed"] * streaming, "or")
    how = foreseen if by_cell == {True} else "" if by_cell == {False} else f"where {where} {foreseen}"
    sampled = any(
        misroutes.judged is not None and misroutes.judged < _requests(cell)
        for cell in known
        for misroutes in cell.misroutes.values()
    )
    sample = " The share is that of an even sample of the requests." if sampled else ""
    left_out = f" {UNKNOWN_MISROUTES}" if len(known) < len(cells) else ""
    comma = ", " if how else ""
    return f"A request is misrouted if another device would truly have answered it sooner{comma}{how}.{sample}{left_out}"


def _requests(cell: Cell) -> int:
    return int(next(iter(cell.logs.values()))["src_len"].size)


def _sweep(sweep: dict[str, Any], result: RunResult) -> dict[str, Any]:
    """A figure over the load with its sentences."""
    place = sweep["network"], sweep["plain"], sweep["workloads"]
    sentences = [
        record["sentence"]
        for record in result.load_sweeps
        if (record["network"], record["baseline"], [point["workload"] for point in record["points"]]) == place
    ]
    return {**sweep, "packed": _packed_json(sweep), "sentences": sentences}


def _no_misroutes(cell: Cell) -> str:
    """Why a cell has no figure of misroutes; empty where it has one."""
    if not cell.misroutes:
        return UNKNOWN_MISROUTES
    return "" if any(misroutes.count for misroutes in cell.misroutes.values()) else "No policy misrouted any judged request."


def _misrouted_of(cell: Cell, policy: str | None) -> int | str:
    """The policy whose misroutes are shown first: the estimating one if it has any, else all."""
    misroutes = cell.misroutes.get(policy or "")
    return list(cell.logs).index(policy) if policy is not None and misroutes is not None and misroutes.count else "all"


def _fitted(cell: Cell) -> tuple[Any, ...]:
    """What was fitted for a workload, and to what; that of a plane differs by its measuring noise alone."""
    devices = tuple(device.name for device in cell.devices)
    return (*_length_source(cell), cell.regression_slope, cell.regression_offset, devices, cell.profile_names, cell.shown_kinds)


def _fit_group(index: int, names: Sequence[str], cell: Cell, result: RunResult) -> dict[str, Any]:
    """What was fitted for workloads of which there is the same to say; `cell`: the first of them."""
    fits = [fit for fit in result.fits if fit["workload"] == cell.workload]
    lengths, execution = length_means(cell, fits), execution_means(cell, fits)
    devices = [device.name for device in cell.devices]
    together = len(devices) <= _MOST_TOGETHER
    return {
        "index": index,
        "names": names,
        "cell": cell,
        "pairs": None if lengths is None else sum(lengths["pairs"]),
        "devices": [("all", "all")] * together + list(enumerate(devices)),
        "shown": "all" if together else next((at for at, means in enumerate(execution) if means), 0),
        "packed": _packed_json({"devices": devices, "lengths": lengths, "execution": execution}),
    }


def _packed_json(content: dict[str, Any]) -> Markup:
    """The content of figures as it travels: JSON of a hundred kilobytes and more, which packing makes a third."""
    return Markup(packed(json.dumps(content, separators=(",", ":"), allow_nan=False).encode()))


def _rows_of_cell(rows: Sequence[Row], cell: Cell) -> list[Row]:
    """The rows of a cell."""
    return [row for row in rows if cell_of(row) == (cell.workload, cell.network)]


def _closed_loop(result: RunResult) -> list[str]:
    """Return the workloads whose arrivals depend on the answers, and so on the policy."""
    workloads = result.scenario.get("workloads", {})
    return [name for name, workload in workloads.items() if (workload.get("arrivals") or {}).get("kind") == "clients"]


def _colours(result: RunResult) -> dict[str, int]:
    """Policy -> index of its colour, the same in every table and figure."""
    names = dict.fromkeys(row["policy"] for row in result.rows) | dict.fromkeys(
        policy for cell in result.cells for policy in cell.logs
    )
    others = [name for name in names if name not in _COLOURS]
    return {name: _COLOURS.index(name) if name in _COLOURS else _further_colour(others.index(name)) for name in names}


def _further_colour(number: int) -> int:
    """The colour of a policy without one of its own, in the order they appear."""
    return len(_COLOURS) + number % (_ALL_COLOURS - len(_COLOURS))


def _first_by_name(named: Any) -> dict[str, Cell]:
    """Return the first cell of each name."""
    first_cells: dict[str, Cell] = {}
    for name, cell in named:
        first_cells.setdefault(name, cell)
    return first_cells


def _group_alike(cells: dict[str, Cell], key: Callable[[Cell], Any]) -> list[tuple[list[str], Cell]]:
    """Group the workloads whose cells have the same key, each group with its first cell."""
    groups: dict[Any, tuple[list[str], Cell]] = {}
    for name, cell in cells.items():
        groups.setdefault(key(cell), ([], cell))[0].append(name)
    return list(groups.values())


def _length_source(cell: Cell) -> tuple[str, str, str, str]:
    return cell.lengths.name, cell.lengths.source, cell.lengths.src_unit, cell.lengths.tgt_unit


def _merge_notes(notes: Sequence[str], workloads: Sequence[str]) -> list[str]:
    """Merge notes that differ only in the workloads at the front: `a: ...`, `b: ...` become `a; b: ...`."""
    places: dict[str, list[str]] = {}
    for note in notes:
        place, colon, rest = note.partition(": ")
        shared = colon and place.split(", ")[0] in workloads
        places.setdefault(rest if shared else note, []).append(place if shared else "")
    return [f"{'; '.join(dict.fromkeys(prefixes))}: {rest}" if any(prefixes) else rest for rest, prefixes in places.items()]
