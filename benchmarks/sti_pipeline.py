"""A real pipeline of BERT's base size: against loading first, its stalls, and what its timeline predicted (STI-06, 16, 21):
`python -m benchmarks.sti_pipeline --out FILE.json`.

Random weights, one thread that computes and one that reads; every execution finds the store's file out of memory. Four parts,
each with a bar: unpacking against torch, and numba where it is installed; all 12 layers over 16 tokens at 6 bits against
loading 32 bits first and then computing, paced to 80 and 200 MB/s; plans that are predicted not to stall at the paper's skew,
where a layer's 32 bits load for 3.57 times as long as it computes; and the simulated latency of every plan of a grid of
deadlines, preload sizes and paces. The skew is paced for 128 tokens: for 16 it would take a flash of some 1.2 GB/s, which a
server's disk is not when read cold, a shard at a time. T_io and T_comp are measured beforehand, and nothing is fitted to the
grid: T_io of layers read alone, T_comp by executions of models in memory. `--store` names a store of BERT's base size that
`simnmt sti shard bert-base` wrote, which is made in a hidden folder here otherwise. Leave the box alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.sti_unpack import unpacking
from simnmt.cli.tables import aligned
from simnmt.costs.shard_geometry import BITS
from simnmt.costs.sti_cost import Shard, StiCost
from simnmt.elastic.elastic_encoder import ElasticEncoder
from simnmt.elastic.pipeline import Execution, Pipeline, PreloadBuffer, ShardReader, load_then_run
from simnmt.elastic.store import ShardStore, write_store
from simnmt.errors import SimnmtError
from simnmt.files import written_whole
from simnmt.sti.plan import Plan, loads_s, planned
from simnmt.sti.timeline import ROUNDING, Timeline, timeline

MB = 1_000_000
LENGTH, SKEW_LENGTH = 16, 128
PACES_MB = (80.0, 200.0)
SKEW = 339 / 95
"""STI-21: a layer's load over its computing."""
SHARES = (0.3, 0.45, 0.6, 0.8, 1.0)
"""Deadlines of the grid, of what computing the whole model takes."""
PRELOADS_MB = (0.0, 1.0, 5.0, 20.0)
FASTER, STALL_SHARE, ERROR, LEAST_PLANS, UNPACK, EVEN = 4.0, 0.15, 0.10, 10, 2.0, 0.8


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """What is executed, and on what."""

    store: ShardStore
    encoder: ElasticEncoder
    importance: tuple[Shard, ...]

    def text(self, length: int) -> tuple[Tensor, Tensor]:
        """Token ids and mask of one text, all of it tokens."""
        draw = np.random.default_rng(length)
        token_ids = torch.from_numpy(draw.integers(0, self.store.configuration.vocabulary, (1, length)))
        return token_ids, torch.ones((1, length), dtype=torch.bool)

    def executed(self, plan: Plan, pace_bytes_per_s: float | None, repeats: int) -> list[Execution]:
        """The plan as often as asked, each time from its own preload buffer and a cold disk."""
        buffer = PreloadBuffer(plan.preload_bytes)
        cold = len(plan.preloaded) < len(plan.bits)
        pipeline = Pipeline(self.store, self.encoder, plan, buffer, pace_bytes_per_s=pace_bytes_per_s, cold=cold)
        return [pipeline.run(*self.text(plan.length)) for _ in range(repeats)]

    def uniform(self, bits: int, length: int, slices: int | None = None, *, preloaded: bool = False) -> Plan:
        """All layers at so many bits, in memory or not."""
        layers, width = self.store.geometry.layers, self.store.geometry.heads if slices is None else slices
        every = {(layer, piece): bits for layer in range(layers) for piece in range(width)}
        held, capacity = (frozenset(every), 10**12) if preloaded else (frozenset[Shard](), 0)
        return Plan(layers, width, every, held, 1.0, capacity, length, 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class Computing:
    """T_comp of one length, and what a request takes beside its layers; seconds."""

    length: int
    layer_s: tuple[float, ...]
    """With 1, 2, .. shards: never less with more."""
    embed_s: float
    head_s: float

    @classmethod
    def of(cls, model: Model, length: int, repeats: int) -> Computing:
        """By executions of whole models at 6 bits in memory, all widths in turn; medians over layers and executions."""
        widths = range(1, model.store.geometry.heads + 1)
        found: dict[int, list[Execution]] = {width: [] for width in widths}
        for number in range(repeats + 1):
            say(f"T_comp of {length} tokens: {number} of {repeats}")
            for width in widths:
                runs = model.executed(model.uniform(6, length, width, preloaded=True), None, 1)
                if number:  # pages and libraries are there from the first round on
                    found[width] += runs
        layer_s = [median(layer.compute_s for run in found[width] for layer in run.layers) for width in widths]
        every = [run for runs in found.values() for run in runs]
        return cls(
            length,
            tuple(np.maximum.accumulate(layer_s).tolist()),
            median(run.embed_s for run in every),
            median(run.head_s for run in every),
        )

    def whole_s(self, model: Model) -> float:
        """To compute all layers and shards."""
        return model.store.geometry.layers * self.layer_s[-1]

    def predicted(self, plan: Plan, cost: StiCost) -> Timeline:
        """Of a whole execution: the embedding ahead of the layers, reading nothing, and the head behind them."""
        comp_s = [self.embed_s] + [cost.t_comp(self.length, plan.slices_per_layer)] * plan.layers
        return timeline([0.0, *loads_s(cost, plan.bits, plan.preloaded)], comp_s, self.head_s)


def cost_of(model: Model, computing: Computing, pace_bytes_per_s: float, repeats: int) -> StiCost:
    """T_io at that pace beside T_comp."""
    say(f"T_io at {pace_bytes_per_s / MB:.0f} MB/s")
    return StiCost(
        geometry=model.store.geometry,
        io_s=shard_reads(model.store, pace_bytes_per_s, repeats),
        comp_s={computing.length: computing.layer_s},
        shard_bytes={bits: round(model.store.mean_size(bits)) for bits in BITS},
        importance=model.importance,
    )


def shard_reads(store: ShardStore, pace_bytes_per_s: float | None, repeats: int) -> dict[int, float]:
    """T_io by bits: mean of a layer's shards read one after another from a cold disk, the median over layers drawn at random.

    So does the pipeline read: a single read's late waking, some 50 us, is no part of the channel's time.
    """
    reader, draw = ShardReader(store, pace_bytes_per_s), np.random.default_rng(1)
    found: dict[int, list[float]] = {bits: [] for bits in BITS}
    slices = store.geometry.heads
    for _ in range(repeats):
        for bits in draw.permutation(BITS).tolist():
            layer = int(draw.integers(store.geometry.layers))
            reader.drop_cache()
            reader.begin()
            begin_s = reader.clock()
            for piece in range(slices):
                reader.read((layer, piece), bits)
            found[bits].append((reader.clock() - begin_s) / slices)
    return dict(zip(BITS, np.maximum.accumulate([median(found[bits]) for bits in BITS]).tolist(), strict=True))


@contextmanager
def bert_base(given: Path | None) -> Iterator[ShardStore]:
    """The store that is given, or one of random weights, made for as long as the block lasts."""
    if given is not None:
        with ShardStore.open(given) as store:
            yield store
        return
    from simnmt.elastic.loading import load_encoder

    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".sti-pipeline-") as folder:
        weights = load_encoder("bert-base").weights
        write_store(weights, Path(folder) / "store", progress=lambda done, total: say(f"sharding: layer {done} of {total}"))
        with ShardStore.open(Path(folder) / "store") as store:
            yield store


