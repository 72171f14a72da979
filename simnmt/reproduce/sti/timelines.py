"""Pipelines to be drawn: the paper's motivating one, and each way under one deadline of a study (STI-12, 21)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simnmt.reproduce.sti import published
from simnmt.reproduce.sti.derived import motivating_pipeline
from simnmt.sti.timeline import Timeline, load_then_run, timeline

if TYPE_CHECKING:
    from simnmt.calibrate.sti_study.document import Point, StudiedDevice, Study

DRAWN_SHARE = 0.175
"""The deadline that is drawn: the paper's 200 ms where a layer takes 95 ms; the nearest that a study has."""


def timelines(studies: Sequence[Study]) -> list[dict[str, Any]]:
    """Groups of pipelines under one deadline, each with its layers' times in seconds."""
    layers = published.DISTIL_LAYERS
    load_s, comp_s = [published.LAYER_LOAD_S] * layers, [published.LAYER_COMP_S] * layers
    found: list[dict[str, Any]] = [
        {
            "name": "Published: six layers of DistilBERT",
            "kind": "published",
            "deadline_s": None,
            "pipelines": [
                _told("pipeline", motivating_pipeline()),
                _told("load, then run", load_then_run(load_s, comp_s)),
            ],
        }
    ]
    for study in studies:
        for device in study.devices:
            own = [each for each in study.grid if each.device == device.name and each.layers]
            if own:
                share = min((each.deadline_share for each in own), key=lambda share: abs(share - DRAWN_SHARE))
                drawn = [each for each in own if each.deadline_share == share]
                found.append(
                    {
                        "name": f"{study.name}, {device.name}, {100 * share:g} % of the whole computation",
                        "kind": device.kind,
                        "deadline_s": drawn[0].deadline_s,
                        "pipelines": [_told(name_of(each), studied_timeline(each, device)) | _answer(each) for each in drawn],
                    }
                )
    return found


def studied_timeline(point: Point, device: StudiedDevice) -> Timeline:
    """Its execution on that device by our timeline, layer by layer."""
    run = load_then_run if point.method == "Load&Exec" else timeline
    comp_s = [point.comp_s] * point.layers
    slowed = device.slowed[point.slices - 1] if device.slowed else 1.0
    return run(list(point.load_s), comp_s, device.head_s, slowed, before_s=device.embed_s)


def name_of(point: Point) -> str:
    """The way, and how much is preloaded."""
    held = f", {point.held_bytes / 1e6:.3g} MB" if point.preload_share is not None and point.held_bytes else ""
    return f"{point.method}, {point.layers} x {point.slices}{held}"


def _answer(point: Point) -> dict[str, Any]:
    return {"accuracy": None if point.outcome is None else point.outcome.accuracy, "misses": point.misses}


def _told(name: str, own: Timeline) -> dict[str, Any]:
    return {
        "name": name,
        "latency_s": own.latency_s,
        "stall_s": own.stall_s,
        "load_begin": own.load_begin.tolist(),
        "load_end": own.load_end.tolist(),
        "compute_begin": own.compute_begin.tolist(),
        "compute_end": own.compute_end.tolist(),
        "stall": own.stall.tolist(),
    }
