"""Rows of what studies of trained classifiers measured: deadlines, submodels, raised shards, buffers (STI-22 to 27)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simnmt.reproduce.sti import published, ways
from simnmt.reproduce.sti.fidelity_claims import by_size, importance_gain
from simnmt.reproduce.sti.studies import basis_of

if TYPE_CHECKING:
    from simnmt.calibrate.sti_study.document import Point, StudiedDevice, Study

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
            own = ways.of(study, device, "STI")
            for method in dict.fromkeys(each.method for each in study.grid if each.method != "STI"):
                other = ways.of(study, device, method)
                found = ways.gain(study, own, other)
                if found is None:
                    continue
                kept = ways.in_time(own, other)
                kept_gain = ways.gain(study, own, other, kept)
                rows.append(
                    {
                        "kind": basis_of(study, [device.name]),
                        "study": study.name,
                        "device": device.name,
                        "method": method,
                        "gain_in_time": None if kept_gain is None else ways.POINTS * kept_gain.difference,
                        "low_in_time": None if kept_gain is None else ways.POINTS * kept_gain.low,
                        "high_in_time": None if kept_gain is None else ways.POINTS * kept_gain.high,
                        "deadlines_in_time": len(kept),
                        "accuracy_in_time": ways.accuracy(own, kept) if kept else None,
                        "accuracy_other_in_time": ways.accuracy(other, kept) if kept else None,
                        "gain": ways.POINTS * found.difference,
                        "low": ways.POINTS * found.low,
                        "high": ways.POINTS * found.high,
                        "accuracy": ways.accuracy(own),
                        "accuracy_other": ways.accuracy(other),
                        "deadlines": len(ways.common(own, other)),
                        "missed": len(ways.missed(own)),
                        "missed_other": len(ways.missed(other)),
                        "shards_ratio": ways.ratio(own, other, lambda each: each.shards),
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
                    own = ways.of(study, device, method, share)
                    if own:
                        rows.append(
                            {
                                "study": study.name,
                                "device": device.name,
                                "method": method,
                                "preload_share": share,
                                "sizes": {f"{100 * at:g}": [each.layers, each.slices] for at, each in own.items()},
                                "shards": fmean(each.shards for each in own.values()),
                                "accuracy": ways.accuracy(own),
                                "missed": len(ways.missed(own)),
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
                    "gain": None if found is None else ways.POINTS * found.difference,
                    "low": None if found is None else ways.POINTS * found.low,
                    "high": None if found is None else ways.POINTS * found.high,
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
