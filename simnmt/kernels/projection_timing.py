"""Times of the output layer's stages and whole steps, with all and with some columns, and the cost fitted to them (FVP-09).

Layers and steps are random, with active sets that overlap as those of clusters do. Whole steps run from centroid to search
with the active columns, or with all columns by torch (FVP-15, XP-02).
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear

from simnmt.kernels.columns import Centroids, ColumnSets, SubMatrix, gathered_products, scatter
from simnmt.kernels.measurement import Run, Times, interleaved, last_cache_bytes
from simnmt.kernels.native_library import level_name
from simnmt.kernels.output_layer import fused_best
from simnmt.kernels.output_reference import Best
from simnmt.profile.projection_cost import PRODUCT_METHODS, ProductMethod, ProjectionCost, StageCost, StagePoint, fit_stage

VARIANTS = 2
"""Steps that take turns, so that none finds its own columns where it left them."""
MOST_DISTINCT = 40
"""Clusters that a step's rows fall into: of more rows some meet in one, as the rows of a beam do."""
SOME_RANKS = 8_192
"""Of a large vocabulary that the share of a union is counted on."""
NOISE = 0.1
"""Of hidden states about their centroid, whose own spread is 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """An output layer with clusters of contexts."""

    weight: Tensor
    """[V, d]."""
    bias: Tensor
    """float32 [V]."""
    centroids: Centroids

    @property
    def vocab(self) -> int:
        """V."""
        return self.weight.shape[0]

    @property
    def width(self) -> int:
        """d."""
        return self.weight.shape[1]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What one step is given, and what its stages leave for each other."""

    sets: ColumnSets
    hidden: Tensor
    """float32 [rows, d], each row near the centroid of its set."""
    chosen: Tensor
    """int64 [rows]: these sets."""
    columns: Tensor
    """int32, ascending: their union."""
    indices: int
    """In all these sets together."""

    @property
    def rows(self) -> int:
        """Sentences x beam."""
        return len(self.hidden)


