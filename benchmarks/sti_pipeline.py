"""A real pipeline of BERT's base size: against loading first, its stalls, and what its timeline predicted (STI-06, 16, 21):
`python -m benchmarks.sti_pipeline --out FILE.json`.

Random weights, one thread that computes and one that reads; every execution finds the store's file out of memory. Four parts,
each with a bar: unpacking against torch, and numba where it is installed; all 12 layers over 16 tokens at 6 bits against
loading 32 bits first and then computing, paced to 80 and 200 MB/s; plans that are predicted not to stall at the paper's skew,
where a layer's 32 bits load for 3.57 times as long as it computes; and the simulated latency of every plan of a grid of
deadlines, preload sizes and paces. The skew is paced for 128 tokens: for 16 it would take a flash of some 1.2 GB/s, which a
server's disk is not when read cold, a shard at a time.

Costs are measured as `simnmt sti profile` measures them: ahead of all, to plan with; and again in every round beside the
plans, since a shared box does not keep its speed. They time reads and layers in memory alone, and nothing is fitted to the
grid. `--store` names a store of BERT's base size that `simnmt sti shard bert-base` wrote, which is made in a hidden folder
here otherwise. Leave the box alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.sti_unpack import unpacking
from simnmt.base.errors import SimnmtError
from simnmt.base.files import written_whole
from simnmt.base.text_tables import format_table
from simnmt.calibrate.harness import Case, Silent, counted, rounds
from simnmt.calibrate.settings import StiSettings
from simnmt.calibrate.streamed_model import encoder_block
from simnmt.papers.kit.claims import format_claims, judge
from simnmt.papers.sti.claims import PIPELINE_CLAIMS, OfPipeline, PipelineMeasurement
from simnmt.profile.streaming_block import BITS, Shard, StiCost
from simnmt.streaming.encoder import ElasticEncoder
from simnmt.streaming.encoder_folder import load_encoder
from simnmt.streaming.pipeline import Execution, Pipeline, PreloadBuffer, ShardReader
from simnmt.streaming.plan.streaming_plan import StreamingPlan, make_plan, timeline_of
from simnmt.streaming.plan.timeline import ROUNDING
from simnmt.streaming.store import ShardStore, write_store

MB = 1_000_000
LENGTH, SKEW_LENGTH = 16, 128
PACES_MB = (80.0, 200.0)
SKEW = 339 / 95
"""STI-21: a layer's load over its computing."""
SHARES = (0.3, 0.45, 0.6, 0.8, 1.0)
"""Deadlines of the grid, of what computing the whole model takes."""
PRELOADS_MB = (0.0, 1.0, 5.0, 20.0)
EXECUTIONS = 3
"""Of each plan in each round, apart from each other: single ones of some 30 ms differ by a fifth on a shared box."""


