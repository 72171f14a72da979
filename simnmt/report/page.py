"""The page of one run: one HTML file that opens without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from simnmt.base.suggestions import format_list
from simnmt.report import figures
from simnmt.report.charts import POLICY_COLOURS, Panel, pack
from simnmt.report.devices import (
    BATCH_COLUMNS,
    PLAN_COLUMNS,
    STREAM_COLUMNS,
    batch_lines,
    batch_panels,
    batching_devices,
    boxes,
    device_table,
    profile_kinds,
    roles,
    streamed_devices,
)
from simnmt.report.energy_tables import DEVICE_HEADS, energy_tables
from simnmt.report.figures import CellView
from simnmt.report.load_figures import LoadSweep, group_sweeps, over_load
from simnmt.report.page_template import render_template
from simnmt.report.plane_figures import execution, lengths, misrouted, plane, share_explained
from simnmt.report.tables import cell_of, gap_lines, overview, policy_table, recommendation_badges, verdict_cards
from simnmt.report.typography import DASH, is_number, number, significant
from simnmt.results import Cell, FinishedRun, RecordedCell, RunResult
from simnmt.results.recommendation import by_objective
from simnmt.results.recommendation_text import gap_sentences
from simnmt.results.request_log import UNKNOWN_MISROUTES
from simnmt.results.result import MOST_DRAWN, doubtful_profiles
from simnmt.results.stability import busiest_load
from simnmt.results.summary import Row, by_cell

ViewedCell = TypeVar("ViewedCell", bound=RecordedCell)
_COLOURS = ("edge", "cloud", "oracle", "naive", "cnmt")
"""Policies with fixed colours (`page.css`); other policies take the next colours in order of appearance."""


def render(result: RunResult) -> str:
    """Return the page as text, to be written as UTF-8; the same result gives the same text.

    It opens from disk without a network, and every name that came with the input is escaped.
    """
    result = replace(result, cells=result.drawn_cells, notes=[*result.notes, *_sampling(result)])
    colours = policy_colours(result)
    cells = {(cell.workload, cell.network): cell for cell in result.cells}
    workloads = _first_by_name((cell.workload, cell) for cell in result.cells)
    first = result.summary_rows[0] if result.summary_rows else {}
    batching, streaming = any(map(batching_devices, result.cells)), any(any(cell.planned) for cell in result.cells)
    return render_template(
        "page.html.j2",
        ("tables.js", "charts.js") if result.cells or result.load_sweeps else ("tables.js",),
        result=result,
        seed=result.seed,
        replications=first.get("replications"),
        requests=first.get("requests"),
        warm_up=max((row.get("warm_up_requests") or 0.0 for row in result.summary_rows), default=0.0),
        verdicts=verdict_cards(result, colours),
        overview=overview(result, colours),
        table=policy_table(
            by_objective(result.summary_rows, result.recommendations),
            result.comparisons,
            colours,
            roles(result),
            recommendation_badges(result.recommendations),
        ),
        cells=cells,
        judged_by=_judged_by(result, batching, streaming),
        batching=batching,
        sections=[_section(index, cell, result) for index, cell in enumerate(result.cells)],
        sweeps=[
            {"id": f"load-{index}", "sweep": sweep, "panel": panel, "packed": pack([panel])}
            for index, (sweep, panel) in enumerate(sweep_panels(result))
        ],
        fit_groups=[_fit_group(index, *group, result) for index, group in enumerate(_group_alike(workloads, _fitted))],
        boxes=boxes,
        doubtful_profiles=doubtful_profiles(result.cells),
        profile_kinds=profile_kinds,
        length_groups=_group_alike(workloads, _fitted_line),
        said=" ".join(result.notes),
        notes=_merge_notes(result.notes, [cell.workload for cell in result.cells]),
        series=_first_by_name((cell.network, cell) for cell in result.cells),
        devices=_group_alike(workloads, lambda cell: (cell.devices, cell.profile_names, cell.shown_kinds)),
        closed_loop=_closed_loop(result),
        grouped=lambda count: number(count, 0),
        significant=lambda value: significant(value, 4) if is_number(value) else DASH,
        share_explained=share_explained,
        streaming=streaming,
        batch_columns=[head for _, head, _, _ in BATCH_COLUMNS],
        stream_columns=[head for _, head, _, _ in STREAM_COLUMNS],
        plan_columns=PLAN_COLUMNS,
        energy_device_heads=DEVICE_HEADS,
    )


def _sampling(result: RunResult) -> list[str]:
    """Return the sentences that figures show a sample, or not all requests, if they do."""
    most = max((log.requests for cell in result.cells for log in cell.logs.values()), default=0)
    sampled = [f"Figures over single requests show an even sample of at most {MOST_DRAWN:,}."] if most > MOST_DRAWN else []
    loses = any(row.get("lost_share") for row in result.summary_rows)
    return sampled + ["Figures over single requests show those that every policy answered."] * loses


def cell_panels(view: CellView[Cell]) -> list[Panel]:
    """Return the figures of one workload on one network for which there is something to show, in the order of the page."""
    wrong = misrouted(view)
    over_lengths = [figures.rtt(view), plane(view), *([wrong] if wrong is not None else [])]
    return [*_latency_panels(view), *over_lengths, *_loss_panels(view)]


def _latency_panels(view: CellView[RecordedCell]) -> list[Panel]:
    queues = any(row.get("offered_rps") is not None for row in view.rows)
    timelines = [figures.timeline(view)] if queues else []
    return [figures.latency(view), figures.parts(view), *timelines, figures.shares(view)]


def _loss_panels(view: CellView[RecordedCell]) -> list[Panel]:
    gaps = [figures.gaps(view)] if any(row["removed"] != "nothing" for row in view.gaps) else []
    return [*gaps, *batch_panels(view)]


NOT_RECORDED = ("rtt", "plane", "misroutes", "lengths", "execution")
"""Figures that need the inputs or the truth of a run, which its directory does not hold."""


def run_panels(result: FinishedRun, cell: RecordedCell) -> list[Panel]:
    """Return the figures of a cell of `drawn_cells` and its network: all of a run just made, else all but `NOT_RECORDED`."""
    sweeps = [panel for sweep, panel in sweep_panels(result) if sweep.network == cell.network]
    if isinstance(cell, Cell):
        return [*cell_panels(view_of(result, cell)), *fit_panels(cell, result.fits, cell.workload), *sweeps]
    view = view_of(result, cell)
    return [*_latency_panels(view), *_loss_panels(view), *sweeps]


def fit_panels(cell: Cell, fits: Sequence[Row], name: str) -> list[Panel]:
    """Return the figures of what was fitted for a workload; `fits`: of all workloads, `name`: in the figures' descriptions."""
    own_fits = [fit for fit in fits if fit["workload"] == cell.workload]
    return [lengths(cell, own_fits, name), execution(cell, own_fits, name, CellView(cell, [], [], {}).device_colour)]


