"""Devices on the page of a run: profiles, shares and loads, batch sizes, and streamed models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from simnmt.base.extension import OBJECT
from simnmt.base.suggestions import format_list
from simnmt.policies import KINDS
from simnmt.report import thinning
from simnmt.report.charts import SYMBOLS, Axis, Chart, Control, Mark, Panel, panel
from simnmt.report.figures import CellView
from simnmt.report.pipelines import DrawnPipeline, pipeline_svg
from simnmt.report.tables import ORACLE_ROLE
from simnmt.report.typography import DASH, is_number, number, significant
from simnmt.results import Cell, RecordedCell, RunResult
from simnmt.results.device_accounts import SMALL_BATCH, BatchAccount, PlannedDevice, PlannedState
from simnmt.results.stability import LOAD_SUFFIX, device_names, row_overloads
from simnmt.results.summary import Device, Row
from simnmt.streaming.plan.timeline import Timeline


def boxes(device: Device) -> str:
    """Return the number of boxes and of workers in each; empty for one box with one worker."""
    many = f"{number(device.servers, 0)} boxes" if device.servers > 1 else ""
    side = f"{number(device.workers, 0)} workers{' each' if many else ''}" if device.workers > 1 else ""
    return ", ".join(filter(None, (many, side)))


def profile_kinds(cell: Cell) -> list[tuple[str, str]]:
    """Return (profiles, kind) pairs, such as `gateway and region profiles`, `inferred`."""
    by_kind: dict[str, list[str]] = {}
    for device, kind in zip(cell.devices, cell.shown_kinds, strict=True):
        by_kind.setdefault(kind, []).append(device.name)
    if len(by_kind) == 1:
        every = "both device profiles" if len(cell.devices) == 2 else "all device profiles"
        return [(every, cell.shown_kinds[0])]
    kinds = []
    for kind, names in by_kind.items():
        text = format_list(names)
        kinds.append((f"{text} profile{'s' if len(names) > 1 else ''}" if len(names) <= 4 else f"{len(names)} profiles", kind))
    return kinds


def roles(result: RunResult) -> dict[str, str]:
    """Describe each policy for new readers, from the entry of the policy in the scenario, else from the name of the policy."""
    names = list(dict.fromkeys(name for row in result.summary_rows for name in device_names(row))) or ["gateway", "cloud"]
    policies = result.scenario.get("policies", {})
    descriptions = {}
    for policy in dict.fromkeys(row["policy"] for row in result.summary_rows):
        configured = policies.get(policy, {"kind": policy})
        descriptions[policy] = _describe_role(configured, names)
    return {policy: role for policy, role in descriptions.items() if role}


def _describe_role(configured: dict[str, Any], devices: Sequence[str]) -> str:
    kind = configured.get("kind") or configured[OBJECT]
    if kind in ("edge", "cloud", "fixed"):
        return f"{devices[0] if kind == 'edge' else devices[-1] if kind == 'cloud' else configured['device']} only"
    if kind == "oracle":
        return ORACLE_ROLE
    estimate = configured.get("transfer_estimate") or {}
    estimate_kind = estimate if isinstance(estimate, str) else estimate.get("kind", "")
    words = [
        f"own policy {kind}" if OBJECT in configured or kind not in KINDS else "",
        "sees queues" if configured.get("sees_backlog") else "",
        f"minimises {configured['minimises']}" if configured.get("minimises", "mean") != "mean" else "",
        "spread of lengths" if configured.get("lengths") == "distribution" and configured.get("minimises") != "p95" else "",
        {"smoothed": "smoothed transfer", "quantile": "quantile of transfers"}.get(estimate_kind, ""),
    ]
    return ", ".join(filter(None, words))


@dataclass(frozen=True, slots=True)
class Share:
    """Use of one device by one policy, as text."""

    share: str
    """Share of the requests, in percent."""
    load: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class DeviceLine:
    """One device in the table of shares and loads, with an entry per policy."""

    name: str
    boxes: str
    entries: list[Share]


def device_table(cell: Cell, rows: Sequence[Row]) -> list[DeviceLine]:
    """Return the share of the requests and the load of each device under each policy."""
    by_policy = {row["policy"]: row for row in rows}
    return [
        DeviceLine(
            device.name,
            ", ".join(filter(None, (boxes(device), _availability(rows, device.name)))),
            [_share(by_policy.get(policy, {}), device.name) for policy in cell.logs],
        )
        for device in cell.devices
    ]


def _availability(rows: Sequence[Row], device: str) -> str:
    """Return the share of the time that the boxes of a device were up; empty if they cannot fail."""
    shares = [row[key] for row in rows if is_number(row.get(key := f"{device}_availability"))]
    return f"up {number(100 * sum(shares) / len(shares), 2)} % of the time" if shares else ""


def _share(row: Row, device: str) -> Share:
    share, load, busiest = (row.get(f"{device}{suffix}") for suffix in ("_share", "_load", LOAD_SUFFIX))
    if not is_number(share) or not share:
        return Share(DASH)
    text = ""
    if is_number(load) and is_number(busiest):
        text, of_busiest = number(load, 2), number(busiest, 2)
        text += f", busiest {of_busiest}" if of_busiest != text else ""
    too_much = any(overload.device == device for overload in row_overloads(row))
    return Share(number(100 * share, 1), text, "overloaded" if too_much else "")


MOST_BARS = 64
"""Most bars of batch sizes; larger batches are grouped evenly."""
TIMELINE_NUMBERS = 40_000
"""Most numbers of all timelines of a page, which limits its size."""
FEWEST_CHANGES = 100

BATCH_COLUMNS = (
    ("mean_batch", "mean batch", 1.0, ""),
    ("full_share", "full, % of steps", 100.0, ""),
    ("below_8_share", "below 8, % of steps", 100.0, ""),
    ("padding_share", "padding, % of source tokens", 100.0, ""),
    ("busy_share", "busy, % of the time", 100.0, ""),
    ("mean_queue_s", "waiting, ms", 1e3, ""),
    ("first_token_mean_s", "to the first token, ms", 1e3, "first_token_p95_s"),
    ("sentences_per_s", "sentences/s", 1.0, "busy_sentences_per_s"),
    ("tokens_per_s", "tokens/s", 1.0, "busy_tokens_per_s"),
)
"""Key of the summary without the device's name, head, factor, and key of the number below."""


