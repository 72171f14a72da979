"""Time one output layer with all columns and with the active ones: stages and whole steps (FVP-09, FVP-15, XP-02).

Weights are random, and active sets overlap as those of clusters do. Stages are timed each by itself, and their cost is fitted;
whole steps run from centroid to search, and those that were not fitted judge the cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear

from simnmt.calibrate.box import BusyWatch, describe
from simnmt.calibrate.harness import Case, by_round, ratio, rounds
from simnmt.calibrate.projection_bench import LayerCost, ProjectionBench, Setting, StageName, StagePoint, StepTime, fit_stage
from simnmt.calibrate.settings import CalibrationError
from simnmt.kernels.columns import Centroids, ColumnSets, gathered_products, scatter
from simnmt.kernels.output_layer import fused_best
from simnmt.kernels.output_reference import Best
from simnmt.kernels.registry import Run, last_cache_bytes
from simnmt.nmt.devices import library_threads, torch_device

MOST_DISTINCT = 40
"""Most clusters that the rows of a step fall into: with more rows, some share a cluster, as the rows of a beam do."""
SOME_RANKS = 8_192
"""Frequency ranks on which the share of a union in a large vocabulary is computed."""
NOISE = 0.1
"""Spread of hidden states about their centroid; the centroids' spread is 1."""
PIECE = 1_024
"""Columns per piece of the dense product in pieces, which is often faster."""
LEAST_S = 1e-9
"""Least seconds of a product, if noise leaves none."""


class Layer(NamedTuple):
    """An output layer with clusters of contexts."""

    weight: Tensor
    """[V, d]."""
    bias: Tensor
    """float32 [V]."""
    centroids: Centroids


class Step(NamedTuple):
    """Inputs of one step, and the intermediate results of its stages."""

    sets: ColumnSets
    hidden: Tensor
    """float32 [rows, d], each row near the centroid of its set."""
    chosen: Tensor
    """int64 [rows]: the set of each row."""
    columns: Tensor
    """int32, ascending: union of the chosen sets."""
    indices: int
    """Number of indices in the distinct chosen sets together."""
    out: Tensor
    """float32 [rows, columns]: receives the products."""


