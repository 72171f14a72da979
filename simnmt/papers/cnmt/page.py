"""The page of the C-NMT reproduction: tables side by side, verdicts, and the paper's figures from our data (CNMT-18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from simnmt.papers.kit.page import claim_groups
from simnmt.report.figures import rtt
from simnmt.report.page_template import Record, fill_template
from simnmt.report.plane_figures import execution_means, length_means, plane
from simnmt.report.typography import DASH, number, signed, significant
from simnmt.results import Cell
from simnmt.results.summary import Row

_COLOURS = ("edge", "cloud", "oracle", "naive", "cnmt")
_PUBLISHED_LENGTHS = {"de-en": ("0.99", "0.57"), "fr-en": ("0.99", "0.15"), "en-zh": ("0.99", "0.73")}
"""R2 and mean squared error of the means per N about the line, as the paper's figure 3 has them."""
TRANSFORMER = "en-zh"


def drawings(times: Sequence[Mapping[str, Any]], parts: Mapping[str, Replayed]) -> list[dict[str, Any]]:
    """Figures 2a, 2b, 3 and 4: `id`, `title`, `note`, `content` for the scripts, and `figures` with what each can choose."""
    shown = {name: part for name, part in parts.items() if part.cells}
    # What was measured comes first, where it is there.
    ordered = {name: shown[name] for name in sorted(shown, key=lambda name: name == "inferred")}
    return [_times(times) if times else _replayed(ordered), _planes(ordered), _lengths(ordered), _traces(ordered)]


def _name(part: str, cell: Cell, network: bool = True) -> str:
    return f"{part}: {cell.workload.upper()}{f' {cell.network.upper()}' if network else ''}"


def _transformer_first(workloads: Sequence[str]) -> list[str]:
    return sorted(dict.fromkeys(workloads), key=lambda workload: workload != TRANSFORMER)


