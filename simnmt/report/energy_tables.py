"""Energy and money on the page of a run: per policy, and where they went by device and links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from simnmt.report.typography import DASH, is_number, significant
from simnmt.results import Cell
from simnmt.results.energy import HEADS, PartEnergy
from simnmt.results.summary import Row


def energy_tables(cell: Cell, rows: Sequence[Row]) -> dict[str, Any] | None:
    """Return heads and texts of the tables of a cell; None if its energy and money are not accounted for. `rows`: its rows."""
    if not cell.energies:
        return None
    columns = {key: head for key, head in HEADS.items() if any(is_number(row.get(key)) for row in rows)}
    names = [field.name for field in fields(PartEnergy)[1:]]
    parts = [(policy, part) for policy, energy in cell.energies.items() for part in (*energy.devices, energy.links)]
    return {
        "columns": columns,
        "policies": [(row["policy"], [_text(row.get(key)) for key in columns]) for row in rows],
        "device_heads": [name.replace("_", " ") for name in names],
        "devices": [(policy, part.device, [_text(getattr(part, name)) for name in names]) for policy, part in parts],
        "spans": ", ".join(f"{policy} {significant(energy.span_s)}\u202fs" for policy, energy in cell.energies.items()),
    }


def _text(value: object) -> str:
    return value if isinstance(value, str) else significant(value) if is_number(value) else DASH