def random_layer(
    vocab: int, width: int, clusters: int, *, seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Layer:
    """Random weights, a fraction of 1 each as trained ones are, and random centroids."""
    generator = torch.Generator(device).manual_seed(seed)
    weight = torch.randn(vocab, width, generator=generator, device=device).mul_(width**-0.5)
    weight = weight.to(dtype)
    return clustered_layer(weight, torch.randn(vocab, generator=generator, device=device), clusters, seed=seed)


def clustered_layer(weight: Tensor, bias: Tensor | None, clusters: int, *, seed: int = 0) -> Layer:
    """Weights that are there, with random centroids."""
    generator = torch.Generator(weight.device).manual_seed(seed + 1)
    points = torch.randn(clusters, weight.shape[1], generator=generator, device=weight.device)
    if bias is None:
        bias = torch.zeros(len(weight), device=weight.device)
    return Layer(weight.detach(), bias.detach().float(), Centroids.of(points))


def random_steps(layer: Layer, rows: int, share: float, *, seed: int = 0) -> list[Step]:
    """`VARIANTS` steps whose rows fall into clusters of their own, up to `MOST_DISTINCT`, with about this share of V active.

    A column of frequency rank k is in each set with probability min(1, c/k), as of Zipf's law, c being such that the union of
    the rows' sets has the share asked for. Sets that no row asks for hold one column, which keeps the sets small.
    """
    random = np.random.default_rng((seed, rows, round(1e6 * share)))
    vocab, clusters = layer.vocab, len(layer.centroids)
    distinct = min(rows, MOST_DISTINCT, clusters)
    probability = _probabilities(vocab, distinct, share).astype(np.float32)
    by_rank = random.permutation(vocab).astype(np.int32)
    used = min(clusters, VARIANTS * distinct)
    drawn = [np.sort(by_rank[random.random(vocab, np.float32) < probability]) for _ in range(used)]
    columns = [column_set if column_set.size else by_rank[:1] for column_set in drawn] + [by_rank[:1]] * (clusters - used)
    starts = np.cumsum([0, *map(len, columns)])
    device = layer.weight.device
    sets = ColumnSets(torch.from_numpy(starts), torch.from_numpy(np.concatenate(columns)).to(device), vocab)
    clusters_of_rows = torch.arange(rows) % distinct
    return [_step(layer, sets, (variant * distinct + clusters_of_rows) % used) for variant in range(VARIANTS)]


def _step(layer: Layer, sets: ColumnSets, chosen: Tensor) -> Step:
    near = layer.centroids.points[chosen.to(layer.weight.device)]
    generator = torch.Generator(near.device).manual_seed(int(chosen[0]))
    hidden = near + NOISE * torch.randn(near.shape, generator=generator, device=near.device)
    indices = int(sets.sizes()[torch.unique(chosen)].sum())
    chosen = chosen.to(near.device)
    return Step(sets, hidden, chosen, sets.union(chosen), indices)


def _probabilities(vocab: int, rows: int, share: float) -> NDArray[np.float64]:
    """Of each rank, so that `rows` sets have a union of this share, found by halving."""
    rank = np.arange(1.0, vocab + 1.0)
    some = rank[:: 1 + vocab // SOME_RANKS]
    low, high = 0.0, float(vocab)
    for _ in range(30):
        middle = (low + high) / 2
        union = 1.0 - (1.0 - np.minimum(1.0, middle / some)) ** rows
        low, high = (middle, high) if union.mean() < share else (low, middle)
    return np.minimum(1.0, high / rank)


ROWS = (1, 2, 8, 40, 160)
"""At which a quick look is taken: one row, two (torch's product of two may take twice as long), a few, 20 sentences of beam 2
as published, and a full batch server."""
SHARES = (0.02, 0.15)
MOST_NUMBERS = 1 << 22
"""Of the active columns' weights in a quick look: a larger layer is measured with smaller shares of it."""
MOST_DENSE = 1 << 24
"""Of all columns' weights in a quick look: of a larger layer its first columns are."""
MOST_LOGITS = 1 << 21
"""Rows times V up to which a quick look scatters: it is the published way alone that does."""
ROWS_OF_MOST = 16
"""With as many times more rows as many times fewer weights are taken: then it is the arithmetic that takes the time."""
COLD = frozenset({"dense", "assign", *PRODUCT_METHODS, "kept", "copy_out"})
"""Stages that find their numbers in memory, or in the last cache if that holds the weights; others take what was just left."""
PIECE = 1_024
"""Columns at a time of the dense product in pieces, which is often the faster one."""


class Timed(NamedTuple):
    """One callable to be timed, and what it walks over."""

    stage: str
    rows: int
    numbers: float
    columns: float
    run: Run


def search_width(rows: int) -> int:
    """Tokens that are searched for in each row: one alone, two as of beam 2."""
    return 1 if rows == 1 else 2


def measure_projection(
    width: int,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    vocab: int = 16_384,
    clusters: int = 1_000,
    rows: Sequence[int] = ROWS,
    shares: Sequence[float] = SHARES,
    rounds: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    dense: Callable[[Tensor], object] | None = None,
) -> ProjectionCost:
    """A quick look at what the stages take here, well below a second for a usual layer.

    `weight` [V, d]: the model's own, with its `bias`; else random ones of `vocab` columns. `shares`: of V that are active;
    smaller ones are taken of a layer beyond `MOST_NUMBERS`. Weights that fit into the cache are found there, as they are while
    decoding; else the columns are not. With as many threads as torch has. `clock`: seconds. `dense`: the model's own product of
    hidden states [rows, d] with all columns, where torch's with `weight` is not what it makes. Raises `ValueError` for weights
    of another width.
    """
    if weight is not None and weight.shape[1] != width:
        raise ValueError(f"weights of width {weight.shape[1]}, not {width}")
    layer = random_layer(vocab, width, clusters) if weight is None else clustered_layer(weight, bias, clusters)
    timed: list[Timed] = []
    for count in rows:
        fewer = max(1.0, count / ROWS_OF_MOST)
        scale = min(1.0, MOST_NUMBERS / fewer / (max(shares) * layer.vocab * width))
        all_columns = list(dense_stages(layer, count, most_columns=max(1, int(MOST_DENSE / fewer / width))))
        if dense is not None:
            model_dense = Timed("dense", count, layer.vocab * width, layer.vocab, partial(dense, torch.zeros(count, width)))
            all_columns = [model_dense, *(timing for timing in all_columns if timing.stage != "dense")]
        timed += all_columns
        timed += assign_stages(layer, count)
        logits = torch.empty(count, layer.vocab, device=layer.weight.device)
        for share in shares:
            steps = random_steps(layer, count, scale * share)
            stages = step_stages(layer, steps, SubMatrix.of(layer.weight, steps[0].columns), logits)
            few = count == rows[0] or logits.numel() <= MOST_LOGITS
            timed += [timing for timing in stages if few or timing.stage != "scatter"]
            timed += [copy_stage(layer, steps[0])] * (count == rows[0])
    # Weights that the last cache holds stay there beside a decoder's others, but not in those nearer to the processor; without
    # this each way would find what the one timed before it has just read.
    fits = layer.weight.nbytes <= cache_bytes(layer.weight.device) // 2
    runs, before = runs_of(timed, cache_flush(layer.weight, 0.25 if fits else 1.5))
    # Of few rounds the least: a single one that was disturbed would decide the median.
    times = interleaved(runs, rounds, before, least_s=0.0, clock=clock_of(layer.weight.device, clock))
    points = points_of(timed, times, of=Times.least_s)
    return projection_cost(points, provenance={"how": f"quick, {rounds} rounds"}, layers=[layer])


def projection_cost(
    points: Mapping[str, Sequence[StagePoint]],
    heldout: Mapping[str, Sequence[StagePoint]] | None = None,
    *,
    layers: Sequence[Layer],
    provenance: Mapping[str, str] | None = None,
) -> ProjectionCost:
    """Fit every stage to its points and evaluate the fit on the held-out points."""
    of_stages: dict[str, StageCost] = {
        stage: fit_stage(stage_points, (heldout or {}).get(stage, ())) for stage, stage_points in points.items()
    }
    known = {"processor": platform.machine(), "torch": str(torch.__version__), "kernels": level_name()}
    return ProjectionCost(
        kind="measured",
        device="cuda" if layers[0].weight.is_cuda else "cpu",
        threads=torch.get_num_threads(),
        vocab=tuple(sorted({layer.vocab for layer in layers})),
        width=tuple(sorted({layer.width for layer in layers})),
        provenance=known | dict(provenance or {}),
        **of_stages,
    )


def dense_stages(layer: Layer, rows: int, *, most_columns: int | None = None) -> Iterator[Timed]:
    """The product with all columns by torch in every way, and the search over all; with the first columns alone of many."""
    columns = min(layer.vocab, most_columns or layer.vocab)
    weight = layer.weight[:columns]
    hidden = layer.centroids.points[torch.arange(rows) % len(layer.centroids)].to(weight.dtype)
    out = torch.zeros(rows, columns, dtype=weight.dtype, device=weight.device)
    for run in dense_products(weight, hidden, out).values():
        yield Timed("dense", rows, columns * layer.width, columns, run)
    yield Timed("search", rows, columns, columns, search_run(out, layer.bias[:columns], search_width(rows)))


def dense_products(weight: Tensor, hidden: Tensor, out: Tensor) -> dict[str, Callable[[], Tensor]]:
    """What torch offers for the product with all columns, [rows, V]; `out` stands ready for those that take it."""

    def whole() -> Tensor:
        if len(hidden) == 1:
            torch.mv(weight, hidden[0], out=out[0])
        else:
            torch.mm(hidden, weight.T, out=out)
        return out

    def in_pieces() -> Tensor:
        for begin in range(0, len(weight), PIECE):
            torch.mm(hidden, weight[begin : begin + PIECE].T, out=out[:, begin : begin + PIECE])
        return out

    runs: dict[str, Callable[[], Tensor]] = {"whole": whole, "linear": partial(linear, hidden, weight)}
    if weight.is_cpu and len(hidden) > 1:
        runs["pieces"] = in_pieces
    return runs


def assign_stages(layer: Layer, rows: int) -> Iterator[Timed]:
    """The nearest centroids, of all and of a quarter."""
    for clusters in sorted({max(1, len(layer.centroids) // 4), len(layer.centroids)}):
        centroids = type(layer.centroids).of(layer.centroids.points[:clusters])
        hidden = layer.centroids.points[torch.arange(rows) % clusters]
        yield Timed("assign", rows, clusters * layer.width, clusters, partial(centroids.nearest, hidden))


def step_stages(layer: Layer, steps: Sequence[Step], kept: SubMatrix, logits: Tensor) -> list[Timed]:
    """Every stage of these steps beside the assignment, the steps in turn.

    `kept`: a copy of the first one's columns; `logits`: float32 [rows, V] to write to.
    """
    first = steps[0]
    rows, vocab = first.rows, layer.vocab
    columns = sum(len(step.columns) for step in steps) / len(steps)
    indices = sum(step.indices for step in steps) / len(steps)
    outs = [torch.empty(rows, len(step.columns), device=layer.weight.device) for step in steps]

    def product(method: ProductMethod) -> Run:
        return alternate(
            [
                partial(gathered_products, layer.weight, step.hidden, step.columns, method=method, out=out)
                for step, out in zip(steps, outs, strict=True)
            ]
        )

    union = alternate([partial(step.sets.union, step.chosen) for step in steps])
    scattered = alternate(
        [partial(scatter, out, step.columns, vocab, layer.bias, logits) for step, out in zip(steps, outs, strict=True)]
    )
    for out, step in zip(outs, steps, strict=True):
        gathered_products(layer.weight, step.hidden, step.columns, out=out)
    numbers = columns * layer.width
    timed = [Timed(method, rows, numbers, columns, product(method)) for method in PRODUCT_METHODS]
    column_count, out = len(first.columns), outs[0]
    return [
        *timed,
        Timed("kept", rows, column_count * layer.width, column_count, partial(kept.products, first.hidden, out)),
        Timed("union", rows, vocab, indices, union),
        Timed("scatter", rows, vocab, columns, scattered),
        Timed("search", rows, column_count, column_count, search_run(out, layer.bias, search_width(rows), first.columns)),
    ]


def copy_stage(layer: Layer, step: Step) -> Timed:
    """Return the timing of a kept copy of the step's columns, which does not depend on the rows."""
    column_count = len(step.columns)
    return Timed("copy_out", 1, column_count * layer.width, column_count, partial(SubMatrix.of, layer.weight, step.columns))


def search_run(products: Tensor, bias: Tensor, count: int, columns: Tensor | None = None) -> Run:
    """The best of each row, with the bias of these columns where they are some alone."""
    rows, count = len(products), min(count, products.shape[1])
    on = products.device
    best = Best(
        torch.empty((rows, count), dtype=torch.int64, device=on),
        torch.empty((rows, count), device=on),
        torch.empty(rows, device=on),
    )

    def run() -> object:
        return fused_best(
            products, bias if columns is None else bias[columns], count, out=best, threads=torch.get_num_threads()
        )

    return run


def runs_of(timed: Sequence[Timed], push_out: Run) -> tuple[dict[str, Run], dict[str, Run]]:
    """Return callables by their place in the list, and what runs untimed ahead of each of the `COLD` stages."""
    names = [str(place) for place in range(len(timed))]
    cold = [name for name, timing in zip(names, timed, strict=True) if timing.stage in COLD]
    return {name: timing.run for name, timing in zip(names, timed, strict=True)}, dict.fromkeys(cold, push_out)


def points_of(
    timed: Sequence[Timed], times: Times, first: int = 0, of: Callable[[Times, str], float] = Times.median_s
) -> dict[str, list[StagePoint]]:
    """Return by stage the median seconds of each timing, the fastest where several methods do the same work.

    `first`: the place of the first timing among `times`; `of`: which of the rounds' times is taken.
    """
    by_stage: dict[str, dict[tuple[int, float, float], float]] = {}
    for place, timing in enumerate(timed, first):
        key, own_s = (timing.rows, timing.numbers, timing.columns), of(times, str(place))
        of_stage = by_stage.setdefault(timing.stage, {})
        of_stage[key] = min(own_s, of_stage.get(key, own_s))
    return {stage: [StagePoint(*key, seconds) for key, seconds in points.items()] for stage, points in by_stage.items()}


def cache_flush(weight: Tensor, caches: float = 1.5) -> Run:
    """Reads as many times the last cache of where `weight` lies: more than one pushes all else out of it."""
    filler = torch.ones(int(caches * cache_bytes(weight.device)) // 4, device=weight.device)
    return filler.sum


def cache_bytes(device: torch.device) -> int:
    """Of the processor's last cache, or of a GPU's."""
    return last_cache_bytes() if device.type == "cpu" else int(torch.cuda.get_device_properties(device).L2_cache_size)


def clock_of(device: torch.device, clock: Callable[[], float]) -> Callable[[], float]:
    """The same clock, read when the device has done all that it was told."""
    if device.type == "cpu":
        return clock

    def after_all() -> float:
        torch.cuda.synchronize(device)
        return clock()

    return after_all


def alternate(runs: Sequence[Run]) -> Run:
    """The next of them with each call."""
    following = cycle(runs)
    return lambda: next(following)()


COLUMNS, KEPT, SCATTERED = "columns", "kept", "scattered"
"""Active columns straight into the search; the same from a copy that was kept; written to their places among V first."""


def dense_steps(layer: Layer, hidden: Tensor) -> dict[str, Run]:
    """Return runs that multiply all columns, one per torch method, each followed by the same search."""
    states = hidden.to(layer.weight.dtype)
    out = torch.empty(len(states), layer.vocab, dtype=states.dtype, device=states.device)

    def both(product: Callable[[], Tensor]) -> Best:
        return _search(product(), layer.bias)

    return {name: partial(both, product) for name, product in dense_products(layer.weight, states, out).items()}


def active_steps(layer: Layer, steps: Sequence[Step], method: ProductMethod, kept: SubMatrix, logits: Tensor) -> dict[str, Run]:
    """Return runs of all stages of the steps in turn; `kept`: copy of the first step's columns, reused; `logits`: [rows, V]."""
    outs = [torch.empty(step.rows, len(step.columns), device=step.hidden.device) for step in steps]

    def assigned(step: Step) -> Tensor:
        return step.sets.union(layer.centroids.nearest(step.hidden))

    def straight(step: Step, out: Tensor) -> Tensor:
        columns = assigned(step)
        products = gathered_products(layer.weight, step.hidden, columns, method=method, out=out)
        return columns[_search(products, layer.bias[columns]).columns]

    def from_copy(step: Step, out: Tensor) -> Tensor:
        columns = assigned(step)
        return columns[_search(kept.products(step.hidden, out), layer.bias[columns]).columns]

    def scattered(step: Step, out: Tensor) -> Tensor:
        columns = assigned(step)
        products = gathered_products(layer.weight, step.hidden, columns, method=method, out=out)
        return _search(scatter(products, columns, layer.vocab, layer.bias, logits), None).columns

    def all_of(run: Callable[[Step, Tensor], Tensor]) -> Run:
        return alternate([partial(run, step, out) for step, out in zip(steps, outs, strict=True)])

    return {COLUMNS: all_of(straight), KEPT: partial(from_copy, steps[0], outs[0]), SCATTERED: all_of(scattered)}


def _search(products: Tensor, bias: Tensor | None) -> Best:
    rows, columns = products.shape
    return fused_best(products, bias, min(search_width(rows), columns), threads=torch.get_num_threads())
