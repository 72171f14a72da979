"""Time one output layer with all columns and with the active ones: stages, whole steps, break-even (FVP-09, FVP-15)."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime, timezone
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from simnmt.calibrate import harness, processor_use
from simnmt.calibrate import projection_steps as timing
from simnmt.calibrate.box import describe
from simnmt.calibrate.projection_bench import BreakEven, ProjectionBench, ProjectionCost, Setting, StepTime
from simnmt.calibrate.settings import CalibrationError
from simnmt.kernels.cases import Run
from simnmt.kernels.projection_cost import PRODUCT_METHODS, ProductMethod, StagePoint
from simnmt.nmt.devices import library_threads

PROBES = 2
"""Rounds that select the fastest product method before whole steps are timed."""
LEAST_S = 1e-9
"""Least seconds of a product, if noise leaves none."""
DENSE = "dense"
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
Name = TypeVar("Name", bound=Hashable)
Points = dict[bool, dict[str, list[StagePoint]]]
"""Points of each stage, by whether the fit takes them; the others judge the fit."""


def check(setting: Setting) -> None:
    """Raise `CalibrationError` for a setting that cannot be measured."""
    for name in ("vocabs", "widths", "rows", "heldout_rows", "clusters", "rounds", "threads"):
        if min(np.atleast_1d(getattr(setting, name)), default=1) < 1:
            raise CalibrationError(f"{name}: less than 1", remedy="give 1 or more")
    if not all(0.0 < share <= 1.0 for share in (*setting.shares, *setting.heldout_shares)):
        raise CalibrationError("a share of the columns is not between 0 and 100 %", remedy="give more than 0 and up to 100")
    if setting.dtype not in TYPES or setting.device not in ("cpu", "cuda"):
        what = f"no weights of type {setting.dtype} on {setting.device}"
        raise CalibrationError(what, remedy=f"take {', '.join(TYPES)} on cpu or cuda")
    if setting.device == "cuda" and not torch.cuda.is_available():
        raise CalibrationError("torch sees no GPU here", remedy="leave --device out, or run it where a GPU is")
    shares = sum(setting.shares) + sum(setting.heldout_shares)
    numbers = max(setting.vocabs) * max(setting.widths) * (1.0 + shares) + 2 * max(setting.rows) * max(setting.vocabs)
    free_bytes = describe().memory_available_bytes or np.inf
    if setting.device == "cpu" and 4 * numbers > free_bytes:
        what = f"the largest size takes {4e-9 * numbers:.1f} GB, and {1e-9 * free_bytes:.1f} GB are free"
        raise CalibrationError(what, remedy="measure a smaller size, or smaller shares of it")


def vocabulary_bench(
    setting: Setting | None = None,
    progress: Callable[[int, int, str], None] = lambda done, whole, what: None,
    clock: Callable[[], float] = time.perf_counter,
) -> ProjectionBench:
    """Measure all sizes; the default setting takes some three minutes and less than 4 GB.

    `progress`: called with the number of finished sizes, the number of sizes, and the next one. `clock`: seconds; on CUDA it is
    read when the device has finished. Raises `CalibrationError` for a setting that cannot be measured.
    """
    setting = setting or Setting()
    check(setting)
    begin_s, others, box = time.perf_counter(), [processor_use.others_cpus()], _box(setting)
    sizes = list(itertools.product(setting.vocabs, setting.widths))
    costs, steps, limits = list[ProjectionCost](), list[StepTime](), list[BreakEven]()
    with library_threads(setting.threads), torch.inference_mode():
        for done, (vocab, width) in enumerate(sizes):
            progress(done, len(sizes), f"V {vocab:,}, width {width:,}")
            layer = timing.random_layer(
                vocab, width, setting.clusters, seed=setting.seed, device=setting.device, dtype=TYPES[setting.dtype]
            )
            cost, size_steps = _measure_layer(layer, setting, timing.clock_of(torch.device(setting.device), clock), box)
            costs.append(cost)
            steps += size_steps
            limits += [_break_even(cost, vocab, width, rows, setting.clusters) for rows in setting.rows]
    others.append(processor_use.others_cpus())
    return ProjectionBench(
        kind="measured",
        setting=setting,
        costs=tuple(costs),
        steps=tuple(steps),
        break_even=tuple(limits),
        box=box,
        date=datetime.now(timezone.utc).date().isoformat(),
        seconds=time.perf_counter() - begin_s,
        others_cpus=max((cpus for cpus in others if cpus is not None), default=None),
    )


def _measure_layer(
    layer: timing.Layer, setting: Setting, clock: Callable[[], float], box: str
) -> tuple[ProjectionCost, list[StepTime]]:
    """Return the cost fitted to one layer's stages, and its steps with what the cost predicts for them."""
    points: Points = {True: defaultdict(list), False: defaultdict(list)}
    between = {rows for rows in setting.heldout_rows if min(setting.rows) < rows < max(setting.rows)}
    steps = [step for rows in sorted({*setting.rows, *between}) for step in _measure_rows(layer, setting, rows, clock, points)]
    how = {"box": box, "how": f"in turn, medians of {setting.rounds} rounds, numbers in memory"}
    cost = timing.projection_cost(points[True], points[False], layer=layer, provenance=how)
    return cost, [step.predicted(cost, setting.clusters) for step in steps]