def sweep_panels(result: FinishedRun) -> list[tuple[LoadSweep, Panel]]:
    """Return the sweeps over load, each with its figure."""
    colours = policy_colours(result)
    return [(sweep, over_load(sweep, result.summary_rows, colours)) for sweep in group_sweeps(result.load_sweeps)]


def view_of(result: FinishedRun, cell: ViewedCell) -> CellView[ViewedCell]:
    """Return a cell with its rows and the colours of the policies."""
    rows, gaps = _rows_of_cell(result.summary_rows, cell), _rows_of_cell(result.gaps, cell)
    return CellView(cell, rows, gaps, policy_colours(result), len(by_cell(result.summary_rows)))


def _section(index: int, cell: Cell, result: RunResult) -> dict[str, Any]:
    """Return one cell's figures and tables."""
    view = view_of(result, cell)
    panels = cell_panels(view)
    names = {panel.name for panel in panels}
    no_misroutes = "No policy misrouted any judged request." if cell.misroutes else result.unknown_misroutes
    return {
        "id": f"cell-{index}",
        "view": view,
        "cell": cell,
        "panels": panels,
        "packed": pack(panels),
        "foreseen": _is_foreseen(cell),
        "no_misroutes": "" if "misroutes" in names else no_misroutes,
        "queues": "timeline" in names,
        "device_table": device_table(cell, view.rows) if len(cell.devices) > 2 else [],
        "batches": batch_lines(cell, view.rows),
        "streamed": streamed_devices(cell, view.rows),
        "energy": energy_tables(cell, view.rows),
        "gaps": gap_lines(view.gaps),
        "gap_sentences": gap_sentences(view.gaps, view.rows),
    }


def _is_foreseen(cell: Cell) -> bool:
    """Return whether decisions are judged by what an oracle foresaw, queues included."""
    return any(misroutes.foreseen for misroutes in cell.misroutes.values())


def _judged_by(result: RunResult, batching: bool, streaming: bool) -> str:
    """Return a sentence on how misrouted requests are judged."""
    cells = result.cells
    known = [cell for cell in cells if cell.misroutes]
    if not known:
        return result.unknown_misroutes if cells else ""
    by_cell = {_is_foreseen(cell) for cell in known}
    queueing = any(busiest_load(row) is not None for row in result.summary_rows)
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
    return next(iter(cell.logs.values())).requests


def _fitted_line(cell: Cell) -> tuple[Any, ...]:
    return (*_length_source(cell), cell.regression_slope, cell.regression_offset)


def _fitted(cell: Cell) -> tuple[Any, ...]:
    """Return a key that is equal for workloads with the same fits."""
    devices = tuple(device.name for device in cell.devices)
    return (*_fitted_line(cell), devices, cell.profile_names, cell.shown_kinds)


def _fit_group(index: int, names: Sequence[str], cell: Cell, result: RunResult) -> dict[str, Any]:
    """Return the figures of workloads that share their fits; `cell`: the first of these workloads."""
    name = ", ".join(names)
    panels = fit_panels(cell, result.fits, name)
    remark = f"Drawn for the requests of {cell.workload}." if len(names) > 1 else ""
    return {"id": f"fit-{index}", "name": name, "panels": panels, "packed": pack(panels), "remark": remark}


def _rows_of_cell(rows: Sequence[Row], cell: RecordedCell) -> list[Row]:
    return [row for row in rows if cell_of(row) == (cell.workload, cell.network)]


def _closed_loop(result: RunResult) -> list[str]:
    """Return the workloads whose arrivals depend on the answers, and so on the policy."""
    workloads = result.scenario.get("workloads", {})
    return [name for name, workload in workloads.items() if (workload.get("arrivals") or {}).get("kind") == "clients"]


def policy_colours(result: FinishedRun) -> dict[str, int]:
    """Return the index of each policy's colour, which is the same in every table and figure."""
    return colours_of(row["policy"] for row in result.summary_rows)


def colours_of(policies: Iterable[str]) -> dict[str, int]:
    """Return the index of each policy's colour, by the names in their order."""
    names = dict.fromkeys(policies)
    others = [name for name in names if name not in _COLOURS]
    return {name: _COLOURS.index(name) if name in _COLOURS else _further_colour(others.index(name)) for name in names}


def _further_colour(number: int) -> int:
    """Return the colour of a policy that has no fixed colour, in order of appearance."""
    return len(_COLOURS) + number % (POLICY_COLOURS - len(_COLOURS))


def _first_by_name(named: Any) -> dict[str, Cell]:
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
