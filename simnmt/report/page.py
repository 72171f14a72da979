"""The page of one run: one HTML file that opens without a network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from simnmt.base.suggestions import format_list
from simnmt.report import figures
from simnmt.report.charts import POLICY_COLOURS, Panel
from simnmt.report.figures import CellView
from simnmt.report.page_template import Section, render_page
from simnmt.report.pipelines import planned_pipelines_svg
from simnmt.report.run_tables import (
    batch_table,
    boxes,
    energy_table,
    fits_table,
    gaps_table,
    model_table,
    parts_tables,
    plans_table,
    policies_table,
    recommendations_table,
    stream_table,
)
from simnmt.report.words import gap_words, verdicts, words
from simnmt.results import Cell, Run
from simnmt.results.metrics import unanswered_share
from simnmt.results.places import ALL, CellName, by_cell
from simnmt.results.run import MOST_DRAWN, doubtful_profiles
from simnmt.results.summary import Row

_COLOURS = ("edge", "cloud", "oracle", "naive", "cnmt")
"""Policies with fixed colours (`page.css`); other policies take the next colours in order of appearance."""
MOST_CARDS = 2
"""Most verdicts that open the page; of more, a table comes first and they are folded."""


def render(result: Run) -> str:
    """Return the page as text, to be written as UTF-8; the same result gives the same text.

    It opens from disk without a network, and every name that came with the input is escaped.
    """
    result = replace(result, cells=result.drawn_cells, notes=[*result.notes, *_sampling(result)])
    parts = [_cell_section(place, cell, result) for place, cell in enumerate(result.cells)]
    sections = [
        *_verdict_sections(result),
        *doubt_sections(doubtful_profiles(result.cells)),
        Section("All policies", "table", tables=[policies_table(result, policy_colours(result))]),
    ]
    if parts:
        sections.append(Section("Figures", "figures", text=words("figures"), parts=parts))
    sections.append(_making_section(result))
    return render_page("simnmt run" if result.live is None else "simnmt live replay", result.name, sections, _facts(result))


def _facts(result: Run) -> list[str]:
    first = result.whole_rows[0] if result.summary_rows else {}
    warm_up = max((row.get("warm_up_requests") or 0.0 for row in result.summary_rows), default=0.0)
    scope = "under each policy" if result.live is None else "measured live"
    facts = [f"{first['requests']:,} requests {scope}"] * ("requests" in first)
    facts += [f"the first {warm_up:,.0f} are warm-up"] * bool(warm_up)
    facts += [f"{first['replications']} replications"] * ("replications" in first)
    return [*facts, f"seed {result.seed}"]


def _sampling(result: Run) -> list[str]:
    most = max((log.requests for cell in result.cells for log in cell.logs.values()), default=0)
    sampled = [f"Figures over single requests show an even sample of at most {MOST_DRAWN:,}."] if most > MOST_DRAWN else []
    loses = any(map(unanswered_share, result.summary_rows))
    return sampled + ["Figures over single requests show those that every policy answered."] * loses


def _verdict_sections(result: Run) -> list[Section]:
    colours = policy_colours(result)
    policies = {CellName.of(record): record["policy"] for record in result.recommendations}
    cards = []
    for verdict in verdicts(result):
        policy = policies.get(CellName.of(verdict))
        text = [verdict[part] for part in ("sentence", "gap", "reason") if verdict[part]]
        colour = f"policy-{colours[policy]}" if policy else ""
        strong = f"deploy {policy}" if policy else ""
        cards.append(Section(str(CellName.of(verdict)), text=text, style="verdict", colour=colour, strong=strong))
    if len(cards) <= MOST_CARDS:
        return cards
    folded = Section("The reasons, for each workload and network", parts=cards, folded=True)
    table = recommendations_table(result.recommendations, colours)
    return [Section("Which policy to deploy", "verdicts", tables=[table], parts=[folded])]


def doubt_sections(doubts: Sequence[Row]) -> list[Section]:
    """Return the section of profiles with warnings; none without any."""
    parts = [Section(f"{', '.join(doubt['devices'])}: {doubt['profile']}", notes=doubt["warnings"]) for doubt in doubts]
    return [Section("Doubtful profiles", "doubts", parts=parts, style="doubts")] if parts else []


def _cell_section(index: int, cell: Cell, result: Run) -> Section:
    view = view_of(result, cell)
    tables = [
        *parts_tables(result, cell.name, view.colours),
        batch_table(cell, view.rows),
        model_table(cell, view.rows),
        energy_table(view.rows) if cell.energies else None,
    ]
    parts = []
    if gaps := [row for row in result.gaps if CellName.of(row) == cell.name]:
        table = gaps_table(gaps)
        parts = [Section(table.title, tables=[table], notes=gap_words(gaps, view.rows))]
    parts += [Section(table.title, tables=[table]) for table in tables if table is not None]
    return Section(
        str(cell.name),
        f"cell-{index}",
        panels=run_panels(result, cell),
        parts=[*parts, *_streaming_sections(cell, view.rows)],
        style="cell",
        folded=index > 0,
    )


def _streaming_sections(cell: Cell, rows: Sequence[Row]) -> Iterator[Section]:
    """Yield a section for each device that streams its model: plans, picture, and numbers of each policy that used it."""
    for device, kind, planned in zip(cell.devices, cell.shown_kinds, cell.planned, strict=False):
        if planned is not None:
            yield Section(
                f"The model, streamed at the {device.name} ({kind})",
                text=words("streamed", planned=planned, first=planned.states[0]),
                picture=planned_pipelines_svg(planned, f"{device.name}, as planned"),
                tables=[plans_table(device.name, planned), stream_table(cell, rows, device.name)],
            )


def _making_section(result: Run) -> Section:
    inputs = [part for cell in result.cells for part in cell.inputs]
    facts = [*_input_facts(inputs, result.scenario.get("sites") or {})]
    facts += [
        (f"Engine: {engine}", ", ".join(name for name, of_policy in result.engines.items() if of_policy == engine))
        for engine in dict.fromkeys(result.engines.values())
    ]
    of_clients = [
        name
        for name, workload in result.scenario.get("workloads", {}).items()
        if (workload.get("arrivals") or {}).get("kind") == "clients"
    ]
    return Section(
        "How it was made",
        "making",
        facts=facts,
        tables=[fits_table(result.fits)] if result.fits else [],
        parts=[
            Section("How to read the intervals", text=words("intervals", closed_loop=format_list(of_clients))),
            Section("Notes", "notes", notes=list(dict.fromkeys(result.notes))),
        ],
    )


def _input_facts(inputs: Sequence[Cell], sites: Row) -> Iterator[tuple[str, str]]:
    """Yield lengths by workload, round trips by network and site, devices by workload and site; of equal names the first."""

    def named(*keys: str) -> Iterator[tuple[str, Cell]]:
        parts: dict[str, Cell] = {}
        for part in inputs:
            parts.setdefault(" at ".join(name for key in keys if (name := getattr(part, key)) != ALL), part)
        yield from parts.items()

    yield from ((f"Lengths of {name}", words("lengths", cell=part)[0]) for name, part in named("workload"))
    for name, part in named("network", "site"):
        count = sites.get(part.site, {}).get("count", 1)
        yield f"RTT of {name}{f', the first of {count:,}' if count > 1 else ''}", words("series", series=part.series)[0]
    yield from ((f"Devices of {name}", _devices_fact(part)) for name, part in named("workload", "site"))


def _devices_fact(cell: Cell) -> str:
    planes = [[1e3 * value for value in plane_s] for plane_s in cell.planes]
    rows = zip(cell.devices, map(boxes, cell.devices), cell.profile_names, cell.shown_kinds, planes, strict=True)
    return words("devices", devices=rows)[0]


NOT_RECORDED = ("rtt", "plane")
"""Figures that need the inputs of a run, which its directory does not hold."""


def run_panels(result: Run, cell: Cell) -> list[Panel]:
    """Return the figures of a cell of `drawn_cells` for which there is something to show, in the order of the page."""
    view = view_of(result, cell)
    queues = any(row.get("offered_rps") is not None for row in view.rows)
    timelines = [figures.timeline(view)] if queues else []
    inputs = [figures.rtt(view), figures.plane(view)] if cell.series is not None and not cell.sources else []
    qualities = [figures.quality(view)] if any(row.get("chrf") is not None for row in view.rows) else []
    return [figures.latency(view), figures.parts(view), *qualities, *timelines, *inputs]


def view_of(result: Run, cell: Cell) -> CellView:
    """Return a cell with its rows and the colours of the policies."""
    return CellView(cell, by_cell(result.summary_rows).get(cell.name, []), policy_colours(result))


def policy_colours(result: Run) -> dict[str, int]:
    """Return the index of each policy's colour, which is the same in every table and figure."""
    return colours_of(row["policy"] for row in result.summary_rows)


def colours_of(policies: Iterable[str]) -> dict[str, int]:
    """Return the index of each policy's colour, by the names in their order."""
    names = dict.fromkeys(policies)
    others = [name for name in names if name not in _COLOURS]
    further = POLICY_COLOURS - len(_COLOURS)
    return {name: _COLOURS.index(name) if name in _COLOURS else len(_COLOURS) + others.index(name) % further for name in names}
