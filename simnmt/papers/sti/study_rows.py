"""Table rows and drawn pipelines from studies of trained classifiers (STI-12, STI-21 to 27)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simnmt.papers.sti import comparison, published
from simnmt.papers.sti.evidence import basis_of
from simnmt.papers.sti.paper_claims import motivating_pipeline
from simnmt.papers.sti.study_claims import by_size, importance_gain
from simnmt.streaming.plan.timeline import Timeline, load_then_run, timeline

if TYPE_CHECKING:
    from simnmt.papers.sti.study import Point, StudiedDevice, Study

Rows = list[dict[str, Any]]
MB = 1e6


def gains(studies: Sequence[Study]) -> Rows:
    """Return the points gained by STI over each other method, printed and ours."""
    rows: Rows = [
        {
            "kind": "published",
            "study": "GLUE, mean",
            "device": board,
            "method": method,
            "gain_in_time": None,
            "low_in_time": None,
            "high_in_time": None,
            "deadlines_in_time": None,
            "accuracy_in_time": None,
            "accuracy_other_in_time": None,
            "gain": gain,
            "low": None,
            "high": None,
            "accuracy": None,
            "accuracy_other": None,
            "deadlines": len(published.DEADLINES_S),
            "missed": None,
            "missed_other": None,
            "shards_ratio": next(ratio for methods, ratio in published.SHARDS.items() if method in methods.split(", ")),
        }
        for board, by_method in published.GAINS.items()
        for method, gain in by_method.items()
    ]
    for study in studies:
        for device in study.devices:
            planned = comparison.of(study, device, "STI")
            for method in dict.fromkeys(point.method for point in study.grid if point.method != "STI"):
                other = comparison.of(study, device, method)
                gain = comparison.gain(study, planned, other)
                if gain is None:
                    continue
                kept = comparison.in_time(planned, other)
                kept_gain = comparison.gain(study, planned, other, kept)
                rows.append(
                    {
                        "kind": basis_of(study, [device.name]),
                        "study": study.name,
                        "device": device.name,
                        "method": method,
                        "gain_in_time": None if kept_gain is None else comparison.POINTS * kept_gain.difference,
                        "low_in_time": None if kept_gain is None else comparison.POINTS * kept_gain.low,
                        "high_in_time": None if kept_gain is None else comparison.POINTS * kept_gain.high,
                        "deadlines_in_time": len(kept),
                        "accuracy_in_time": comparison.accuracy(planned, kept) if kept else None,
                        "accuracy_other_in_time": comparison.accuracy(other, kept) if kept else None,
                        "gain": comparison.POINTS * gain.difference,
                        "low": comparison.POINTS * gain.low,
                        "high": comparison.POINTS * gain.high,
                        "accuracy": comparison.accuracy(planned),
                        "accuracy_other": comparison.accuracy(other),
                        "deadlines": len(comparison.common(planned, other)),
                        "missed": len(comparison.missed(planned)),
                        "missed_other": len(comparison.missed(other)),
                        "shards_ratio": comparison.ratio(planned, other, lambda point: point.shards),
                    }
                )
    return rows


def grid(studies: Sequence[Study]) -> Rows:
    """Return a row for every method under every deadline."""
    return [_point(study, point) for study in studies for point in study.grid]


def sizes(studies: Sequence[Study]) -> Rows:
    """Return rows of STI with buffers of many sizes."""
    return [_point(study, point) for study in studies for point in study.sizes]


def _point(study: Study, point: Point) -> dict[str, Any]:
    return {
        "study": study.name,
        "device": point.device,
        "method": point.method,
        "deadline_share": point.deadline_share,
        "deadline_ms": 1e3 * point.deadline_s,
        "preload_share": point.preload_share,
        "preload_mb": point.preload_bytes / MB,
        "layers": point.layers,
        "slices": point.slices,
        "bits": {str(bits): count for bits, count in point.bits.items()},
        "mean_bits": sum(bits * count for bits, count in point.bits.items()) / point.shards if point.shards else None,
        "held_mb": point.held_bytes / MB,
        "working_mb": point.working_bytes / MB,
        "latency_ms": 1e3 * point.latency_s,
        "stall_ms": 1e3 * point.stall_s,
        "io_busy_ms": 1e3 * point.io_s,
        "compute_busy_ms": 1e3 * point.busy_s,
        "misses": point.misses,
        "flagged": point.flagged,
        "accuracy": None if point.outcome is None else point.outcome.accuracy,
        "log_likelihood": None if point.outcome is None else point.outcome.log_likelihood,
        "agreement": None if point.outcome is None else point.outcome.agreement,
    }


def submodels(studies: Sequence[Study]) -> Rows:
    """Return n x m by method and deadline, in the place of Table 6."""
    rows: Rows = []
    for study in studies:
        for device in study.devices:
            for method in dict.fromkeys(point.method for point in study.grid):
                for share in _preloads(study, device, method):
                    by_deadline = comparison.of(study, device, method, share)
                    if by_deadline:
                        rows.append(
                            {
                                "study": study.name,
                                "device": device.name,
                                "method": method,
                                "preload_share": share,
                                "sizes": {f"{100 * at:g}": [point.layers, point.slices] for at, point in by_deadline.items()},
                                "shards": fmean(point.shards for point in by_deadline.values()),
                                "accuracy": comparison.accuracy(by_deadline),
                                "missed": len(comparison.missed(by_deadline)),
                                "held_mb": fmean(point.held_bytes for point in by_deadline.values()) / MB,
                                "working_mb": fmean(point.working_bytes for point in by_deadline.values()) / MB,
                            }
                        )
    return rows


def _preloads(study: Study, device: StudiedDevice, method: str) -> list[float | None]:
    shares = {point.preload_share for point in study.grid if (point.device, point.method) == (device.name, method)}
    return sorted(shares, key=lambda share: -1.0 if share is None else share)


def uniform(studies: Sequence[Study]) -> Rows:
    """Return rows of submodels with every shard at one bitwidth."""
    return [
        {
            "study": study.name,
            "layers": submodel.layers,
            "slices": submodel.slices,
            "bits": submodel.bits,
            "accuracy": submodel.outcome.accuracy,
            "log_likelihood": submodel.outcome.log_likelihood,
            "agreement": submodel.outcome.agreement,
        }
        for study in studies
        for submodel in by_size(study.uniform)
    ]


def upgrades(studies: Sequence[Study]) -> Rows:
    """Return rows of shards raised by importance and at random, in the place of Table 7."""
    rows: Rows = []
    for study in studies:
        for case in study.upgrades:
            by_chance = [outcome.accuracy for outcome in case.random]
            gain = importance_gain(study, case) if by_chance else None
            rows.append(
                {
                    "study": study.name,
                    "layers": case.layers,
                    "slices": case.slices,
                    "raised": case.raised,
                    "to_bits": case.to_bits,
                    "base": case.base.accuracy,
                    "best": case.best.accuracy,
                    "random_mean": fmean(by_chance) if by_chance else None,
                    "random_least": min(by_chance, default=None),
                    "random_most": max(by_chance, default=None),
                    "orders": len(by_chance),
                    "beaten": sum(accuracy <= case.best.accuracy for accuracy in by_chance),
                    "gain": None if gain is None else comparison.POINTS * gain.difference,
                    "low": None if gain is None else comparison.POINTS * gain.low,
                    "high": None if gain is None else comparison.POINTS * gain.high,
                    "agreement": case.best.agreement,
                }
            )
    return rows


def greedy(studies: Sequence[Study]) -> Rows:
    """Return rows of the planner beside the exact one."""
    return [{"study": study.name} | case.model_dump() for study in studies for case in study.greedy]


def devices(studies: Sequence[Study]) -> Rows:
    """The costs that plans were made by."""
    return [
        {
            "study": study.name,
            "device": device.name,
            "kind": device.kind,
            "said": device.said,
            "skew": device.skew,
            "layer_ms": 1e3 * device.comp_s[-1],
            "quarter_ms": 1e3 * device.comp_s[max(len(device.comp_s) // 4, 1) - 1],
            "embed_ms": 1e3 * device.embed_s,
            "head_ms": 1e3 * device.head_s,
            "slowed": max(device.slowed, default=1.0),
            "io_ms": {str(bits): 1e3 * seconds for bits, seconds in device.io_s.items()},
            "preload_share": device.preload_share,
            "length": study.length,
        }
        for study in studies
        for device in study.devices
    ]


def runs(studies: Sequence[Study]) -> Rows:
    """How and when each part was measured."""
    return [{"study": study.name} | run.model_dump(mode="json") for study in studies for run in study.runs]


def models(studies: Sequence[Study]) -> Rows:
    """What was studied, with the sums that say which files."""
    return [
        {
            "study": study.name,
            "model": study.model.model_dump(),
            "task": study.task.model_dump(),
            "store": study.store.model_dump(mode="json"),
            "layers_mb": study.model.layers_bytes / MB,
            "importance_task_sha256": study.importance.task_sha256,
            "importance_on_same": study.importance.task_sha256 == study.task.sha256,
            "importance_task": study.importance.task,
            "importance_examples": study.importance.examples,
            "importance_shared": study.importance.shared,
            "evaluations": study.importance.evaluations,
            "tool": study.tool,
        }
        for study in studies
    ]


DRAWN_SHARE = 0.175
"""The deadline that is drawn: the paper's 200 ms where a layer takes 95 ms; the nearest that a study has."""


