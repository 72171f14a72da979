"""The page of one run: everything it says, in one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from simnmt import __version__
from simnmt.report.figures import embedded, estimating_policy, figures
from simnmt.report.plotly_js import packed
from simnmt.report.table import DASH, THIN, Row, is_number, number, significant, table, typeset
from simnmt.results import Cell, RunResult

_HERE = Path(__file__).resolve().parent
_COLOURS = ("edge", "cloud", "oracle", "naive", "cnmt")
"""Policies with a colour of their own (`page.css`); others take the colours after these, in the order they appear."""


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
    first = result.rows[0] if result.rows else {}
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["typeset"] = typeset
    return environment.get_template("page.html.j2").render(
        result=result,
        version=__version__,
        seed=result.seed,
        replications=first.get("replications"),
        requests=first.get("requests"),
        verdicts=[(verdict, _trivial(verdict)) for verdict in result.verdicts],
        table=table(result.rows, result.comparisons, colours),
        cells=cells,
        sections=[_section(index, cell, colours) for index, cell in enumerate(result.cells)],
        lengths=_alike(_once((cell.workload, cell) for cell in result.cells)),
        said=" ".join(result.notes),
        notes=_said_once(result.notes, [cell.workload for cell in result.cells]),
        series=_once((cell.network, cell) for cell in result.cells),
        devices=_once((cell.workload, cell) for cell in result.cells),
        published_tables=published_tables,
        grouped=lambda count: number(count, 0),
        significant=lambda value: significant(value, 4) if is_number(value) else DASH,
        share_explained=_share_explained,
        style=_asset("page.css"),
        script=_asset("page.js"),
        plotly=Markup(packed()),
    )


def _section(index: int, cell: Cell, colours: dict[str, int]) -> dict[str, Any]:
    """One cell's figures: their data as JSON, and the words around them."""
    content = figures(cell)
    content["colours"] = [colours[policy] for policy in cell.logs]
    return {
        "index": index,
        "cell": cell,
        "json": Markup(embedded(content)),
        "estimating": estimating_policy(cell.logs),
        "zoomed": content["rtt"]["used"] is not None,
        "sampled": len(content["plane"]["src_len"]),
        "requests": next(iter(cell.logs.values()))["src_len"].size,
    }


def _share_explained(r2: Any) -> str:
    """R² with three decimals, which never calls a fit perfect that is not."""
    if not is_number(r2):
        return DASH
    return f">{THIN}0.999" if 0.9995 <= r2 < 1.0 else number(r2, 3)


def _trivial(verdict: Row) -> str:
    """Why there is little to choose in this cell; empty where there is."""
    if not verdict["trivial"]:
        return ""
    return f"The oracle offloads {100 * verdict['oracle_offloaded_share']:.0f}\u202f% here: the choice is nearly trivial."


def _colours(result: RunResult) -> dict[str, int]:
    """Policy -> index of its colour, the same in every table and figure."""
    names = dict.fromkeys(row["policy"] for row in result.rows) | dict.fromkeys(
        policy for cell in result.cells for policy in cell.logs
    )
    others = [name for name in names if name not in _COLOURS]
    return {name: _COLOURS.index(name) if name in _COLOURS else len(_COLOURS) + others.index(name) % 3 for name in names}


def _once(named: Any) -> dict[str, Cell]:
    """The first cell of each name."""
    found: dict[str, Cell] = {}
    for name, cell in named:
        found.setdefault(name, cell)
    return found


def _alike(cells: dict[str, Cell]) -> list[tuple[list[str], Cell]]:
    """Workloads with the same lengths and the same regression, said once."""
    found: dict[Any, tuple[list[str], Cell]] = {}
    for name, cell in cells.items():
        lengths = cell.lengths
        same = (lengths.name, lengths.source, lengths.src_unit, lengths.tgt_unit, cell.regression_slope, cell.regression_offset)
        found.setdefault(same, ([], cell))[0].append(name)
    return list(found.values())


def _said_once(notes: Sequence[str], workloads: Sequence[str]) -> list[str]:
    """Notes that begin with other workloads but say the same (`a: ...`, `b: ...`) become one: `a; b: ...`."""
    places: dict[str, list[str]] = {}
    for note in notes:
        place, colon, rest = note.partition(": ")
        shared = colon and place.split(", ")[0] in workloads
        places.setdefault(rest if shared else note, []).append(place if shared else "")
    return [f"{'; '.join(dict.fromkeys(found))}: {rest}" if any(found) else rest for rest, found in places.items()]


def _asset(name: str) -> Markup:
    """Our own style or script, which goes in as it stands."""
    return Markup((_HERE / name).read_text(encoding="utf-8"))
