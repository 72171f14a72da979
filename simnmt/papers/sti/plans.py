"""The plans of a study by the costs of the paper's boards, and the frames that claims and tables are made of (STI-19 to 27)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from simnmt.base.errors import InputError
from simnmt.papers.sti.study import Study, submodel_name
from simnmt.profile.streaming_block import BERT_BASE, BITS, Shard, ShardGeometry, StiCost
from simnmt.streaming.plan.plan_summary import PRELOAD_BYTES, Board, board_cost, contestants
from simnmt.streaming.plan.streaming_plan import Memory, StreamingPlan, loads_s, make_plan, memory_of, plan_with_bits
from simnmt.streaming.plan.submodel import submodel

Part = Literal["uniform", "grid", "sizes", "upgrades"]
"""`uniform`: submodels with all shards at one bitwidth; `grid`: every method under every deadline; `sizes`: STI with preload
buffers of many sizes; `upgrades`: shards raised by importance or at random."""
PARTS: tuple[Part, ...] = get_args(Part)
METHODS = ("STI", "STI, waiting", "Load&Exec", "StdPL-2", "StdPL-6", "StdPL-32", "PreloadModel-6", "PreloadModel-32")
"""STI-19's names; 32 bits are the paper's `full`. Waiting, beyond the paper: a plan may stall until its deadline."""
PLANNED = METHODS[:2]
"""Methods with a preload buffer."""
LENGTH = 32
"""Padded tokens that the boards' costs are labelled with; the costs depend on none."""
LOW_BITS, RAISED_BITS = 2, 6
"""Bits of the part `upgrades`."""


def scaled(base_bytes: float) -> float:
    """Return a preload buffer for BERT's base size as a share of all shards in float32, which any model can have."""
    return base_bytes / (BERT_BASE.layers * BERT_BASE.float32_bytes_per_layer)


class Device(NamedTuple):
    """A board of the paper: shards of BERT's size, and the paper's own times of a layer (STI-20, STI-21)."""

    name: str
    times: Board
    buffer: Board
    """The board whose preload buffer it has."""

    @property
    def preload_share(self) -> float:
        """The preload buffer, as a share of all shards in float32."""
        return scaled(PRELOAD_BYTES[self.buffer])

    def cost(self, layers: int, slices: int, order: tuple[Shard, ...]) -> StiCost:
        """Return the costs for a model of as many layers and slices, with shards of BERT's size."""
        width = slices * BERT_BASE.width // BERT_BASE.heads
        return board_cost(self.times, ShardGeometry(layers, slices, width, 4 * width), LENGTH, order)


PROCESSOR, GPU = Device("processor, 1 MB", "odroid", "odroid"), Device("GPU, 5 MB", "jetson", "jetson")
DEVICES = (PROCESSOR, Device("processor, 5 MB", "odroid", "jetson"), GPU)
"""The second one since 1 MB does not hold twelve slices of 2 bits."""


DEADLINES = (0.1, 0.13, 0.175, 0.25, 0.35, 0.5, 0.7, 1.0)
"""Shares of the whole model's computation: 0.13, 0.175, 0.35 are the paper's 150, 200, 400 ms where a layer takes 95 ms."""
SIZES = tuple(scaled(1e6 * mb) for mb in (0.0, 0.2, 0.4, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0))
"""Preload buffers of the part `sizes`."""
SIZES_DEADLINES = (0.13, 0.25, 0.5)
DEPTHS = (1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6)
"""Shares of the layers, and of the slices, that uniform submodels have beside the whole."""
UPGRADES = ((5 / 12, 1 / 4, 1 / 5), (5 / 12, 1 / 4, 1 / 3), (5 / 12, 1 / 4, 8 / 15), (8 / 12, 1 / 2, 1 / 4), (1.0, 1.0, 1 / 4))
"""Layers, slices, and shards raised, each as a share; the paper's case is 5 x 3 (Table 7's text)."""
RANDOM_ORDERS = 20
Row = dict[str, Any]
"""A row of a part; `bits` are those of each shard of its submodel."""