def batching_devices(cell: RecordedCell) -> list[int]:
    """Return the places of the devices that formed batches under any policy."""
    return [
        number
        for number in range(len(cell.devices))
        if any(number < len(accounts) and accounts[number] is not None for accounts in cell.batches.values())
    ]


def batch_panels(view: CellView[RecordedCell]) -> list[Panel]:
    """Return the figures of batches: how many sentences are active, step by step and in all; empty without batches."""
    cell = view.cell
    devices = batching_devices(cell)
    if not devices:
        return []
    share = TIMELINE_NUMBERS // max(2 * view.cells * len(devices) * len(cell.logs), 1)
    changes = max(share, FEWEST_CHANGES)
    accounts = {
        (str(device), policy): account
        for device in devices
        for policy in cell.logs
        if (account := _account(cell, policy, device)) is not None and account.steps.sum()
    }

    def active(device: str, policy: str) -> Chart:
        name = view.policies[int(policy)]
        axes = Axis("decode step of the first server"), Axis("active sentences", from_zero=True)
        account = accounts.get((device, name))
        if account is None:
            return Chart([], *axes, f"Nothing is decoded there under {name}.")
        if not len(account.timeline):
            return Chart([], *axes, f"Nothing is decoded at the first server under {name}. {_describe_batches(account)}")
        step, sentences = account.timeline[:changes].T.tolist()
        hover = "%{y} active from step %{x} on"
        curve = view.line(name, step, sentences, dash="solid", width=1.4, step=True, fill="rtt-wash", hover=hover)
        limit = Mark("line", [0, step[-1]], [account.size] * 2, "largest batch", dash="dot", width=1.2, hover="")
        reading = f"The first {number(len(step), 0)} changes of the batch. In all: {_describe_batches(account)}"
        return Chart([curve, limit], *axes, reading)

    def sizes(device: str, of: str) -> Chart:
        used = {policy: account for (place, policy), account in accounts.items() if place == device}
        marks = [_size_line(view, policy, account, of) for policy, account in used.items()]
        unused = [policy for policy in cell.logs if policy not in used]
        title = "share of the decoding time, %" if of == "time" else "share of the decode steps, %"
        reading = f"Nothing is decoded there under {format_list(unused)}." if unused else ""
        return Chart(marks, Axis("active sentences", from_zero=True), Axis(title, from_zero=True), reading)

    at = Control("device", "At the", [(str(device), cell.devices[device].name) for device in devices])
    policies = Control("policy", "Policy", [(str(place), name) for place, name in enumerate(cell.logs)], str(most_used(cell)))
    return [
        panel(
            "active",
            "The batch, step by step",
            f"Active sentences over decode steps, with the largest batch, {view.place}",
            active,
            [at, policies],
            caption="Sentences decoded together from one step to the next, at the beginning of the run.",
        ),
        panel(
            "sizes",
            "How full the batches are",
            f"Percentage of decode steps or of their time by active sentences, one line per policy, {view.place}",
            sizes,
            [at, Control("of", "Share", [("steps", "of the steps"), ("time", "of the time")])],
            caption="Share of the decode steps, or of their time, by the number of sentences active in them.",
        ),
    ]