def prepared(store: ShardStore) -> Model:
    """The model, its shards ranked by a draw: nobody has trained it."""
    every = [(layer, piece) for layer in range(store.geometry.layers) for piece in range(store.geometry.heads)]
    order = tuple(every[index] for index in np.random.default_rng(2).permutation(len(every)))
    return Model(store, ElasticEncoder(store.configuration, store.resident()), order)


def against_loading(model: Model, pace_mb: float, repeats: int) -> dict[str, Any]:
    """All layers at 6 and at 2 bits, and 32 bits loaded first, in turn."""
    pace, found = pace_mb * MB, {name: list[Execution]() for name in ("load_then_run", "bits_6", "bits_2")}
    for number in range(repeats):
        say(f"against loading first at {pace_mb:g} MB/s: {number + 1} of {repeats}")
        full, text = model.uniform(32, LENGTH), model.text(LENGTH)
        found["load_then_run"].append(load_then_run(model.store, model.encoder, full, *text, pace_bytes_per_s=pace))
        for bits in (6, 2):
            found[f"bits_{bits}"] += model.executed(model.uniform(bits, LENGTH), pace, 1)
    figures: dict[str, Any] = {"pace_mb": pace_mb}
    for name, runs in found.items():
        figures |= {f"{name}_s": median(run.latency_s for run in runs), f"{name}_stall_s": median(run.stall_s for run in runs)}
    pairs = zip(found["load_then_run"], found["bits_6"], strict=True)
    return figures | {"ratio": median(loaded.latency_s / six.latency_s for loaded, six in pairs)}


