"""Energy and money on the page of a run: per policy, and where they went by device and links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simnmt.report.typography import DASH, is_number, significant
from simnmt.results import Cell
from simnmt.results.number_text import format_power
from simnmt.results.run_energy import DeviceEnergy, RunEnergy
from simnmt.results.summary import Row

COLUMNS = (
    ("mean_energy_j", "J a request", "energy_j_per_thousand_tokens", "{} a thousand tokens"),
    ("mean_static_j", "of it drawn at all times", "", ""),
    ("mean_dynamic_j", "while executing", "", ""),
    ("mean_transfer_j", "on links", "", ""),
    ("energy_j_per_million_characters", "J a million characters", "", ""),
    ("mean_cost", "money a request", "cost_per_thousand_tokens", "{} a thousand tokens"),
    ("cost_per_million_characters", "money a million characters", "", ""),
)
"""Key of the summary, head, and key of the number below with its text."""


@dataclass(frozen=True, slots=True)
class EnergyFigure:
    """A number of the summary as text, with a second text below it."""

    key: str
    text: str
    beside: str = ""


@dataclass(frozen=True, slots=True)
class EnergyLine:
    """The numbers of one policy."""

    policy: str
    figures: list[EnergyFigure]


@dataclass(frozen=True, slots=True)
class DeviceLine:
    """Joules and money of one device, or of all links, under one policy."""

    device: str
    policy: str
    power: str
    kind: str
    texts: tuple[str, ...]
    """Boxes, requests, static and dynamic joules, money."""


@dataclass(frozen=True, slots=True)
class EnergyTables:
    """The tables of one workload on one network."""

    heads: list[str]
    lines: list[EnergyLine]
    devices: list[DeviceLine]
    span: str
    """How long replication 0 lasted under each policy."""


DEVICE_HEADS = ("boxes", "requests", "J at all times", "J while executing, or by bytes", "money")


def energy_tables(cell: Cell, rows: Sequence[Row]) -> EnergyTables | None:
    """Return the tables of a cell; None if its energy and money are not accounted for. `rows`: those of the cell."""
    if not cell.energies:
        return None
    columns = [column for column in COLUMNS if any(is_number(row.get(column[0])) for row in rows)]
    lines = [
        EnergyLine(row["policy"], [EnergyFigure(key, _text(row.get(key)), _beside(row, *below)) for key, _, *below in columns])
        for row in rows
    ]
    devices = [line for policy, energy in cell.energies.items() for line in _device_lines(policy, energy)]
    spans = ", ".join(f"{policy} {significant(energy.span_s)}\u202fs" for policy, energy in cell.energies.items())
    return EnergyTables([head for _, head, *_ in columns], lines, devices, spans)


def _beside(row: Row, key: str, form: str) -> str:
    return form.format(_text(row[key])) if key and is_number(row.get(key)) else ""


def _text(value: object) -> str:
    return significant(value) if is_number(value) else DASH


def _device_lines(policy: str, energy: RunEnergy) -> list[DeviceLine]:
    lines = [_device_line(policy, device) for device in energy.devices]
    texts = ("", "", DASH, _text(energy.transfer_j), _text(energy.transfer_price))
    megabytes = f"{significant(energy.transfer_bytes / 1e6)}\u202fMB"
    return [*lines, DeviceLine("links", policy, megabytes, "given", texts)]


def _device_line(policy: str, device: DeviceEnergy) -> DeviceLine:
    numbers = (device.boxes, device.requests, device.static_j, device.dynamic_j, device.price)
    power = format_power(device.idle_w, device.busy_w, device.load_w)
    return DeviceLine(device.device, policy, power, device.kind, tuple(map(_text, numbers)))