@dataclass(frozen=True, slots=True)
class Planner:
    """The rows of each part for a model whose shards have this order of importance, best first."""

    layers: int
    slices: int
    order: tuple[Shard, ...]

    def rows(self, part: Part) -> Iterator[Row]:
        parts = {"uniform": self._uniform, "grid": self._grid, "sizes": self._sizes, "upgrades": self._upgrades}
        return parts[part]()

    def _uniform(self) -> Iterator[Row]:
        """Yield the whole model at each bitwidth, and in full precision with fewer layers or fewer slices (STI-27)."""
        fewer = [{_part_of(whole, share) for share in DEPTHS} - {whole} for whole in (self.layers, self.slices)]
        sizes = [(self.layers, self.slices, bits) for bits in BITS]
        sizes += [(layers, self.slices, 32) for layers in sorted(fewer[0])]
        sizes += [(self.layers, slices, 32) for slices in sorted(fewer[1])]
        for layers, slices, bits in sizes:
            yield {
                "layers": layers,
                "slices": slices,
                "bits": dict.fromkeys(self._submodel(layers, slices), bits),
                "uniform_bits": bits,
            }

    def _grid(self) -> Iterator[Row]:
        """Yield every method for every deadline and device; where nothing ends in time, one shard of one layer runs late."""
        for device in DEVICES:
            cost = device.cost(self.layers, self.slices, self.order)
            for share in DEADLINES:
                for method, preload_share in product(PLANNED, (0.0, device.preload_share)):
                    yield self._planned(device, cost, share, preload_share, method)
                deadline_s = self._deadline_s(cost, share)
                rivals = contestants(cost, deadline_s, length=LENGTH)
                for method in METHODS[2:]:
                    if (rival := rivals[method.replace("32", "full")]) is not None:
                        plan, memory = rival.plan, rival.memory
                    else:
                        least = submodel(cost, 1, 1, length=LENGTH)
                        bits = dict.fromkeys(least.shards, int(method.rpartition("-")[2]))
                        plan = plan_with_bits(cost, least, bits, frozenset(), deadline_s, 0)
                        memory = memory_of(cost, plan)
                    yield _point(device, cost, share, None, method, plan, memory)

    def _sizes(self) -> Iterator[Row]:
        """Yield plans with preload buffers of many sizes, on one of the devices that differ by their buffer alone."""
        for device in (PROCESSOR, GPU):
            cost = device.cost(self.layers, self.slices, self.order)
            for share, preload_share in product(SIZES_DEADLINES, SIZES):
                yield self._planned(device, cost, share, preload_share)

    def _upgrades(self) -> Iterator[Row]:
        """Yield submodels at 2 bits of which as many shards are raised by importance and by random orders (STI-24)."""
        sizes = [(_part_of(self.layers, depth), _part_of(self.slices, width), part) for depth, width, part in UPGRADES]
        cases = dict.fromkeys((layers, slices, _part_of(layers * slices, part)) for layers, slices, part in sizes)
        for at, (layers, slices, raised) in enumerate(cases):
            shards = self._submodel(layers, slices)
            base = dict.fromkeys(shards, LOW_BITS)
            generator = np.random.default_rng((1, at))
            draws = [generator.permutation(len(shards))[:raised] for _ in range(RANDOM_ORDERS)]
            orders: list[tuple[str, list[Shard]]] = [("none", [])]
            orders += [("importance", [shard for shard in self.order if shard in base][:raised])]
            orders += [("random", [shards[place] for place in draw]) for draw in draws]
            for order, chosen in orders:
                bits = base | dict.fromkeys(chosen, RAISED_BITS)
                row = {"layers": layers, "slices": slices, "raised": raised, "to_bits": RAISED_BITS}
                yield {**row, "order": order, "bits": bits}

    def _deadline_s(self, cost: StiCost, share: float) -> float:
        return share * (self.layers * cost.t_comp(LENGTH, self.slices))

    def _planned(self, device: Device, cost: StiCost, share: float, preload_share: float, method: str = "STI") -> Row:
        preload_bytes = round(preload_share * self.layers * cost.geometry.float32_bytes_per_layer)
        deadline_s, waits = self._deadline_s(cost, share), method != "STI"
        plan = make_plan(cost, deadline_s, preload_bytes, length=LENGTH, fills_deadline=waits)
        return _point(device, cost, share, preload_share, method, plan, memory_of(cost, plan))

    def _submodel(self, layers: int, slices: int) -> tuple[Shard, ...]:
        """Return the most important slices of each of the bottom layers."""
        return submodel(PROCESSOR.cost(self.layers, self.slices, self.order), layers, slices, length=LENGTH).shards