def _times(times: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    workloads = _transformer_first([row["workload"] for row in times])
    return {
        "id": "figure-2a",
        "title": "Figure 2a: time over target length",
        "note": "Means per target length M of the profiles' own samples, the line through them, and one standard deviation of "
        "single inferences: over source lengths, and over the repeats of each. The paper shows the Transformer on a Jetson "
        "(R² 0.99, mean squared error 0.13 ms²) and on a Titan (0.85, 1.2).",
        "content": {"times": [dict(row) for row in times], "workloads": workloads},
        "figures": [
            {
                "name": "times",
                "heading": "Gateway and server",
                "choices": [(at, workload.upper()) for at, workload in enumerate(workloads)],
                "ranged": False,
                "says": "Mean execution time in milliseconds per target length on gateway and server, with lines",
            }
        ],
    }


def _replayed(parts: Mapping[str, Replayed]) -> dict[str, Any]:
    """In place of measured samples: the requests of the replay, whose times follow its profiles' planes."""
    part, cell = next(
        ((part, cell) for part in parts.values() for cell in part.cells if cell.workload == TRANSFORMER),
        next((part, cell) for part in parts.values() for cell in part.cells),
    )
    fits = [fit for fit in part.fits if fit["workload"] == cell.workload]
    return {
        "id": "figure-2a",
        "title": "Figure 2a: time over target length",
        "note": f"No profile at hand holds measured samples, so these are the replay's requests on profiles that are "
        f"{cell.profile_kinds[0]}: they show the form of the figure and prove nothing. The paper shows the Transformer on a "
        "Jetson (R² 0.99, mean squared error 0.13 ms²) and on a Titan (0.85, 1.2).",
        "content": {"devices": [device.name for device in cell.devices], "execution": execution_means(cell, fits)},
        "figures": [
            {
                "name": "replayed",
                "heading": f"Gateway and server, {cell.workload.upper()}",
                "choices": [],
                "ranged": True,
                "says": "Mean execution time in milliseconds per target length on gateway and server",
            }
        ],
    }


def _planes(parts: Mapping[str, Replayed]) -> dict[str, Any]:
    cells = [(name, cell) for name, part in parts.items() for cell in part.cells]
    # The paper's own example, the Transformer, is shown first; a stable sort keeps the rest in order.
    cells.sort(key=lambda named_cell: (named_cell[1].workload != TRANSFORMER, named_cell[0] == "inferred"))
    return {
        "id": "figure-2b",
        "title": "Figure 2b: two planes and the border between their regions",
        "note": "Requests by source length N and target length M, coloured by the device that C-NMT chose, and the border on "
        "which both devices are believed equally fast.",
        "content": {"cells": [_plane(cell) for _, cell in cells]},
        "figures": [
            {
                "name": "planes",
                "heading": "Where each device is the faster one",
                "choices": [(at, _name(name, cell)) for at, (name, cell) in enumerate(cells)],
                "ranged": True,
                "says": "Requests in the plane of source and target length with the border where both devices are equally fast",
            }
        ],
    }


def _plane(cell: Cell) -> dict[str, Any]:
    coefficients = []
    for device, kind, (src, tgt, fixed) in zip(cell.devices, cell.profile_kinds, cell.planes, strict=True):
        milliseconds = (f"{significant(1e3 * value, 3)}" for value in (src, tgt, fixed))
        coefficients.append("{} ({}): {} N + {} M + {} ms.".format(device.name, kind, *milliseconds))
    return {
        "policies": list(cell.logs),
        "colours": [_COLOURS.index(policy) if policy in _COLOURS else len(_COLOURS) for policy in cell.logs],
        "devices": [device.name for device in cell.devices],
        "unstable": [None for _ in cell.logs],
        "plane": plane(cell),
        "coefficients": " ".join(coefficients),
    }


def _lengths(parts: Mapping[str, Replayed]) -> dict[str, Any]:
    tables: dict[tuple[str, str, str], dict[str, Any]] = {}
    for part in parts.values():
        for cell in part.cells:
            key = (cell.workload, cell.lengths.src_unit, cell.lengths.tgt_unit)
            if key not in tables:
                content = length_means(cell, [fit for fit in part.fits if fit["workload"] == cell.workload])
                if content is not None:
                    tables[key] = {"lengths": content, "name": cell.lengths.name}
    figures = []
    for at, ((workload, src_unit, tgt_unit), table) in enumerate(tables.items()):
        r2, mse = _PUBLISHED_LENGTHS.get(workload, ("–", "–"))
        pairs = number(sum(table["lengths"]["pairs"]), 0)
        units = src_unit if src_unit == tgt_unit else f"{src_unit} and {tgt_unit}"
        figures.append(
            {
                "name": f"lengths-{at}",
                "heading": f"{workload.upper()}, {pairs} pairs of @{table['name']} by {units}; published R² {r2}, MSE {mse}",
                "choices": [],
                "ranged": True,
                "says": f"Mean target length per source length with the fitted line, {workload.upper()} by {units}",
            }
        )
    return {
        "id": "figure-3",
        "title": "Figure 3: mean target length per source length",
        "note": "Counted on real text; the target length is the reference translation's. Bands: one standard deviation of "
        "single pairs.",
        "content": {"tables": list(tables.values())},
        "figures": figures,
    }


def _traces(parts: Mapping[str, Replayed]) -> dict[str, Any]:
    groups: dict[str, list[Cell]] = {}
    for name, part in parts.items():
        # One pair for all data sets is shown once.
        alike = len({(cell.network, round(cell.series.mean_s, 9)) for cell in part.cells}) == 2
        for cell in part.cells:
            if not alike or cell.workload == part.cells[0].workload:
                groups.setdefault(name if alike else _name(name, cell, network=False), []).append(cell)
    traces = []
    for cells in groups.values():
        drawn = [(cell, rtt(cell)) for cell in cells]
        traces.append(
            {
                "unit": drawn[0][1]["unit"],
                "series": [
                    {
                        "name": cell.network.upper(),
                        "time": content["time"],
                        "ms": content["ms"],
                        "mean_ms": 1e3 * float(cell.series.mean_s),
                        "kind": cell.series.kind,
                        "source": cell.series.source,
                    }
                    for cell, content in drawn
                ],
            }
        )
    return {
        "id": "figure-4",
        "title": "Figure 4: round-trip times",
        "note": "The series that the replays met. The paper's own samples are not public.",
        "content": {"traces": traces},
        "figures": [
            {
                "name": "traces",
                "heading": "CP1 and CP2",
                "choices": list(enumerate(groups)),
                "ranged": False,
                "says": "Round-trip time in milliseconds over the time of the trace, CP1 and CP2",
            }
        ],
    }


_SCRIPTS = ("page_tools.js", "page_plane.js", "page_fits.js", "reproduction_page.js", "page.js")
_LABELS = {"edge": "GW", "cloud": "Server", "oracle": "Oracle", "naive": "Naive", "cnmt": "C-NMT"}


class Replayed(Protocol):
    """A replay of the paper's table on one kind of profiles."""

    @property
    def rows(self) -> Sequence[Row]:
        """The summary's rows."""
        ...

    @property
    def fits(self) -> Sequence[Row]:
        """What the policies believe."""
        ...

    @property
    def cells(self) -> Sequence[Cell]:
        """Empty where its profiles are missing."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What limits its numbers."""
        ...


def render_reproduction(document: Mapping[str, Any], parts: Mapping[str, Replayed]) -> str:
    """The page as text, to be written as UTF-8; it opens from disk without a network.

    `document`: what `--json` prints; `parts`: the replays by name, the inferred one first.
    """
    tables = {table["id"]: table for table in document["tables"]}
    cells, ratios = tables["table-one"]["cells"], tables["ratios"]
    described = document["parts"]
    rows = [row for part in parts.values() for row in part.rows]
    return fill_template(
        "reproduction_page.html.j2",
        _SCRIPTS,
        drawings(tables["times"]["rows"], parts),
        document=document,
        parts=[
            {
                "name": part["name"],
                "heading": f"{part['name']} profiles",
                "kinds": list(dict.fromkeys(kind for kinds in part["kinds"].values() for kind in kinds)),
                "notes": parts[part["name"]].notes,
            }
            for part in described
        ],
        lacking=sorted({note for part in parts.values() for note in part.notes if note.startswith("Not at hand")}),
        requests=rows[0]["requests"] if rows else None,
        one_network=len(parts) > 2,
        claims=claim_groups(document["claims"], document["doubts"]),
        doubtful_profiles=document["doubts"],
        heads=list(dict.fromkeys(f"{cell['network'].upper()} {_LABELS[cell['baseline']]}" for cell in cells)),
        table_one=_table_one(cells, described),
        ratios=[_ratio(row, described) for row in ratios["rows"]],
        errors=", ".join(f"{_group(name)} {100 * error:.2f} %" for name, error in ratios["mean_absolute_error"].items()),
        networks=[_network(row) for row in tables["networks"]["rows"]],
        grouped=lambda count: number(count, 0),
    )


def _table_one(cells: Sequence[Record], parts: Sequence[Record]) -> list[dict[str, Any]]:
    """Per data set and policy the published line, and one of each part."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for cell in cells:
        groups.setdefault((cell["workload"], cell["policy"]), []).append(cell)
    origins = [{"name": "published", "key": "published"}, *parts]
    return [
        {
            "name": f"{workload.upper()} {_LABELS[policy]}",
            "rows": [
                {
                    "name": origin["name"],
                    "kinds": origin["kinds"].get(workload, ["not at hand"]) if "kinds" in origin else ["published"],
                    "values": [_signed(cell[f"{origin['key']}_percent"]) for cell in group],
                }
                for origin in origins
            ],
        }
        for (workload, policy), group in groups.items()
    ]


def _ratio(row: Record, parts: Sequence[Record]) -> dict[str, Any]:
    one, other = row["published"]
    return {
        "name": f"{row['workload'].upper()} {row['network'].upper()} {_LABELS[row['policy']]}",
        "published": number(one, 4) if one == other else f"{number(one, 4)} | {number(other, 4)}",
        "inferred": number(row["inferred"], 4),
        "error": signed(100 * row["error"], 2),
        "role": row["role"],
        "others": [DASH if row[part["key"]] is None else number(row[part["key"]], 4) for part in parts[1:]],
    }


def _network(row: Record) -> dict[str, Any]:
    share = row["oracle_offloaded_share"]
    return {
        "profiles": row["profiles"],
        "data": row["workload"].upper(),
        "network": row["network"].upper(),
        "mean": number(row["mean_rtt_ms"], 1),
        "share": DASH if share is None else number(100 * share, 1),
        "kind": row["kind"],
    }


def _group(name: str) -> str:
    return {"all": "all 24", "fitted": "the fifteen fitted", "test": "the nine held out as a test"}.get(name, name.upper())


def _signed(value: float | None) -> str:
    return DASH if value is None else signed(value, 2)
