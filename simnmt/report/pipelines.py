"""Pipelines of streamed models drawn as SVG (STI-12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

import numpy as np
from markupsafe import Markup

from simnmt.report.page_template import render_fragment
from simnmt.results.device_accounts import PlannedDevice, PlannedState
from simnmt.streaming.plan.timeline import Timeline

LABEL, PLOT = 66, 824
"""Widths of labels and plot."""
MOST_TICKS = 8


@dataclass(frozen=True, slots=True)
class DrawnPipeline:
    """A pipeline to draw, planned or measured, with its name."""

    name: str
    timeline: Timeline
    layers: Sequence[int] | None = None
    """Numbers of the layers; None: from 0."""


def pipeline_svg(title: str, pipelines: Sequence[DrawnPipeline], deadline_s: float | None = None) -> Markup:
    """Return one picture of all pipelines on one axis of milliseconds."""
    longest_s = max(*(pipeline.timeline.latency_s for pipeline in pipelines), deadline_s or 0.0, 1e-9)
    return render_fragment(
        "pipelines.svg.j2",
        title=title,
        left=LABEL,
        plot=PLOT,
        scale=PLOT / longest_s,
        ticks_s=_ticks(longest_s),
        deadline_s=deadline_s,
        pipelines=[(pipeline.name, _boxes(pipeline)) for pipeline in pipelines],
    )


def _boxes(pipeline: DrawnPipeline) -> list[tuple[str, float, float, str, str]]:
    """Return kind, begin, end, description and short text of each box that takes time."""
    timeline = pipeline.timeline
    numbers = range(len(timeline.stall)) if pipeline.layers is None else pipeline.layers
    boxes = []
    for layer, (load_begin, load_end, begin, end, stall) in zip(numbers, timeline.rows(), strict=True):
        boxes += [
            ("io", load_begin, load_end, f"layer {layer} read", str(layer)),
            ("stall", begin - stall, begin, f"waiting for layer {layer}", ""),
            ("compute", begin, end, f"layer {layer} computed", str(layer)),
        ]
    last = float(timeline.compute_end[-1])
    boxes += [
        ("later", 0.0, timeline.before_s, "embedding", ""),
        ("later", last, last + timeline.after_s, "head and later decoder steps", ""),
    ]
    return [box for box in boxes if box[2] > box[1]]


def _ticks(longest_s: float) -> list[float]:
    step = 10.0 ** floor(log10(longest_s / MOST_TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if longest_s / (factor * step) <= MOST_TICKS)
    return [number * step for number in range(int(longest_s / step + 1e-9) + 1)]


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