def times_of(execution: Execution) -> dict[str, Any]:
    """Return what is kept of an execution, for the harness."""
    sums = {name: execution.total(name) for name in ("unpack_s", "forward_s")}
    sums |= {"io_s": execution.total("io_end_s") - execution.total("io_begin_s"), "stall_s": execution.total("wait_s")}
    return {"seconds": execution.latency_s, "cold": execution.cold, **sums}


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """What is executed, and on what."""

    store: ShardStore
    encoder: ElasticEncoder
    importance: tuple[Shard, ...]

    @classmethod
    def of(cls, store: ShardStore) -> Model:
        """Its shards are ranked by a draw: nobody has trained it."""
        every = [(layer, piece) for layer in range(store.geometry.layers) for piece in range(store.geometry.heads)]
        order = tuple(every[index] for index in np.random.default_rng(2).permutation(len(every)))
        return cls(store, ElasticEncoder(store.configuration, store.resident()), order)

    def text(self, length: int) -> tuple[Tensor, Tensor]:
        """Token ids and mask of one text, all of it tokens."""
        draw = np.random.default_rng(length)
        token_ids = torch.from_numpy(draw.integers(0, self.store.configuration.vocabulary, (1, length)))
        return token_ids, torch.ones((1, length), dtype=torch.bool)

    def executed(self, plan: StreamingPlan, pace_bytes_per_s: float, in_turn: bool = False) -> dict[str, Any]:
        """The plan once, with its preload buffer filled and all else on a cold disk."""
        buffer = PreloadBuffer(plan.preload_bytes)
        buffer.fill(ShardReader(self.store), plan)
        pipeline = Pipeline(self.store, self.encoder, plan.slices_per_layer, pace_bytes_per_s=pace_bytes_per_s)
        return times_of(pipeline.run(plan, buffer, *self.text(plan.length), in_turn=in_turn))

    def uniform(self, bits: int) -> StreamingPlan:
        """All layers at so many bits, none of them in memory."""
        layers, width = self.store.geometry.layers, self.store.geometry.heads
        every = {(layer, piece): bits for layer in range(layers) for piece in range(width)}
        return StreamingPlan(layers, width, every, frozenset(), 1.0, 0, LENGTH, 1.0, 0.0)

    def costs(self, length: int, pace_bytes_per_s: float | None, repeats: int) -> StiCost:
        """Measured as a profile's."""
        settings = StiSettings(lengths=(length,), pace_bytes_per_s=pace_bytes_per_s, repeats=repeats)
        return replace(encoder_block(self.store, self.encoder, settings, Silent).cost(), importance=self.importance)


@dataclass(slots=True, eq=False)
class Part:
    """The plans of one pace and length, and the costs that were measured beside them."""

    pace_bytes_per_s: float
    length: int
    before: StiCost
    """What was planned with."""
    plans: list[StreamingPlan]
    costs: list[StiCost]
    """One for each round."""

    @classmethod
    def of(cls, model: Model, pace_bytes_per_s: float, length: int, repeats: int) -> Part:
        """Distinct plans over deadlines and preload sizes."""
        say(f"costs at {pace_bytes_per_s / MB:.0f} MB/s, {length} tokens")
        cost = model.costs(length, pace_bytes_per_s, repeats)
        whole_s = model.store.geometry.layers * cost.t_comp(length, model.store.geometry.heads)
        plans: dict[Any, StreamingPlan] = {}
        for share in SHARES:
            for preload_mb in PRELOADS_MB:
                plan = make_plan(cost, share * whole_s, round(preload_mb * MB), length=length)
                plans.setdefault((tuple(plan.bits.items()), plan.preloaded), plan)
        return cls(pace_bytes_per_s, length, cost, list(plans.values()), [])

    def measure_costs(self, model: Model) -> None:
        """Measure the costs once more, beside the plans."""
        self.costs.append(model.costs(self.length, self.pace_bytes_per_s, 1))

    def row(self, plan: StreamingPlan, runs: Any) -> dict[str, Any]:
        """A plan, simulated and executed: medians over rounds; `runs`: its rows of the harness."""
        expected, before = timeline_of(plan, middle(self.costs)), timeline_of(plan, self.before)
        medians = {name: float(runs[name].median()) for name in ("stall_s", "unpack_s", "forward_s", "io_s")}
        measured_s = float(runs["seconds"].median())
        return {
            "deadline_ms": 1e3 * plan.deadline_s,
            "preload_mb": plan.preload_bytes / MB,
            "pace_mb": self.pace_bytes_per_s / MB,
            "length": plan.length,
            "layers": plan.layers,
            "slices": plan.slices_per_layer,
            "mean_bits": sum(plan.bits.values()) / len(plan.bits),
            "preloaded": len(plan.preloaded),
            "short_of_io": plan.short_of_io,
            "simulated_s": expected.latency_s,
            "measured_s": measured_s,
            "error": expected.latency_s / measured_s - 1.0,
            "error_before": before.latency_s / measured_s - 1.0,
            "simulated_stall_s": before.stall_s,
            "stall_share": medians["stall_s"] / measured_s,
            "cold": bool(runs["cold"].all()),
            **medians,
        }

    def cost_record(self) -> dict[str, Any]:
        """What the simulation went by."""
        cost = middle(self.costs)
        return {
            "pace_mb": self.pace_bytes_per_s / MB,
            "length": self.length,
            "io_s": {str(bits): cost.io_s[bits] for bits in BITS},
            "comp_s": list(cost.comp_s[self.length]),
            "embed_s": cost.t_embed(self.length),
            "head_s": cost.head_s,
            "slowed": list(cost.slowed),
        }


