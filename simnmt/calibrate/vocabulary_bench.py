"""Time one output layer with all columns and with the active ones: stages, whole steps, break-even (FVP-09, FVP-15)."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from datetime import datetime, timezone
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from simnmt.calibrate import harness, processor_use
from simnmt.calibrate.box import describe
from simnmt.calibrate.projection_bench import BreakEven, ProjectionBench, Setting, StepTime
from simnmt.calibrate.settings import CalibrationError
from simnmt.kernels import projection_timing as timing
from simnmt.kernels.cases import Run
from simnmt.nmt.devices import library_threads
from simnmt.profile.projection_cost import PRODUCT_METHODS, ProductMethod, ProjectionCost, StagePoint

PROBES = 2
"""Rounds that select the fastest product method before whole steps are timed."""
LEAST_S = 1e-9
"""Least seconds of a product, if noise leaves none."""
DENSE = "dense"
Name = TypeVar("Name", bound=Hashable)


class LayerBench:
    """Times the stages and whole steps of one layer, with all numbers in memory."""

    def __init__(self, layer: timing.Layer, setting: Setting, clock: Callable[[], float]) -> None:
        self._layer, self._setting, self._clock = layer, setting, clock
        self._flush = timing.flush_of_caches(layer.weight.device)
        self.steps = list[StepTime]()
        self.points: dict[bool, dict[str, list[StagePoint]]] = {fitted: defaultdict(list) for fitted in (True, False)}
        """Points of each stage, by whether the fit takes them; the others judge the fit."""

    def measure(self, rows: int) -> None:
        """Time all stages and steps of this number of rows alternately."""
        layer, setting = self._layer, self._setting
        shares = dict.fromkeys(setting.heldout_shares, False)
        if rows in setting.rows:
            shares |= dict.fromkeys(setting.shares, True)
        logits = torch.empty(rows, layer.vocab, device=layer.weight.device)
        # Only whole steps multiply all columns; the time of their search is small and is subtracted.
        search_all = [timed_stage for timed_stage in timing.dense_stages(layer, rows) if timed_stage.stage == "search"]
        common = [*search_all, *timing.assign_stages(layer, rows)]
        steps = {share: timing.random_steps(layer, rows, share, seed=setting.seed) for share in shares}
        stages, methods, whole = dict[float, list[timing.Timed]](), dict[float, ProductMethod](), dict[Hashable, Run]()
        for share, share_steps in steps.items():
            stages[share] = timing.step_stages(layer, share_steps, logits)
            products = {method: timed.run for method in PRODUCT_METHODS for timed in stages[share] if timed.stage == method}
            methods[share] = self._fastest(products)
            runs_of_share = timing.active_steps(layer, share_steps, methods[share], logits)
            whole |= {(share, name): run for name, run in runs_of_share.items()}
        dense = timing.dense_steps(layer, next(iter(steps.values()))[0].hidden)
        dense_method = self._fastest(dense)
        whole[DENSE] = dense[dense_method]
        cases: dict[Any, harness.Case] = {
            timed: harness.Case(timed.run, self._flush if timed.stage in timing.COLD else None)
            for timed in [*common, *itertools.chain.from_iterable(stages.values())]
        }
        cases |= {name: harness.Case(run, self._flush) for name, run in whole.items()}
        frame = harness.rounds(cases, setting.rounds, clock=self._clock)
        median_s = {name: float(np.median(times_s)) for name, times_s in harness.by_round(frame).items()}
        points = timing.points_of(common, median_s)
        product_s = max(median_s[DENSE] - points["search"][0].seconds, LEAST_S)
        points["dense"] = [StagePoint(rows, layer.vocab * layer.width, layer.vocab, product_s)]
        self._add(points, fitted=any(shares.values()))
        common_s = {"assign": points["assign"][-1].seconds, "dense": product_s, "search_all": points["search"][-1].seconds}
        for share, fitted in shares.items():
            points = timing.points_of(stages[share], median_s)
            self._add(points, fitted=fitted)
            step_time = StepTime(
                vocab=layer.vocab,
                width=layer.width,
                rows=rows,
                columns=sum(len(step.columns) for step in steps[share]) / len(steps[share]),
                indices=sum(step.indices for step in steps[share]) / len(steps[share]),
                fitted=fitted,
                method=methods[share],
                stages_s={stage: stage_points[0].seconds for stage, stage_points in points.items()} | common_s,
                dense_s=median_s[DENSE],
                dense_method=dense_method,
                columns_s=median_s[share, timing.COLUMNS],
                scattered_s=median_s[share, timing.SCATTERED],
                ratios={
                    "columns": harness.ratio(frame, DENSE, (share, timing.COLUMNS)).value,
                    "scattered": harness.ratio(frame, DENSE, (share, timing.SCATTERED)).value,
                },
            )
            self.steps.append(step_time)

    def _add(self, points: Mapping[str, list[StagePoint]], *, fitted: bool) -> None:
        for stage, stage_points in points.items():
            self.points[fitted][stage] += stage_points

    def _fastest(self, runs: Mapping[Name, Run]) -> Name:
        cases = {name: harness.Case(run, self._flush) for name, run in runs.items()}
        times = harness.by_round(harness.rounds(cases, PROBES, clock=self._clock))
        return min(runs, key=lambda name: float(times[name].min()))


Progress = Callable[[int, int, str], None]
"""Called with the number of finished parts, the number of parts, and the name of the next part."""
DEVICES = ("cpu", "cuda")
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def check(setting: Setting) -> None:
    """Raise `CalibrationError` for a setting that cannot be measured."""
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

    `clock`: seconds; on CUDA it is read when the device has finished. Raises `CalibrationError` for a setting that cannot be
    measured.
    """
    setting = setting or Setting()
    check(setting)
    begin_s, others, box = time.perf_counter(), [processor_use.others_cpus()], _box(setting)
    sizes = list(itertools.product(setting.vocabs, setting.widths))
    costs, steps = {}, list[StepTime]()
    with library_threads(setting.threads), torch.inference_mode():
        for done, (vocab, width) in enumerate(sizes):
            progress(done, len(sizes), f"V {vocab:,}, width {width:,}")
            cost, size_steps = _measure_size(setting, vocab, width, timing.clock_of(torch.device(setting.device), clock), box)
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


def _measure_size(
    setting: Setting, vocab: int, width: int, clock: Callable[[], float], box: str
) -> tuple[ProjectionCost, list[StepTime]]:
    dtype = TYPES[setting.dtype]
    layer = timing.random_layer(vocab, width, setting.clusters, seed=setting.seed, device=setting.device, dtype=dtype)
    bench = LayerBench(layer, setting, clock)
    between = {rows for rows in setting.heldout_rows if min(setting.rows) < rows < max(setting.rows)}
    for rows in sorted({*setting.rows, *between}):
        bench.measure(rows)
    how = {"box": box, "how": f"in turn, medians of {setting.rounds} rounds, numbers in memory"}
    cost = timing.projection_cost(bench.points[True], bench.points[False], layers=[layer], provenance=how)
    return cost, [step.predicted(cost, setting.clusters) for step in bench.steps]


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