def _measure_rows(
    layer: timing.Layer, setting: Setting, rows: int, clock: Callable[[], float], points: Points
) -> list[StepTime]:
    """Time all stages and steps of this number of rows alternately, with all numbers in memory; add the stages to `points`."""
    flush = timing.flush_of_caches(layer.weight.device)

    def cold(runs: Mapping[Name, Run]) -> dict[Any, harness.Case]:
        return {name: harness.Case(run, flush) for name, run in runs.items()}

    def fastest(runs: Mapping[Name, Run]) -> Name:
        times = harness.by_round(harness.rounds(cold(runs), PROBES, clock=clock))
        return min(runs, key=lambda name: float(times[name].min()))

    def add(stage_points: Mapping[str, list[StagePoint]], *, fitted: bool) -> None:
        for stage, some in stage_points.items():
            points[fitted][stage] += some

    shares = dict.fromkeys(setting.heldout_shares, False)
    if rows in setting.rows:
        shares |= dict.fromkeys(setting.shares, True)
    logits = torch.empty(rows, layer.vocab, device=layer.weight.device)
    # Only whole steps multiply all columns; the time of their search is small and is subtracted.
    common = [timing.search_of_all(layer, rows), *timing.assign_stages(layer, rows)]
    steps = {share: timing.random_steps(layer, rows, share, seed=setting.seed) for share in shares}
    stages, methods, whole = dict[float, list[timing.Timed]](), dict[float, ProductMethod](), dict[Hashable, Run]()
    for share, share_steps in steps.items():
        stages[share] = timing.step_stages(layer, share_steps, logits)
        products = {method: timed.run for method in PRODUCT_METHODS for timed in stages[share] if timed.stage == method}
        methods[share] = fastest(products)
        runs_of_share = timing.active_steps(layer, share_steps, methods[share], logits)
        whole |= {(share, name): run for name, run in runs_of_share.items()}
    dense = timing.dense_steps(layer, next(iter(steps.values()))[0].hidden)
    dense_method = fastest(dense)
    whole[DENSE] = dense[dense_method]
    cases: dict[Any, harness.Case] = {
        timed: harness.Case(timed.run, flush if timed.stage in timing.COLD else None)
        for timed in [*common, *itertools.chain.from_iterable(stages.values())]
    }
    cases |= cold(whole)
    frame = harness.rounds(cases, setting.rounds, clock=clock)
    median_s = {name: float(np.median(times_s)) for name, times_s in harness.by_round(frame).items()}
    timed = timing.points_of(common, median_s)
    product_s = max(median_s[DENSE] - timed["search"][0].seconds, LEAST_S)
    timed["dense"] = [StagePoint(rows, layer.vocab * layer.width, layer.vocab, product_s)]
    add(timed, fitted=any(shares.values()))
    common_s = {"assign": timed["assign"][-1].seconds, "dense": product_s, "search_all": timed["search"][-1].seconds}
    steps_of_rows = list[StepTime]()
    for share, fitted in shares.items():
        timed = timing.points_of(stages[share], median_s)
        add(timed, fitted=fitted)
        step_time = StepTime(
            vocab=layer.vocab,
            width=layer.width,
            rows=rows,
            columns=sum(len(step.columns) for step in steps[share]) / len(steps[share]),
            indices=sum(step.indices for step in steps[share]) / len(steps[share]),
            fitted=fitted,
            method=methods[share],
            stages_s={stage: stage_points[0].seconds for stage, stage_points in timed.items()} | common_s,
            dense_s=median_s[DENSE],
            dense_method=dense_method,
            columns_s=median_s[share, timing.COLUMNS],
            scattered_s=median_s[share, timing.SCATTERED],
            ratios={
                "columns": harness.ratio(frame, DENSE, (share, timing.COLUMNS)).value,
                "scattered": harness.ratio(frame, DENSE, (share, timing.SCATTERED)).value,
            },
        )
        steps_of_rows.append(step_time)
    return steps_of_rows


def _break_even(cost: ProjectionCost, vocab: int, width: int, rows: int, clusters: int) -> BreakEven:
    share = partial(cost.break_even_share, vocab, width, clusters, rows)
    shares = {"columns": share(), "scattered": share(scatter=True), "fastest": share(fastest=True)}
    return BreakEven(vocab=vocab, width=width, rows=rows, **shares)


def _box(setting: Setting) -> str:
    if setting.device == "cuda":
        return torch.cuda.get_device_name()
    box = describe()
    return f"{box.cpu_model or box.machine}, {setting.threads} thread{'s' if setting.threads > 1 else ''}"