def _part_of(whole: int, share: float) -> int:
    return max(1, round(share * whole))


def _point(
    device: Device,
    cost: StiCost,
    deadline_share: float,
    preload_share: float | None,
    method: str,
    plan: StreamingPlan,
    memory: Memory,
) -> Row:
    """Return a method under a deadline; `working_mb`: float32 parameters unpacked at once, none if they lie in memory so."""
    return {
        "device": device.name,
        "method": method,
        "deadline_share": deadline_share,
        "preload_share": preload_share,
        "layers": plan.layers,
        "slices": plan.slices_per_layer,
        "misses": plan.misses_deadline,
        "deadline_ms": 1e3 * plan.deadline_s,
        "mean_bits": sum(plan.bits.values()) / len(plan.bits),
        "held_mb": 1e-6 * memory.preload_bytes,
        "working_mb": 0.0 if method == "PreloadModel-32" else 1e-6 * memory.working_bytes,
        "latency_ms": 1e3 * plan.latency_s,
        "stall_ms": 1e3 * plan.stall_s,
        "io_busy_ms": 1e3 * sum(loads_s(cost, plan.bits, plan.preloaded)),
        "compute_busy_ms": 1e3 * plan.layers * cost.t_comp(LENGTH, plan.slices_per_layer),
        "bits": plan.bits,
    }


@dataclass(frozen=True)
class Studied:
    """A study with its parts as frames: the planned rows, and the answers of each row's submodel.

    Columns of all parts: `layers` and `slices` (n and m of the paper), `shards` (n x m), `accuracy`, `agreement`, and `right`
    with a truth value for each example.
    """

    study: Study
    uniform: pd.DataFrame
    grid: pd.DataFrame
    sizes: pd.DataFrame
    upgrades: pd.DataFrame

    @classmethod
    def of(cls, study: Study) -> Studied:
        """Plan with the study's order of importance. Raises `InputError` for a study that lacks a planned submodel."""
        planner = Planner(study.model.layers, study.model.heads, study.importance.order)
        return cls(study, **{part: _frame(study, planner.rows(part)) for part in PARTS})


def _frame(study: Study, rows: Iterator[Row]) -> pd.DataFrame:
    answered = []
    for row in rows:
        name = submodel_name(row.pop("bits"), study.model.heads)
        if (answers := study.answers.get(name)) is None:
            raise InputError(f"the study {study.name} lacks submodel {name}", remedy="continue it: give --store and --task")
        more = {"study": study.name, "accuracy": answers.accuracy, "agreement": answers.agreement, "right": study.right(name)}
        answered.append({**row, **more, "shards": row["layers"] * row["slices"]})
    return pd.DataFrame(answered)


def submodels(planner: Planner) -> Mapping[str, Mapping[Shard, int]]:
    """Return the bits of all submodels that a study needs, by name, the whole model in 32 bits among them."""
    every = (row["bits"] for part in PARTS for row in planner.rows(part))
    return {submodel_name(bits, planner.slices): bits for bits in every}