def timelines(studies: Sequence[Study]) -> list[dict[str, Any]]:
    """Return groups of pipelines under one deadline, with the times of every layer in seconds."""
    layers = published.DISTIL_LAYERS
    load_s, comp_s = [published.LAYER_LOAD_S] * layers, [published.LAYER_COMP_S] * layers
    groups: list[dict[str, Any]] = [
        {
            "name": "Published: six layers of DistilBERT",
            "kind": "published",
            "deadline_s": None,
            "pipelines": [
                _pipeline_row("pipeline", motivating_pipeline()),
                _pipeline_row("load, then run", load_then_run(load_s, comp_s)),
            ],
        }
    ]
    for study in studies:
        for device in study.devices:
            points = [point for point in study.grid if point.device == device.name and point.layers]
            if points:
                share = min((point.deadline_share for point in points), key=lambda share: abs(share - DRAWN_SHARE))
                drawn = [point for point in points if point.deadline_share == share]
                groups.append(
                    {
                        "name": f"{study.name}, {device.name}, {100 * share:g} % of the whole computation",
                        "kind": device.kind,
                        "deadline_s": drawn[0].deadline_s,
                        "pipelines": [
                            _pipeline_row(pipeline_name(point), studied_timeline(point, device)) | _answer(point)
                            for point in drawn
                        ],
                    }
                )
    return groups


