"""Steps of one output layer timed: all columns and the active ones in turn, whole and stage by stage (FVP-15)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from simnmt.costs.projection_bench import StepTime
from simnmt.costs.projection_cost import WAYS, Way
from simnmt.costs.projection_fit import StagePoint
from simnmt.kernels.gathered import SubMatrix
from simnmt.kernels.interleaved import Run, Times, interleaved
from simnmt.kernels.projection_pipelines import COLUMNS, KEPT, SCATTERED, active_steps, dense_steps
from simnmt.kernels.projection_setting import Layer, Step, drawn_steps
from simnmt.kernels.projection_timing import (
    Timed,
    assign_stages,
    copy_stage,
    dense_stages,
    points_of,
    pushing_out,
    runs_of,
    step_stages,
)

PROBES = 2
"""Rounds in which the ways to multiply are tried before the fastest makes whole steps."""
LEAST_S = 1e-9
"""That a product is said to take where noise leaves it none."""
DENSE = "dense"


@dataclass(frozen=True, slots=True)
class Measured:
    """Steps of one number of rows, and their stages' times as the fit takes them."""

    steps: list[StepTime]
    fitted: list[tuple[str, StagePoint]]
    heldout: list[tuple[str, StagePoint]]


def measured_steps(
    layer: Layer,
    rows: int,
    shares: Mapping[float, bool],
    *,
    rounds: int,
    seed: int,
    clock: Callable[[], float],
    copying: bool = True,
) -> Measured:
    """All that is timed for this number of rows takes turns.

    `shares`: of V, each with whether its stages go into the fit. Whole steps and products find their numbers in memory.
    `copying`: time the copies too that may be kept, which are the same for any rows.
    """
    push_out = pushing_out(layer.weight)
    logits = torch.empty(rows, layer.vocab, device=layer.weight.device)
    # All columns are multiplied in whole steps alone: what the search takes of those is little, and taken off.
    over_all = [each for each in dense_stages(layer, rows) if each.stage == "search"]
    common = [*over_all, *assign_stages(layer, rows)]
    steps = {share: drawn_steps(layer, rows, share, seed=seed) for share in shares}
    kept = {share: SubMatrix.of(layer.weight, own[0].columns) for share, own in steps.items()}
    stages = {share: step_stages(layer, own, kept[share], logits) for share, own in steps.items()}
    if copying:
        stages = {share: [*own, copy_stage(layer, steps[share][0])] for share, own in stages.items()}
    ways = {share: _faster(own, push_out, clock) for share, own in stages.items()}
    timed = [*common, *(each for own in stages.values() for each in own)]
    runs, before = runs_of(timed, push_out)
    dense = dense_steps(layer, next(iter(steps.values()))[0].hidden)
    dense_way = _fastest(dense, push_out, clock)
    whole = {DENSE: dense[dense_way]} | _whole(layer, steps, ways, kept, logits)
    times = interleaved(runs | whole, rounds, before | dict.fromkeys(whole, push_out), least_s=0.0, clock=clock)
    of_all = points_of(common, times)
    dense_s = times.median_s(DENSE) - of_all["search"][0].seconds
    of_all["dense"] = [StagePoint(rows, layer.vocab * layer.width, layer.vocab, max(dense_s, LEAST_S))]
    all_s = {stage: points[-1].seconds for stage, points in of_all.items()}
    found = Measured([], [], [])
    (found.fitted if any(shares.values()) else found.heldout).extend(_named(of_all))
    first = len(common)
    for share, fitted in shares.items():
        points = points_of(stages[share], times, first)
        first += len(stages[share])
        (found.fitted if fitted else found.heldout).extend(_named(points))
        stages_s = {stage: own[0].seconds for stage, own in points.items()}
        stages_s |= {"assign": all_s["assign"], "dense": all_s["dense"], "search_all": all_s["search"]}
        found.steps.append(_step_time(layer, steps[share], fitted, ways[share], dense_way, stages_s, times, share))
    return found


def _whole(
    layer: Layer,
    steps: Mapping[float, Sequence[Step]],
    ways: Mapping[float, Way],
    kept: Mapping[float, SubMatrix],
    logits: torch.Tensor,
) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    for share, own in steps.items():
        of_share = active_steps(layer, own, ways[share], kept[share], logits)
        runs |= {f"{share} {name}": run for name, run in of_share.items()}
    return runs


def _faster(stages: Sequence[Timed], push_out: Run, clock: Callable[[], float]) -> Way:
    """Of the two ways to multiply the active columns."""
    fastest = _fastest({each.stage: each.run for each in stages if each.stage in WAYS}, push_out, clock)
    return next(way for way in WAYS if way == fastest)


def _fastest(runs: Mapping[str, Run], push_out: Run, clock: Callable[[], float]) -> str:
    times = interleaved(runs, PROBES, dict.fromkeys(runs, push_out), least_s=0.0, clock=clock)
    return min(runs, key=times.least_s)


def _step_time(
    layer: Layer,
    steps: Sequence[Step],
    fitted: bool,
    way: Way,
    dense_way: str,
    stages_s: dict[str, float],
    times: Times,
    share: float,
) -> StepTime:
    return StepTime(
        vocab=layer.vocab,
        width=layer.width,
        rows=steps[0].rows,
        columns=sum(len(step.columns) for step in steps) / len(steps),
        indices=sum(step.indices for step in steps) / len(steps),
        fitted=fitted,
        way=way,
        stages_s=stages_s,
        dense_s=times.median_s(DENSE),
        dense_way=dense_way,
        columns_s=times.median_s(f"{share} {COLUMNS}"),
        kept_s=times.median_s(f"{share} {KEPT}"),
        scattered_s=times.median_s(f"{share} {SCATTERED}"),
        ratios={
            "columns": times.ratio(DENSE, f"{share} {COLUMNS}"),
            "kept": times.ratio(DENSE, f"{share} {KEPT}"),
            "scattered": times.ratio(DENSE, f"{share} {SCATTERED}"),
        },
    )


def _named(points: Mapping[str, Sequence[StagePoint]]) -> list[tuple[str, StagePoint]]:
    return [(stage, point) for stage, own in points.items() for point in own]
