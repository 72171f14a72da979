"""Compute the backlog and the utilisation of every device over the time of a run, by spans of time.

A request is assumed to reach its queue when half of its transfer time has passed since it was issued, which is exact if the
ways there and back take equally long. It leaves the queue when its execution starts, and occupies a worker until the end. In a
batch it occupies a place from its first step on: before, it is encoded and waits for a place beside a batch that may be full.
Each number is a mean over its span, not a sample of it, so that nothing short is missed; summed over all spans, a backlog is
the sum of the waits (Little's law), and the work is the sum of the executions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.results.summary import Device

Log = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class DeviceTimeline:
    """Means over spans of time; shape (devices, spans)."""

    edges_s: Floats
    """Begin of each span and end of the last one; shape (spans + 1,)."""
    waiting: Floats
    """Waiting requests, at all boxes of a device together."""
    busy_share: Floats
    """Share of a device's workers that execute a request; if it batches, of the places in its batches those of sentences that
    have taken their first step."""


def device_timeline(log: Log, devices: Sequence[Device], spans: int) -> DeviceTimeline:
    """Return the backlog and the utilisation of one run's devices, in the order of the targets.

    Four fifths of the spans divide the time until the last request is issued evenly, the others divide the remaining time.
    There are no others if that is no longer than one of the spans before it. At least 2 spans.
    """
    last_s = float(log["arrival_s"].max(initial=0.0))
    end_s = float((log["arrival_s"] + log["latency_s"]).max(initial=0.0))
    edges_s = edges(last_s, end_s, spans)
    waiting_s, busy_s = (np.zeros((len(devices), edges_s.size - 1)) for _ in range(2))
    target, execution_s = log["target"], log["t_exe_s"]
    entry_s = log["arrival_s"] + log["t_tx_s"] / 2
    start_s = entry_s + log["t_queue_s"]
    for number in np.unique(target).tolist():
        there = target == number
        starts_s = start_s[there]
        ends_s = starts_s + execution_s[there]
        waiting_s[number] += presence_s(entry_s[there], starts_s, edges_s)
        if devices[number].batch is None:
            busy_from_s = starts_s
        else:
            first_s = entry_s[there] + log["first_token_s"][there]
            busy_from_s = np.where(np.isnan(first_s), ends_s, first_s)
        busy_s[number] += presence_s(busy_from_s, ends_s, edges_s)
    length_s = np.diff(edges_s)
    workers = np.array([device.servers * (device.batch or device.workers) for device in devices], np.float64)
    return DeviceTimeline(edges_s, waiting_s / length_s, busy_s / (workers[:, None] * length_s))


def edges(last_s: float, end_s: float, spans: int) -> Floats:
    """Return the edges of the spans over the run (`device_timeline`)."""
    body = spans * 4 // 5
    if last_s <= 0.0 or end_s - last_s <= last_s / body:
        return np.linspace(0.0, end_s or 1.0, spans + 1)
    return np.concatenate([np.linspace(0.0, last_s, body + 1), np.linspace(last_s, end_s, spans - body + 1)[1:]])


def presence_s(begin_s: Floats, end_s: Floats, edges_s: Floats) -> Floats:
    """Return the seconds that all intervals together spend in each span; shape (spans,).

    They are counted at the edges and corrected within the spans where intervals begin and end, in one pass whatever their
    length. Time before the first edge or after the last one is left out.
    """
    present = np.zeros(edges_s.size - 1)
    for moments_s, sign in ((begin_s, 1.0), (end_s, -1.0)):
        within = np.clip(moments_s, edges_s[0], edges_s[-1])
        span = np.clip(np.searchsorted(edges_s, within, side="right") - 1, 0, present.size - 1)
        rest_s = np.bincount(span, edges_s[span + 1] - within, present.size)
        before = np.cumsum(np.bincount(span, minlength=present.size)) - np.bincount(span, minlength=present.size)
        present += sign * (rest_s + before * np.diff(edges_s))
    return np.maximum(present, 0.0)