def studied_timeline(point: Point, device: StudiedDevice) -> Timeline:
    """Return the timeline of a point on its device, layer by layer."""
    run = load_then_run if point.method == "Load&Exec" else timeline
    comp_s = [point.comp_s] * point.layers
    slowed = device.slowed[point.slices - 1] if device.slowed else 1.0
    return run(list(point.load_s), comp_s, device.head_s, slowed, before_s=device.embed_s)


def pipeline_name(point: Point) -> str:
    """Return a label of the method, the submodel and the bytes preloaded."""
    held = f", {point.held_bytes / 1e6:.3g} MB" if point.preload_share is not None and point.held_bytes else ""
    return f"{point.method}, {point.layers} x {point.slices}{held}"


def _answer(point: Point) -> dict[str, Any]:
    return {"accuracy": None if point.outcome is None else point.outcome.accuracy, "misses": point.misses}


def _pipeline_row(name: str, times: Timeline) -> dict[str, Any]:
    return {
        "name": name,
        "latency_s": times.latency_s,
        "stall_s": times.stall_s,
        "load_begin": times.load_begin.tolist(),
        "load_end": times.load_end.tolist(),
        "compute_begin": times.compute_begin.tolist(),
        "compute_end": times.compute_end.tolist(),
        "stall": times.stall.tolist(),
    }
