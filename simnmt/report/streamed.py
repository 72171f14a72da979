"""Devices that stream their model from the disk: what was planned, state by state, and what came of it, per policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from simnmt.report.pipeline_chart import Drawn, pipeline_svg
from simnmt.report.typography import DASH, is_number, number, significant
from simnmt.results import Cell
from simnmt.results.streamed import PlannedDevice, PlannedState
from simnmt.results.summary import Row

COLUMNS = (
    ("cold_share", "found cold, %", 100.0, ""),
    ("cold_mean_s", "cold, ms", 1e3, ""),
    ("first_turn_mean_s", "first turn, ms", 1e3, ""),
    ("later_turn_mean_s", "later turns, ms", 1e3, ""),
    ("stall_share", "stalled, % of the execution", 100.0, ""),
    ("missed_share", "after the deadline, %", 100.0, ""),
    ("cold_lost_mean_s", "lost by a cold one, ms", 1e3, ""),
    ("read_mean_bytes", "read for a request, MB", 1e-6, ""),
    ("mean_buffer_bytes", "in the buffer, MB", 1e-6, "peak_buffer_bytes"),
    ("peak_shard_bytes", "at most with what is read, MB", 1e-6, ""),
    ("compute_busy_share", "computing, % of the time", 100.0, ""),
    ("disk_busy_share", "disk at work, % of the time", 100.0, ""),
)
"""Key of the summary behind the device's name, head, factor, and what stands below it."""
STREAMED_STYLE = Markup("\n.pipelines-scroll { border: none; }\n.pipelines-scroll .pipelines { min-width: 44rem; }\n")
"""A phone scrolls the picture rather than shrink its words."""
PLAN_COLUMNS = ("reads, MB", "held before, MB", "shards by bits", "predicted, ms", "of it stalled, ms")


def streamed_devices(cell: Cell, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Per streamed device its plans with their picture, and a line of numbers per policy that used it; `rows`: the cell's."""
    by_policy = {row["policy"]: row for row in rows}
    found = []
    for device, kind, planned in zip(cell.devices, cell.shown_kinds, cell.planned, strict=False):
        if planned is None:
            continue
        used = [policy for policy, name, account in cell.stream_accounts() if name == device.name and account.requests.any()]
        found.append(
            {
                "name": device.name,
                "kind": kind,
                "planned": planned,
                "submodel": _submodel(planned),
                "states": [_plan_line(state, state.name) for state in planned.states]
                + [
                    _plan_line(state, f"{state.name}, from {number(change.at_s, 0)}\u202fs on")
                    for change in planned.changes
                    for state in change.states
                ],
                "picture": picture(planned, f"{device.name}, as planned"),
                "lines": [
                    {"policy": policy, "figures": _figures(by_policy.get(policy, {}), device.name)}
                    for policy in cell.logs
                    if policy in used
                ],
            }
        )
    return found


def picture(planned: PlannedDevice, title: str) -> Markup:
    """The pipelines of all states, as predicted for requests of the planned lengths."""
    return pipeline_svg(title, [_drawn(state, planned.all_layers) for state in planned.states], planned.deadline_s)


def _drawn(state: PlannedState, encoder_layers: int) -> Drawn:
    begin, end = zip(*state.compute, strict=True)
    stall = [first - before for first, before in zip(begin, (state.before_s, *end), strict=False)]
    later_s = max(state.latency_s - end[-1], 0.0)
    load_begin, load_end = zip(*state.load, strict=True)
    layers = [*range(state.layers), *(encoder_layers + layer for layer in range(state.decoder_layers))]
    return Drawn(state.name, load_begin, load_end, begin, end, stall, later_s, layers, state.before_s)


def _submodel(planned: PlannedDevice) -> str:
    first = planned.states[0]
    layers = f"{first.layers} of {planned.all_layers}"
    if planned.all_decoder_layers:
        layers += f" encoder and {first.decoder_layers} of {planned.all_decoder_layers} decoder"
    lengths = f"{planned.src_len} source" + (f" and {planned.tgt_len} target" if planned.tgt_len else "") + " tokens"
    return f"{layers} layers, {first.slices} of {planned.all_slices} slices of each, planned for {lengths}"


def _plan_line(state: PlannedState, name: str) -> dict[str, Any]:
    shards = ", ".join(f"{count} of {width}" for width, count in state.bits)
    figures = (
        _text(1e-6 * state.read_bytes),
        _text(1e-6 * state.held_bytes),
        shards,
        _text(1e3 * state.latency_s),
        _text(1e3 * state.stall_s),
    )
    return {"name": name, "figures": figures}


def _figures(row: Row, device: str) -> list[dict[str, str]]:
    return [
        {
            "key": f"{device}_{key}",
            "text": _text(row.get(f"{device}_{key}"), factor),
            "beside": f"peak {_text(row.get(f'{device}_{below}'), factor)}" if below else "",
        }
        for key, _, factor, below in COLUMNS
    ]


def _text(value: Any, factor: float = 1.0) -> str:
    if not is_number(value):
        return DASH
    shown = factor * value
    return number(shown, 1) if shown >= 100.0 else significant(shown, 3)