def middle(costs: Sequence[StiCost]) -> StiCost:
    """Medians of each cost over rounds; never less with more bits or shards."""
    first = costs[0]
    (length,) = first.comp_s

    def rising(columns: Callable[[StiCost], Sequence[float]]) -> list[float]:
        medians = [median(cells) for cells in zip(*map(columns, costs), strict=True)]
        return list(accumulate(medians, max))

    return replace(
        first,
        io_s=dict(zip(BITS, rising(lambda cost: [cost.io_s[bits] for bits in BITS]), strict=True)),
        comp_s={length: tuple(rising(lambda cost: cost.comp_s[length]))},
        embed_s={length: median(cost.t_embed(length) for cost in costs)},
        head_s=median(cost.head_s for cost in costs),
        slowed=tuple(median(cells) for cells in zip(*(cost.slowed for cost in costs), strict=True)),
    )


def against_loading(model: Model, pace_mb: float, repeats: int) -> dict[str, Any]:
    """All layers at 6 and at 2 bits, and 32 bits loaded first, in turn."""
    say(f"against loading first at {pace_mb:g} MB/s")
    pace = pace_mb * MB
    cases: dict[str, Case] = {"load_then_run": Case(partial(model.executed, model.uniform(32), pace, in_turn=True))}
    cases |= {f"bits_{bits}": Case(partial(model.executed, model.uniform(bits), pace)) for bits in (6, 2)}
    runs = counted(rounds(cases, repeats), every=True)
    figures: dict[str, Any] = {"pace_mb": pace_mb, "cold": bool(runs["cold"].all())}
    for name, rows in runs.groupby("case", sort=False):
        figures |= {f"{name}_s": float(rows["seconds"].median()), f"{name}_stall_s": float(rows["stall_s"].median())}
    seconds = runs.pivot(index="round", columns="case", values="seconds")
    return figures | {"ratio": float((seconds["load_then_run"] / seconds["bits_6"]).median())}


def measured_plans(model: Model, parts: Sequence[Part], repeats: int) -> list[dict[str, Any]]:
    """Costs of all parts once a round and each plan `EXECUTIONS` times, in an order of its own each round."""
    cases: dict[str, Case] = {}
    for number, part in enumerate(parts):
        cases[f"costs {number}"] = Case(partial(part.measure_costs, model), prepare=lambda: None)
        for at, plan in enumerate(part.plans):
            run = partial(model.executed, plan, part.pace_bytes_per_s)
            cases |= {f"plan {number}.{at}.{turn}": Case(run, prepare=lambda: None) for turn in range(EXECUTIONS)}
    runs = counted(rounds(cases, repeats, shuffle=0), every=True)
    by_plan = dict(list(runs.groupby(runs["case"].str.rpartition(".")[0])))
    return [
        part.row(plan, by_plan[f"plan {number}.{at}"])
        for number, part in enumerate(parts)
        for at, plan in enumerate(part.plans)
    ]


