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
    """Points of STI over each other way, printed and ours."""
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
        for board, own in published.GAINS.items()
        for method, gain in own.items()
    ]
    for study in studies:
        for device in study.devices:
            own = comparison.of(study, device, "STI")
            for method in dict.fromkeys(each.method for each in study.grid if each.method != "STI"):
                other = comparison.of(study, device, method)
                found = comparison.gain(study, own, other)
                if found is None:
                    continue
                kept = comparison.in_time(own, other)
                kept_gain = comparison.gain(study, own, other, kept)
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
                        "accuracy_in_time": comparison.accuracy(own, kept) if kept else None,
                        "accuracy_other_in_time": comparison.accuracy(other, kept) if kept else None,
                        "gain": comparison.POINTS * found.difference,
                        "low": comparison.POINTS * found.low,
                        "high": comparison.POINTS * found.high,
                        "accuracy": comparison.accuracy(own),
                        "accuracy_other": comparison.accuracy(other),
                        "deadlines": len(comparison.common(own, other)),
                        "missed": len(comparison.missed(own)),
                        "missed_other": len(comparison.missed(other)),
                        "shards_ratio": comparison.ratio(own, other, lambda each: each.shards),
                    }
                )
    return rows


def grid(studies: Sequence[Study]) -> Rows:
    """Every way under every deadline."""
    return [_point(study, each) for study in studies for each in study.grid]


def sizes(studies: Sequence[Study]) -> Rows:
    """STI with buffers of many sizes."""
    return [_point(study, each) for study in studies for each in study.sizes]


def _point(study: Study, each: Point) -> dict[str, Any]:
    return {
        "study": study.name,
        "device": each.device,
        "method": each.method,
        "deadline_share": each.deadline_share,
        "deadline_ms": 1e3 * each.deadline_s,
        "preload_share": each.preload_share,
        "preload_mb": each.preload_bytes / MB,
        "layers": each.layers,
        "slices": each.slices,
        "bits": {str(bits): count for bits, count in each.bits.items()},
        "mean_bits": sum(bits * count for bits, count in each.bits.items()) / each.shards if each.shards else None,
        "held_mb": each.held_bytes / MB,
        "working_mb": each.working_bytes / MB,
        "latency_ms": 1e3 * each.latency_s,
        "stall_ms": 1e3 * each.stall_s,
        "io_busy_ms": 1e3 * each.io_s,
        "compute_busy_ms": 1e3 * each.busy_s,
        "misses": each.misses,
        "flagged": each.flagged,
        "accuracy": None if each.outcome is None else each.outcome.accuracy,
        "log_likelihood": None if each.outcome is None else each.outcome.log_likelihood,
        "agreement": None if each.outcome is None else each.outcome.agreement,
    }


def submodels(studies: Sequence[Study]) -> Rows:
    """n x m by way and deadline, in the place of Table 6."""
    rows: Rows = []
    for study in studies:
        for device in study.devices:
            for method in dict.fromkeys(each.method for each in study.grid):
                for share in _preloads(study, device, method):
                    own = comparison.of(study, device, method, share)
                    if own:
                        rows.append(
                            {
                                "study": study.name,
                                "device": device.name,
                                "method": method,
                                "preload_share": share,
                                "sizes": {f"{100 * at:g}": [each.layers, each.slices] for at, each in own.items()},
                                "shards": fmean(each.shards for each in own.values()),
                                "accuracy": comparison.accuracy(own),
                                "missed": len(comparison.missed(own)),
                                "held_mb": fmean(each.held_bytes for each in own.values()) / MB,
                                "working_mb": fmean(each.working_bytes for each in own.values()) / MB,
                            }
                        )
    return rows


def _preloads(study: Study, device: StudiedDevice, method: str) -> list[float | None]:
    found = {each.preload_share for each in study.grid if (each.device, each.method) == (device.name, method)}
    return sorted(found, key=lambda share: -1.0 if share is None else share)


def uniform(studies: Sequence[Study]) -> Rows:
    """Submodels with every shard at one bitwidth."""
    return [
        {
            "study": study.name,
            "layers": each.layers,
            "slices": each.slices,
            "bits": each.bits,
            "accuracy": each.outcome.accuracy,
            "log_likelihood": each.outcome.log_likelihood,
            "agreement": each.outcome.agreement,
        }
        for study in studies
        for each in by_size(study.uniform)
    ]


def upgrades(studies: Sequence[Study]) -> Rows:
    """Shards raised by importance and at random, in the place of Table 7."""
    rows: Rows = []
    for study in studies:
        for case in study.upgrades:
            by_chance = [each.accuracy for each in case.random]
            found = importance_gain(study, case) if by_chance else None
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
                    "beaten": sum(own <= case.best.accuracy for own in by_chance),
                    "gain": None if found is None else comparison.POINTS * found.difference,
                    "low": None if found is None else comparison.POINTS * found.low,
                    "high": None if found is None else comparison.POINTS * found.high,
                    "agreement": case.best.agreement,
                }
            )
    return rows


def greedy(studies: Sequence[Study]) -> Rows:
    """The planner beside the exact one."""
    return [{"study": study.name} | each.model_dump() for study in studies for each in study.greedy]


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
    """Groups of pipelines under one deadline, each with its layers' times in seconds."""
    layers = published.DISTIL_LAYERS
    load_s, comp_s = [published.LAYER_LOAD_S] * layers, [published.LAYER_COMP_S] * layers
    found: list[dict[str, Any]] = [
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
            own = [each for each in study.grid if each.device == device.name and each.layers]
            if own:
                share = min((each.deadline_share for each in own), key=lambda share: abs(share - DRAWN_SHARE))
                drawn = [each for each in own if each.deadline_share == share]
                found.append(
                    {
                        "name": f"{study.name}, {device.name}, {100 * share:g} % of the whole computation",
                        "kind": device.kind,
                        "deadline_s": drawn[0].deadline_s,
                        "pipelines": [
                            _pipeline_row(pipeline_name(each), studied_timeline(each, device)) | _answer(each) for each in drawn
                        ],
                    }
                )
    return found


def studied_timeline(point: Point, device: StudiedDevice) -> Timeline:
    """Its execution on that device by our timeline, layer by layer."""
    run = load_then_run if point.method == "Load&Exec" else timeline
    comp_s = [point.comp_s] * point.layers
    slowed = device.slowed[point.slices - 1] if device.slowed else 1.0
    return run(list(point.load_s), comp_s, device.head_s, slowed, before_s=device.embed_s)


def pipeline_name(point: Point) -> str:
    """The way, and how much is preloaded."""
    held = f", {point.held_bytes / 1e6:.3g} MB" if point.preload_share is not None and point.held_bytes else ""
    return f"{point.method}, {point.layers} x {point.slices}{held}"


def _answer(point: Point) -> dict[str, Any]:
    return {"accuracy": None if point.outcome is None else point.outcome.accuracy, "misses": point.misses}


def _pipeline_row(name: str, own: Timeline) -> dict[str, Any]:
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