def random_layer(vocab: int, width: int, clusters: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Layer:
    generator = torch.Generator(device).manual_seed(0)
    weight = torch.randn(vocab, width, generator=generator, device=device).mul_(width**-0.5).to(dtype)
    bias = torch.randn(vocab, generator=generator, device=device)
    return Layer(weight, bias, Centroids.of(torch.randn(clusters, width, generator=generator, device=device)))


def random_step(layer: Layer, rows: int, share: float) -> Step:
    """Draw a step with about this share of V active, whose rows fall into up to `MOST_DISTINCT` different clusters.

    A column of frequency rank k is in each set with probability min(1, c/k), after Zipf's law; c is chosen so that the union of
    the rows' sets has the requested share. Sets that no row uses hold one column, which keeps them small.
    """
    random = np.random.default_rng((rows, round(1e6 * share)))
    vocab, clusters, device = len(layer.weight), len(layer.centroids), layer.weight.device
    used = min(rows, MOST_DISTINCT, clusters)
    probability = _probabilities(vocab, used, share).astype(np.float32)
    by_rank = random.permutation(vocab).astype(np.int32)
    drawn = [np.sort(by_rank[random.random(vocab, np.float32) < probability]) for _ in range(used)]
    columns = [column_set if column_set.size else by_rank[:1] for column_set in drawn] + [by_rank[:1]] * (clusters - used)
    starts = torch.from_numpy(np.cumsum([0, *map(len, columns)]))
    sets = ColumnSets(starts, torch.from_numpy(np.concatenate(columns)).to(device), vocab)
    chosen = (torch.arange(rows) % used).to(device)
    near = layer.centroids.points[chosen]
    hidden = near + NOISE * torch.randn(near.shape, generator=torch.Generator(device).manual_seed(rows), device=device)
    union = sets.union(chosen)
    return Step(sets, hidden, chosen, union, int(sets.sizes()[:used].sum()), torch.empty(rows, len(union), device=device))


def _probabilities(vocab: int, rows: int, share: float) -> NDArray[np.float64]:
    """Return the probability of each rank with which the union of `rows` sets has this share."""
    from scipy.optimize import brentq

    rank = np.arange(1.0, vocab + 1.0)
    some = rank[:: 1 + vocab // SOME_RANKS]

    def excess(scale: float) -> float:
        return float(1.0 - ((1.0 - np.minimum(1.0, scale / some)) ** rows).mean() - share)

    return np.minimum(1.0, brentq(excess, 0.0, float(vocab)) / rank)


def clock_of(device: torch.device) -> Callable[[], float]:
    """Return a clock in seconds, which on a GPU waits until the device has finished: launches return long before."""
    if device.type != "cuda":
        return time.perf_counter

    def waiting_clock() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return waiting_clock


def cache_bytes(device: torch.device) -> int:
    return last_cache_bytes() if device.type == "cpu" else int(torch.cuda.get_device_properties(device).L2_cache_size)


def search(products: Tensor, bias: Tensor | None) -> Best:
    """Search each row's best column, or the best two if there are several rows, as beam 2 does."""
    rows, columns = products.shape
    return fused_best(products, bias, min(1 if rows == 1 else 2, columns), threads=torch.get_num_threads())


def dense_steps(layer: Layer, hidden: Tensor) -> dict[str, Run]:
    """Return runs that multiply all columns, one per torch method, each followed by the same search."""
    weight, states = layer.weight, hidden.to(layer.weight.dtype)
    out = torch.empty(len(states), len(weight), dtype=states.dtype, device=states.device)

    def whole() -> Tensor:
        if len(states) == 1:
            torch.mv(weight, states[0], out=out[0])
        else:
            torch.mm(states, weight.T, out=out)
        return out

    def in_pieces() -> Tensor:
        for begin in range(0, len(weight), PIECE):
            torch.mm(states, weight[begin : begin + PIECE].T, out=out[:, begin : begin + PIECE])
        return out

    products: dict[str, Callable[[], Tensor]] = {"whole": whole, "linear": partial(linear, states, weight)}
    if weight.is_cpu and len(states) > 1:
        products["pieces"] = in_pieces

    def multiply_and_search(multiply: Callable[[], Tensor]) -> Best:
        return search(multiply(), layer.bias)

    return {name: partial(multiply_and_search, multiply) for name, multiply in products.items()}


def active_steps(layer: Layer, step: Step, logits: Tensor) -> dict[str, Run]:
    """Return runs of all stages: with columns straight into the search, and scattered among V, for which `logits` is."""

    def multiply() -> tuple[Tensor, Tensor]:
        columns = step.sets.union(layer.centroids.nearest(step.hidden))
        return columns, gathered_products(layer.weight, step.hidden, columns, out=step.out)

    def straight() -> Tensor:
        columns, products = multiply()
        return columns[search(products, layer.bias[columns]).columns]

    def scattered() -> Tensor:
        columns, products = multiply()
        return search(scatter(products, columns, len(layer.weight), layer.bias, logits), None).columns

    return {"columns": straight, "scattered": scattered}


COLD = ("assign", "product")
"""Stages whose numbers are in memory, or in the last cache if it holds the weights; others find theirs in the nearer caches."""
Stage = tuple[StageName, int, Run]
"""A stage, its columns as in `StagePoint`, and its run."""


def stages_of(layer: Layer, step: Step, logits: Tensor) -> list[Stage]:
    """Return all stages of a step with active columns; `logits` receives scattered products."""
    vocab, count = len(layer.weight), len(step.columns)
    return [
        ("assign", len(layer.centroids), partial(layer.centroids.nearest, step.hidden)),
        ("product", count, partial(gathered_products, layer.weight, step.hidden, step.columns, out=step.out)),
        ("union", step.indices, partial(step.sets.union, step.chosen)),
        ("scatter", count, partial(scatter, step.out, step.columns, vocab, layer.bias, logits)),
        ("search", count, lambda: search(step.out, layer.bias[step.columns])),
    ]


def vocabulary_bench(
    setting: Setting, progress: Callable[[int, int, str], None] = lambda done, whole, what: None
) -> ProjectionBench:
    """Measure all sizes; the default setting takes some three minutes and less than 4 GB.

    `progress`: called with the number of finished sizes, the number of sizes, and the next one. Raises `CalibrationError` for a
    setting that cannot be measured, `NmtError` for a GPU that is not there.
    """
    _check(setting)
    others, sizes = [BusyWatch.over_span()], list(product(setting.vocabs, setting.widths))
    costs, steps = list[LayerCost](), list[StepTime]()
    with library_threads(setting.threads), torch.inference_mode():
        for done, (vocab, width) in enumerate(sizes):
            progress(done, len(sizes), f"V {vocab:,}, width {width:,}")
            layer = random_layer(vocab, width, setting.clusters, setting.device, getattr(torch, setting.dtype))
            between = {rows for rows in setting.heldout_rows if min(setting.rows) < rows < max(setting.rows)}
            points: dict[str, list[StagePoint]] = {}
            measured = [step for rows in sorted({*setting.rows, *between}) for step in _measure(layer, setting, rows, points)]
            fits: Any = {stage: fit_stage(stage_points) for stage, stage_points in points.items()}
            cost = LayerCost(vocab=vocab, width=width, **fits)
            costs.append(cost)
            for step in measured:
                predicted_s = cost.step_s(round(step.columns), step.rows, setting.clusters)
                steps.append(step.model_copy(update={"predicted_s": predicted_s}))
    others.append(BusyWatch.over_span())
    box, threads = describe(), f"{setting.threads} thread{'s' if setting.threads > 1 else ''}"
    return ProjectionBench(
        kind="measured",
        setting=setting,
        costs=tuple(costs),
        steps=tuple(steps),
        box=torch.cuda.get_device_name() if setting.device == "cuda" else f"{box.cpu_model or box.machine}, {threads}",
        date=datetime.now(timezone.utc).date().isoformat(),
        others_cpus=max((cpus for cpus in others if cpus is not None), default=None),
    )


def _check(setting: Setting) -> None:
    """Raise `NmtError` for a GPU that is not there, and `CalibrationError` for more memory than is free."""
    shares = sum(setting.shares) + sum(setting.heldout_shares)
    numbers = max(setting.vocabs) * max(setting.widths) * (1.0 + shares) + 2 * max(setting.rows) * max(setting.vocabs)
    free_bytes = describe().memory_available_bytes or np.inf
    if torch_device(setting.device).type == "cpu" and 4 * numbers > free_bytes:
        what = f"the largest size takes {4e-9 * numbers:.1f} GB, and {1e-9 * free_bytes:.1f} GB are free"
        raise CalibrationError(what, remedy="measure a smaller size, or smaller shares of it")


def _measure(layer: Layer, setting: Setting, rows: int, points: dict[str, list[StagePoint]]) -> Iterator[StepTime]:
    """Time stages and steps of this number of rows in turn, all numbers in memory; add those of fitted shares to `points`."""
    (vocab, width), device = layer.weight.shape, layer.weight.device
    flush, clock = torch.ones(3 * cache_bytes(device) // 8, device=device).sum, clock_of(device)

    fitted = dict.fromkeys(setting.heldout_shares, False)
    if rows in setting.rows:
        fitted |= dict.fromkeys(setting.shares, True)
    logits = torch.zeros(rows, vocab, device=device)
    steps = {share: random_step(layer, rows, share) for share in fitted}
    dense = {("dense", name): run for name, run in dense_steps(layer, next(iter(steps.values())).hidden).items()}
    whole: dict[Any, Run] = {**dense}
    stages: dict[Any, Stage] = {"search": ("search", vocab, partial(search, logits.to(layer.weight.dtype), layer.bias))}
    for share, step in steps.items():
        stages |= {(share, name): (name, columns, run) for name, columns, run in stages_of(layer, step, logits)}
        whole |= {(share, name): run for name, run in active_steps(layer, step, logits).items()}
    cases: dict[Any, Case] = {key: Case(run, flush if name in COLD else None) for key, (name, _, run) in stages.items()}
    frame = rounds(cases | {key: Case(run, flush) for key, run in whole.items()}, setting.rounds, clock=clock)
    median_s = {key: float(np.median(times_s)) for key, times_s in by_round(frame).items()}
    fastest = min(dense, key=lambda key: median_s[key])
    if rows in setting.rows:
        for key, (name, columns, _) in stages.items():
            if key == "search" or fitted[key[0]]:
                points.setdefault(name, []).append(StagePoint(rows, columns, median_s[key]))
        # Only whole steps multiply all columns; the time of their search is small and is subtracted.
        dense_s = max(median_s[fastest] - median_s["search"], LEAST_S)
        points.setdefault("dense", []).append(StagePoint(rows, vocab, dense_s))
    for share, step in steps.items():
        yield StepTime(
            vocab=vocab,
            width=width,
            rows=rows,
            columns=len(step.columns),
            fitted=fitted[share],
            stages_s={name: median_s[share, name] for name, _, _ in stages_of(layer, step, logits)},
            dense_s=median_s[fastest],
            columns_s=median_s[share, "columns"],
            ratio=ratio(frame, fastest, (share, "columns")),
            scattered_ratio=ratio(frame, fastest, (share, "scattered")),
        )