def judged(model: Model, computing: Computing, plan: Plan, cost: StiCost, pace: float, repeats: int) -> dict[str, Any]:
    """One plan, simulated and executed: medians."""
    runs, expected = model.executed(plan, pace, repeats), computing.predicted(plan, cost)
    measured_s, stall_s = (median(getattr(run, name) for run in runs) for name in ("latency_s", "stall_s"))
    return {
        "deadline_ms": 1e3 * plan.deadline_s,
        "preload_mb": plan.preload_bytes / MB,
        "pace_mb": pace / MB,
        "length": plan.length,
        "layers": plan.layers,
        "slices": plan.slices_per_layer,
        "mean_bits": sum(plan.bits.values()) / len(plan.bits),
        "preloaded": len(plan.preloaded),
        "short_of_io": plan.short_of_io,
        "simulated_s": expected.latency_s,
        "measured_s": measured_s,
        "error": expected.latency_s / measured_s - 1.0,
        "simulated_stall_s": expected.stall_s,
        "stall_s": stall_s,
        "stall_share": stall_s / measured_s,
        "unpack_s": median(sum(layer.unpack_s for layer in run.layers) for run in runs),
        "forward_s": median(sum(layer.forward_s for layer in run.layers) for run in runs),
        "io_s": median(sum(layer.io_s for layer in run.layers) for run in runs),
        "cold": all(run.cold for run in runs),
    }


def grid_of(model: Model, computing: Computing, cost: StiCost, pace: float, repeats: int) -> Iterator[dict[str, Any]]:
    """Distinct plans over deadlines and preload sizes, each judged."""
    seen = set()
    for share in SHARES:
        for preload_mb in PRELOADS_MB:
            plan = planned(cost, share * computing.whole_s(model), round(preload_mb * MB), length=computing.length)
            key = (tuple(plan.bits.items()), plan.preloaded)
            if key not in seen:
                seen.add(key)
                size = f"{plan.layers} x {plan.slices_per_layer}"
                say(f"{pace / MB:.0f} MB/s, {computing.length} tokens: plan {len(seen)}, {size}")
                yield judged(model, computing, plan, cost, pace, repeats)


def measure(store: ShardStore, repeats: int) -> dict[str, Any]:
    """All parts, as they go into the file."""
    say("unpacking")
    unpacked = unpacking()
    model = prepared(store)
    short, long = (Computing.of(model, length, repeats) for length in (LENGTH, SKEW_LENGTH))
    faster = [against_loading(model, pace_mb, repeats) for pace_mb in PACES_MB]
    skew_pace = store.geometry.heads * store.mean_size(32) / (SKEW * long.layer_s[-1])
    grid, costs = list[dict[str, Any]](), dict[float, StiCost]()
    for pace, computing in ((skew_pace, long), *((pace_mb * MB, short) for pace_mb in PACES_MB)):
        costs[pace] = cost_of(model, computing, pace, repeats)
        grid += grid_of(model, computing, costs[pace], pace, repeats)
    figures = {
        "version": 1,
        "kind": "measured",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "model": f"{store.index.origin}{', random weights' if store.index.random else ''}",
        "layers": store.geometry.layers,
        "heads": store.geometry.heads,
        "width": store.geometry.width,
        "length": LENGTH,
        "repeats": repeats,
        "computing": [asdict(short), asdict(long)],
        "io_s": [{"pace_mb": pace / MB} | {str(bits): cost.io_s[bits] for bits in BITS} for pace, cost in costs.items()],
        "unpack": unpacked,
        "faster": faster,
        "skew": {
            "pace_mb": skew_pace / MB,
            "length": SKEW_LENGTH,
            "asked": SKEW,
            "load_over_compute": store.geometry.heads * costs[skew_pace].io_s[32] / long.layer_s[-1],
        },
        "grid": grid,
    }
    return figures | {"bars": bars(figures)}