def _size_line(view: CellView[RecordedCell], policy: str, account: BatchAccount, of: str) -> Mark:
    """Return the shares of steps, or of their time, by active sentences; large batches in even groups of sizes."""
    wide = -(-account.size // MOST_BARS)
    first = np.arange(1, account.size + 1, wide)
    # Sizes begin at 1: every step has an active sentence.
    values = np.add.reduceat((account.step_s if of == "time" else account.steps)[1:], first - 1)
    last = np.minimum(first + wide - 1, account.size)
    labels = [f"{low}" if low == high else f"{low} to {high}" for low, high in zip(first.tolist(), last.tolist(), strict=True)]
    symbol = SYMBOLS[view.policies.index(policy) % len(SYMBOLS)]
    shares = thinning.numbers(100.0 * values / max(values.sum(), 1e-300), 4)
    return view.line(policy, first.tolist(), shares, width=1.6, symbol=symbol, text=labels, hover="%{text} active: %{y:.2f} %")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the summary as text, with its key and a second text below it."""

    key: str
    text: str
    beside: str = ""


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """The numbers of one device under one policy."""

    device: str
    policy: str
    figures: list[Figure]


def _policy_line(row: Row, device: str, policy: str, columns: Sequence[tuple[str, str, float, str]]) -> PolicyLine:
    figures = []
    for key, _, factor, below in columns:
        value, second = row.get(f"{device}_{key}"), row.get(f"{device}_{below}")
        beside = _BESIDE[below].format(_scaled(below, factor * second)) if below and is_number(second) else ""
        figures.append(Figure(f"{device}_{key}", _scaled(key, factor * value) if is_number(value) else DASH, beside))
    return PolicyLine(device, policy, figures)


_BESIDE = {
    "first_token_p95_s": "p95 {}",
    "busy_sentences_per_s": "{} while busy",
    "busy_tokens_per_s": "{} while busy",
    "peak_buffer_bytes": "peak {}",
}
"""The text below a number, by the key of the second number."""


def _scaled(key: str, shown: float) -> str:
    return number(shown, 1) if key.endswith("_share") else significant(shown, 4)


def batch_lines(cell: Cell, rows: Sequence[Row]) -> list[PolicyLine]:
    """Return per batching device a line of numbers for each policy that used it; `rows`: those of the cell."""
    by_policy = {row["policy"]: row for row in rows}
    return [
        _policy_line(by_policy.get(policy, {}), cell.devices[device].name, policy, BATCH_COLUMNS)
        for device in batching_devices(cell)
        for policy in cell.logs
        if (account := _account(cell, policy, device)) is not None and account.sentences
    ]


def most_used(cell: RecordedCell) -> int:
    """Return the place of the policy with the most decode steps, whose batches are shown first."""
    steps = [
        sum(int(account.steps.sum()) for account in cell.batches.get(policy, ()) if account is not None) for policy in cell.logs
    ]
    return steps.index(max(steps))


def _account(cell: RecordedCell, policy: str, device: int) -> BatchAccount | None:
    accounts = cell.batches.get(policy, ())
    return accounts[device] if device < len(accounts) else None


def _describe_batches(account: BatchAccount) -> str:
    total = int(account.steps.sum())
    return (
        f"{number(total, 0)} steps, {significant(account.mean_active, 3)} of {account.size} active on average; full in "
        f"{number(100 * account.share_full, 1)} % of them, fewer than {SMALL_BATCH} in "
        f"{number(100 * account.share_below(SMALL_BATCH), 1)} %."
    )


STREAM_COLUMNS = (
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
    ("disk_busy_share", "disk busy, % of the time", 100.0, ""),
)
"""Key of the summary without the device's name, head, factor, and key of the number below."""
PLAN_COLUMNS = ("reads, MB", "held before, MB", "shards by bits", "predicted, ms", "of it stalled, ms")


@dataclass(frozen=True, slots=True)
class StreamedDevice:
    """A device that streams its model: plans, picture, and the numbers of each policy that used it."""

    name: str
    kind: str
    planned: PlannedDevice
    submodel: str
    states: list[tuple[str, tuple[str, ...]]]
    """Name of each planned state, and a text for each of `PLAN_COLUMNS`."""
    picture: Markup
    lines: list[PolicyLine]


def streamed_devices(cell: Cell, rows: Sequence[Row]) -> list[StreamedDevice]:
    """Return the streamed devices of a cell; `rows`: those of the cell."""
    by_policy = {row["policy"]: row for row in rows}
    devices = []
    for device, kind, planned in zip(cell.devices, cell.shown_kinds, cell.planned, strict=False):
        if planned is None:
            continue
        used = [policy for policy, name, account in cell.stream_accounts() if name == device.name and account.requests.any()]
        changed = [
            (f"{state.name}, from {number(change.at_s, 0)}\u202fs on", _plan_texts(state))
            for change in planned.changes
            for state in change.states
        ]
        lines = [
            _policy_line(by_policy.get(policy, {}), device.name, policy, STREAM_COLUMNS)
            for policy in cell.logs
            if policy in used
        ]
        states = [(state.name, _plan_texts(state)) for state in planned.states] + changed
        picture = planned_pipelines_svg(planned, f"{device.name}, as planned")
        devices.append(StreamedDevice(device.name, kind, planned, _describe_submodel(planned), states, picture, lines))
    return devices


def planned_pipelines_svg(planned: PlannedDevice, title: str) -> Markup:
    """Return the pipelines of all states, as predicted for requests of the planned lengths."""
    return pipeline_svg(title, [_planned_pipeline(state, planned.all_layers) for state in planned.states], planned.deadline_s)


def _planned_pipeline(state: PlannedState, encoder_layers: int) -> DrawnPipeline:
    load_begin, load_end = np.array(state.load).T
    begin, end = np.array(state.compute).T
    stall = begin - np.array([state.before_s, *end[:-1]])
    later_s = max(state.latency_s - float(end[-1]), 0.0)
    layers = [*range(state.layers), *(encoder_layers + layer for layer in range(state.decoder_layers))]
    return DrawnPipeline(state.name, Timeline(load_begin, load_end, begin, end, stall, later_s, state.before_s), layers)


def _describe_submodel(planned: PlannedDevice) -> str:
    first = planned.states[0]
    layers = f"{first.layers} of {planned.all_layers}"
    if planned.all_decoder_layers:
        layers += f" encoder and {first.decoder_layers} of {planned.all_decoder_layers} decoder"
    lengths = f"{planned.src_len} source" + (f" and {planned.tgt_len} target" if planned.tgt_len else "") + " tokens"
    return f"{layers} layers, {first.slices} of {planned.all_slices} slices of each, planned for {lengths}"


def _plan_texts(state: PlannedState) -> tuple[str, ...]:
    shards = ", ".join(f"{count} of {width}" for width, count in state.bits)
    read, held, latency, stall = (
        significant(value)
        for value in (1e-6 * state.read_bytes, 1e-6 * state.held_bytes, 1e3 * state.latency_s, 1e3 * state.stall_s)
    )
    return read, held, shards, latency, stall
