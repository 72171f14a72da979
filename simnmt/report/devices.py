"""What the page says of devices: their boxes, their profiles, their shares and loads, and what policies do with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simnmt.names import format_list
from simnmt.report.typography import DASH, is_number, number
from simnmt.results import Cell, RunResult
from simnmt.results.stability import SUFFIX, device_names, overloaded
from simnmt.results.summary import Device, Row


def boxes(device: Device) -> str:
    """How many of a kind there are, and what each does side by side; empty for one box with one worker."""
    many = f"{number(device.servers, 0)} boxes" if device.servers > 1 else ""
    side = f"{number(device.workers, 0)} workers{' each' if many else ''}" if device.workers > 1 else ""
    return ", ".join(filter(None, (many, side)))


def profile_kinds(cell: Cell) -> list[tuple[str, str]]:
    """Which profiles are of which kind, such as `gateway and region profiles`, `inferred`."""
    by_kind: dict[str, list[str]] = {}
    for device, kind in zip(cell.devices, cell.shown_kinds, strict=True):
        by_kind.setdefault(kind, []).append(device.name)
    if len(by_kind) == 1:
        every = "both device profiles" if len(cell.devices) == 2 else "all device profiles"
        return [(every, cell.shown_kinds[0])]
    found = []
    for kind, names in by_kind.items():
        text = format_list(names)
        found.append((f"{text} profile{'s' if len(names) > 1 else ''}" if len(names) <= 4 else f"{len(names)} profiles", kind))
    return found


def roles(result: RunResult) -> dict[str, str]:
    """What a policy does, for somebody who meets its name here first; by what the scenario says of it, else by its name."""
    names = list(dict.fromkeys(name for row in result.rows for name in device_names(row))) or ["gateway", "cloud"]
    said = result.scenario.get("policies", {})
    found = {}
    for policy in dict.fromkeys(row["policy"] for row in result.rows):
        configured = said.get(policy, {"kind": policy})
        found[policy] = _role(configured, names)
    return {policy: role for policy, role in found.items() if role}


def _role(configured: dict[str, Any], devices: Sequence[str]) -> str:
    kind = configured["kind"]
    if kind in ("edge", "cloud", "fixed"):
        return f"{devices[0] if kind == 'edge' else devices[-1] if kind == 'cloud' else configured['device']} only"
    if kind == "oracle":
        return "knows the truth"
    words = [
        "sees queues" if configured.get("sees_backlog") else "",
        "minimises p95" if configured.get("minimises") == "p95" else "",
        "spread of lengths" if configured.get("lengths") == "distribution" and configured.get("minimises") != "p95" else "",
        {"smoothed": "smoothed transfer", "probing": "probes"}.get(
            (configured.get("transfer_estimate") or {}).get("kind", ""), ""
        ),
    ]
    return ", ".join(filter(None, words))


def device_table(cell: Cell, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Per device, under each policy: the share of the requests and the load, as text."""
    by_policy = {row["policy"]: row for row in rows}
    return [
        {
            "name": device.name,
            "boxes": boxes(device),
            "entries": [_entry(by_policy.get(policy, {}), device.name) for policy in cell.logs],
        }
        for device in cell.devices
    ]


def _entry(row: Row, device: str) -> dict[str, str]:
    share, load, busiest = (row.get(f"{device}{suffix}") for suffix in ("_share", "_load", SUFFIX))
    text = ""
    if not share:
        return {"share": DASH, "load": "", "verdict": ""}
    if is_number(load) and is_number(busiest):
        text, of_busiest = number(load, 2), number(busiest, 2)
        if of_busiest != text:
            text += f", busiest {of_busiest}"
    too_much = any(overload.device == device for overload in overloaded(row))
    return {
        "share": number(100 * share, 1) if is_number(share) else DASH,
        "load": text,
        "verdict": "overloaded" if too_much else "",
    }
