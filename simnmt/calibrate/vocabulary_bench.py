"""Time one output layer with all columns and with the active ones: stages, whole steps, break-even (FVP-09, FVP-15)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial

import torch

from simnmt.calibrate import processor_use
from simnmt.calibrate.box.describe import describe
from simnmt.calibrate.projection_bench import BreakEven, ProjectionBench, Setting, StepTime
from simnmt.calibrate.settings import CalibrationError
from simnmt.kernels.columns import SubMatrix
from simnmt.kernels.measurement import Run, Times, interleaved, library_threads
from simnmt.kernels.projection_timing import (
    COLUMNS,
    KEPT,
    SCATTERED,
    Layer,
    Step,
    Timed,
    active_steps,
    assign_stages,
    cache_flush,
    clock_of,
    copy_stage,
    dense_stages,
    dense_steps,
    points_of,
    projection_cost,
    random_layer,
    random_steps,
    runs_of,
    step_stages,
)
from simnmt.profile.projection_cost import PRODUCT_METHODS, ProductMethod, ProjectionCost, StagePoint

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
    """Time all stages and steps for this number of rows in turn.

    `shares`: of V, each with whether its stages go into the fit. Whole steps and products find their numbers in memory.
    `copying`: time the copies too that may be kept, which are the same for any rows.
    """
    push_out = cache_flush(layer.weight)
    logits = torch.empty(rows, layer.vocab, device=layer.weight.device)
    # All columns are multiplied in whole steps alone: what the search takes of those is little, and taken off.
    over_all = [timed_stage for timed_stage in dense_stages(layer, rows) if timed_stage.stage == "search"]
    common = [*over_all, *assign_stages(layer, rows)]
    steps = {share: random_steps(layer, rows, share, seed=seed) for share in shares}
    kept = {share: SubMatrix.of(layer.weight, share_steps[0].columns) for share, share_steps in steps.items()}
    stages = {share: step_stages(layer, share_steps, kept[share], logits) for share, share_steps in steps.items()}
    if copying:
        stages = {share: [*share_stages, copy_stage(layer, steps[share][0])] for share, share_stages in stages.items()}
    methods = {share: _faster(share_stages, push_out, clock) for share, share_stages in stages.items()}
    timed = [*common, *(timed_stage for share_stages in stages.values() for timed_stage in share_stages)]
    runs, before = runs_of(timed, push_out)
    dense = dense_steps(layer, next(iter(steps.values()))[0].hidden)
    dense_method = _fastest(dense, push_out, clock)
    whole = {DENSE: dense[dense_method]} | _whole(layer, steps, methods, kept, logits)
    times = interleaved(runs | whole, rounds, before | dict.fromkeys(whole, push_out), least_s=0.0, clock=clock)
    of_all = points_of(common, times)
    dense_s = times.median_s(DENSE) - of_all["search"][0].seconds
    of_all["dense"] = [StagePoint(rows, layer.vocab * layer.width, layer.vocab, max(dense_s, LEAST_S))]
    all_s = {stage: points[-1].seconds for stage, points in of_all.items()}
    measured = Measured([], [], [])
    (measured.fitted if any(shares.values()) else measured.heldout).extend(_named(of_all))
    first = len(common)
    for share, fitted in shares.items():
        points = points_of(stages[share], times, first)
        first += len(stages[share])
        (measured.fitted if fitted else measured.heldout).extend(_named(points))
        stages_s = {stage: stage_points[0].seconds for stage, stage_points in points.items()}
        stages_s |= {"assign": all_s["assign"], "dense": all_s["dense"], "search_all": all_s["search"]}
        measured.steps.append(_step_time(layer, steps[share], fitted, methods[share], dense_method, stages_s, times, share))
    return measured


def _whole(
    layer: Layer,
    steps: Mapping[float, Sequence[Step]],
    methods: Mapping[float, ProductMethod],
    kept: Mapping[float, SubMatrix],
    logits: torch.Tensor,
) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    for share, share_steps in steps.items():
        of_share = active_steps(layer, share_steps, methods[share], kept[share], logits)
        runs |= {f"{share} {name}": run for name, run in of_share.items()}
    return runs


def _faster(stages: Sequence[Timed], push_out: Run, clock: Callable[[], float]) -> ProductMethod:
    """Return the faster of the two methods to multiply the active columns."""
    fastest = _fastest({timed.stage: timed.run for timed in stages if timed.stage in PRODUCT_METHODS}, push_out, clock)
    return next(method for method in PRODUCT_METHODS if method == fastest)


def _fastest(runs: Mapping[str, Run], push_out: Run, clock: Callable[[], float]) -> str:
    times = interleaved(runs, PROBES, dict.fromkeys(runs, push_out), least_s=0.0, clock=clock)
    return min(runs, key=times.least_s)


def _step_time(
    layer: Layer,
    steps: Sequence[Step],
    fitted: bool,
    method: ProductMethod,
    dense_method: str,
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
        method=method,
        stages_s=stages_s,
        dense_s=times.median_s(DENSE),
        dense_method=dense_method,
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
    return [(stage, point) for stage, stage_points in points.items() for point in stage_points]


Progress = Callable[[int, int, str], None]
"""Called with what is done, what there is in all, and what comes next."""
DEVICES = ("cpu", "cuda")
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def check(setting: Setting) -> None:
    """Raises `CalibrationError` for what cannot be measured."""
    for name in ("vocabs", "widths", "rows", "shares"):
        if not getattr(setting, name):
            raise CalibrationError(f"no {name} to measure", remedy="name one at least")
    for name in ("vocabs", "widths", "rows", "heldout_rows", "clusters", "rounds", "threads"):
        given = getattr(setting, name)
        least = min(given, default=1) if isinstance(given, tuple) else given
        if least < 1:
            raise CalibrationError(f"{name.removesuffix('s')} {least}", remedy="give 1 or more")
    for share in (*setting.shares, *setting.heldout_shares):
        if not 0.0 < share <= 1.0:
            raise CalibrationError(f"{100 * share:g} % of the columns active", remedy="give more than 0 and up to 100")
    if setting.dtype not in TYPES:
        raise CalibrationError(f"no weights of type {setting.dtype}", remedy=f"take one of {', '.join(TYPES)}")
    if setting.device not in DEVICES:
        raise CalibrationError(f"no device {setting.device}", remedy=f"take {' or '.join(DEVICES)}")
    if setting.device == "cpu":
        _check_memory(setting)
    elif not torch.cuda.is_available():
        raise CalibrationError("torch sees no GPU here", remedy="leave --device out, or run it where a GPU is")


def _check_memory(setting: Setting) -> None:
    shares = sum(setting.shares) + sum(setting.heldout_shares)
    numbers = max(setting.vocabs) * max(setting.widths) * (1.0 + shares) + 2 * max(setting.rows) * max(setting.vocabs)
    free_bytes = describe(libraries=False).memory_available_bytes
    if free_bytes is not None and 4 * numbers > free_bytes:
        size = f"V {max(setting.vocabs):,} x width {max(setting.widths):,} takes {4e-9 * numbers:.1f} GB"
        what = f"{size}, and {1e-9 * free_bytes:.1f} GB are free"
        raise CalibrationError(what, remedy="measure a smaller size, or smaller shares of it")


def vocabulary_bench(
    setting: Setting | None = None,
    progress: Progress = lambda done, whole, what: None,
    clock: Callable[[], float] = time.perf_counter,
) -> ProjectionBench:
    """Measure all sizes; the default setting takes some three minutes and less than 4 GB.

    `clock`: seconds; on CUDA it is read when all that was launched is done. Raises `CalibrationError` for a setting that
    cannot be measured.
    """
    setting = setting or Setting()
    check(setting)
    begin_s, others, box = time.perf_counter(), [processor_use.others_cpus()], _box(setting)
    sizes = list(itertools.product(setting.vocabs, setting.widths))
    costs, steps = {}, list[StepTime]()
    with library_threads(setting.threads), torch.inference_mode():
        for done, (vocab, width) in enumerate(sizes):
            progress(done, len(sizes), f"V {vocab:,}, width {width:,}")
            cost, size_steps = _size(setting, vocab, width, clock_of(torch.device(setting.device), clock), box)
            costs[vocab, width] = cost
            steps += size_steps
    others.append(processor_use.others_cpus())
    return ProjectionBench(
        kind="measured",
        setting=setting,
        costs=tuple(costs.values()),
        steps=tuple(steps),
        break_even=tuple(_break_even(setting, costs)),
        box=box,
        date=datetime.now(timezone.utc).date().isoformat(),
        seconds=time.perf_counter() - begin_s,
        others_cpus=max((cpus for cpus in others if cpus is not None), default=None),
    )


def _size(
    setting: Setting, vocab: int, width: int, clock: Callable[[], float], box: str
) -> tuple[ProjectionCost, list[StepTime]]:
    dtype = TYPES[setting.dtype]
    layer = random_layer(vocab, width, setting.clusters, seed=setting.seed, device=setting.device, dtype=dtype)
    fitted, heldout = dict[str, list[StagePoint]](), dict[str, list[StagePoint]]()
    steps: list[StepTime] = []
    between = {rows for rows in setting.heldout_rows if min(setting.rows) < rows < max(setting.rows)}
    for rows in sorted({*setting.rows, *between}):
        shares = dict.fromkeys(setting.heldout_shares, False)
        if rows in setting.rows:
            shares |= dict.fromkeys(setting.shares, True)
        measured = measured_steps(
            layer, rows, shares, rounds=setting.rounds, seed=setting.seed, clock=clock, copying=rows == min(setting.rows)
        )
        steps += measured.steps
        for points, named_points in ((fitted, measured.fitted), (heldout, measured.heldout)):
            for stage, point in named_points:
                points.setdefault(stage, []).append(point)
    how = {"box": box, "how": f"in turn, medians of {setting.rounds} rounds, numbers in memory"}
    cost = projection_cost(fitted, heldout, layers=[layer], provenance=how)
    return cost, [step.predicted(cost, setting.clusters) for step in steps]


def _break_even(setting: Setting, costs: dict[tuple[int, int], ProjectionCost]) -> Iterator[BreakEven]:
    for (vocab, width), cost in costs.items():
        for rows in setting.rows:
            share = partial(cost.break_even_share, vocab, width, setting.clusters, rows)
            yield BreakEven(
                vocab=vocab,
                width=width,
                rows=rows,
                columns=share(),
                scattered=share(scatter=True),
                fastest=share(fastest=True),
            )


def _box(setting: Setting) -> str:
    if setting.device == "cuda":
        return torch.cuda.get_device_name()
    box = describe(libraries=False)
    return f"{box.cpu_model or box.machine}, {setting.threads} thread{'s' if setting.threads > 1 else ''}"
