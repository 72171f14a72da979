"""The page of a paper's reproduction: tables side by side, claims with verdicts, its figures from our data (CNMT-18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from simnmt.report.reproduced import Record, claim_groups, filled
from simnmt.report.reproduction_figures import drawings
from simnmt.report.typography import DASH, number, signed
from simnmt.results import Cell
from simnmt.results.summary import Row

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
    return filled(
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
                    "values": [_signed(cell[f"{origin['key']}_percent"]) for cell in own],
                }
                for origin in origins
            ],
        }
        for (workload, policy), own in groups.items()
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