def measure(store: ShardStore, repeats: int) -> dict[str, Any]:
    """All parts, as they go into the file."""
    say("unpacking")
    unpacked = unpacking()
    model = Model.of(store)
    faster = [against_loading(model, pace_mb, repeats) for pace_mb in PACES_MB]
    heads = store.geometry.heads
    long_s = model.costs(SKEW_LENGTH, None, repeats).t_comp(SKEW_LENGTH, heads)
    skew_pace = heads * store.mean_size(32) / (SKEW * long_s)
    settings = ((skew_pace, SKEW_LENGTH), *((pace_mb * MB, LENGTH) for pace_mb in PACES_MB))
    parts = [Part.of(model, *setting, repeats) for setting in settings]
    say(f"{repeats} rounds of {sum(len(part.plans) for part in parts)} plans")
    grid = measured_plans(model, parts, repeats)
    skew = middle(parts[0].costs)
    return {
        "version": 2,
        "kind": "measured",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "model": f"{store.index.origin}{', random weights' if store.index.random else ''}",
        "layers": store.geometry.layers,
        "heads": heads,
        "width": store.geometry.width,
        "ffn": store.geometry.ffn,
        "length": LENGTH,
        "repeats": repeats,
        "executions": repeats * EXECUTIONS,
        "costs": [part.cost_record() for part in parts],
        "unpack": unpacked,
        "faster": faster,
        "skew": {
            "pace_mb": skew_pace / MB,
            "length": SKEW_LENGTH,
            "asked": SKEW,
            "load_over_compute": heads * skew.io_s[32] / skew.t_comp(SKEW_LENGTH, heads),
        },
        "grid": grid,
    }


def format_figures(figures: dict[str, Any]) -> str:
    """Return the measurement as text for a terminal."""
    lines = [
        f"{figures['model']}: {figures['layers']} layers, medians of {figures['repeats']}; plans of {figures['executions']} "
        "executions",
        "",
    ]
    lines += [
        f"{row['pace_mb']:g} MB/s: 32 bits loaded first {1e3 * row['load_then_run_s']:.0f} ms, pipeline at 6 bits "
        f"{1e3 * row['bits_6_s']:.0f} ms, at 2 bits {1e3 * row['bits_2_s']:.0f} ms: {row['ratio']:.2f} times as fast"
        for row in figures["faster"]
    ]
    lines += [
        f"{row['pace_mb']:.0f} MB/s, {row['length']} tokens: layers take {min(row['slowed']):.2f} to {max(row['slowed']):.2f} "
        "times as long beside reads"
        for row in figures["costs"]
    ]
    header = ["MB/s", "tokens", "deadline ms", "preload MB", "n x m", "mean bits"]
    header += ["simulated ms", "measured ms", "error %", "before %", "stall %"]
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
            f"{100 * row['error_before']:+.1f}",
            f"{100 * row['stall_share']:.1f}" + ("" if row["simulated_stall_s"] > ROUNDING * row["simulated_s"] else " (0)"),
        ]
        for row in figures["grid"]
    ]
    lines += ["", format_table(header, rows, 0)]
    lines += ["error: by costs measured in the same rounds as the plans; before: by those measured ahead of all rounds"]
    lines += ["stall %: measured; (0) where none was predicted", ""]
    claims = judge(PIPELINE_CLAIMS, [OfPipeline(PipelineMeasurement.model_validate(figures))])
    return "\n".join([*lines, format_claims(claims)])


@contextmanager
def bert_base(given: Path | None) -> Iterator[ShardStore]:
    """The store that is given, or one of random weights, made for as long as the block lasts."""
    if given is not None:
        with ShardStore(given) as store:
            yield store
        return
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".sti-pipeline-") as folder:
        weights = load_encoder("bert-base")
        write_store(weights, Path(folder) / "store", progress=lambda done, total: say(f"sharding: layer {done} of {total}"))
        with ShardStore(Path(folder) / "store") as store:
            yield store


def say(text: str) -> None:
    """On standard error."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, metavar="STORE")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats: give 1 or more")
    if options.out is not None and not options.out.resolve().parent.is_dir():
        parser.error(f"--out {options.out}: there is no such folder")
    torch.set_num_threads(1)
    try:
        with bert_base(options.store) as store:
            figures = measure(store, options.repeats)
    except SimnmtError as error:
        sys.exit(str(error))
    text = json.dumps(figures, indent=1, allow_nan=False)
    if options.out is not None:
        with written_whole(options.out) as partial:
            partial.write_text(text + "\n", encoding="utf-8")
    print(text if options.json else format_figures(figures))


if __name__ == "__main__":
    main()