def stall_free(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Plans at the paper's skew that are predicted not to stall."""
    pace = figures["skew"]["pace_mb"]
    return [
        row for row in figures["grid"] if row["pace_mb"] == pace and row["simulated_stall_s"] <= ROUNDING * row["simulated_s"]
    ]


def bars(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the project asks of each part, what was found, and whether that is enough."""
    unpacked, free = figures["unpack"], stall_free(figures)
    least, errors = min(row["ratio"] for row in figures["faster"]), [abs(row["error"]) for row in figures["grid"]]
    found = [
        ("unpacking over the best of torch and numba, least over bits", unpacked["least_ratio"], ">=", UNPACK),
        ("unpacking 6 bits, of the speed of 2", unpacked["six_over_two"], ">=", EVEN),
        ("6 bits in a pipeline over 32 bits loaded first, least over paces", least, ">=", FASTER),
        ("plans predicted not to stall at the paper's skew", len(free), ">=", LEAST_PLANS),
        ("their largest share of stall", max((row["stall_share"] for row in free), default=1.0), "<=", STALL_SHARE),
        ("largest relative error of a simulated latency", max(errors), "<=", ERROR),
    ]
    return [
        {"bar": what, "found": value, "asked": f"{sign} {bar:g}", "reached": value >= bar if sign == ">=" else value <= bar}
        for what, value, sign, bar in found
    ]


def told(figures: Mapping[str, Any]) -> str:
    """For a person."""
    lines = [f"{figures['model']}: {figures['layers']} layers, medians of {figures['repeats']}", ""]
    lines += [
        f"{row['pace_mb']:g} MB/s: 32 bits loaded first {1e3 * row['load_then_run_s']:.0f} ms, pipeline at 6 bits "
        f"{1e3 * row['bits_6_s']:.0f} ms, at 2 bits {1e3 * row['bits_2_s']:.0f} ms: {row['ratio']:.2f} times as fast"
        for row in figures["faster"]
    ]
    header = [
        "MB/s",
        "tokens",
        "deadline ms",
        "preload MB",
        "n x m",
        "mean bits",
        "simulated ms",
        "measured ms",
        "error %",
        "stall %",
    ]
    rows = [
        [
            f"{row['pace_mb']:.0f}",
            str(row["length"]),
            f"{row['deadline_ms']:.1f}",
            f"{row['preload_mb']:g}",
            f"{row['layers']} x {row['slices']}",
            f"{row['mean_bits']:.1f}",
            f"{1e3 * row['simulated_s']:.1f}",
            f"{1e3 * row['measured_s']:.1f}",
            f"{100 * row['error']:+.1f}",
            f"{100 * row['stall_share']:.1f}" + ("" if row["simulated_stall_s"] > ROUNDING * row["simulated_s"] else " (0)"),
        ]
        for row in figures["grid"]
    ]
    lines += ["", aligned(header, rows, 0), "stall %: measured; (0) where none was predicted", ""]
    lines += [
        f"{'reached' if bar['reached'] else 'MISSED '}  {bar['bar']}: {bar['found']:.3g} (asked {bar['asked']})"
        for bar in figures["bars"]
    ]
    return "\n".join(lines)


def say(text: str) -> None:
    """On standard error."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, metavar="STORE")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    try:
        with bert_base(asked.store) as store:
            figures = measure(store, asked.repeats)
    except SimnmtError as error:
        sys.exit(str(error))
    text = json.dumps(figures, indent=1, allow_nan=False)
    if asked.out is not None:
        with written_whole(asked.out) as partial:
            partial.write_text(text + "\n", encoding="utf-8")
    print(text if asked.json else told(figures))


if __name__ == "__main__":
    main()
