"""Costs inferred from what the paper tells of its two boards, for trying the planner without a profile (STI-10, 20, 21)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simnmt.costs.shard_geometry import BERT_BASE, BITS
from simnmt.costs.sti_cost import StiCost

DISK_BYTES_PER_S = BERT_BASE.float32_bytes_per_layer / 0.339
"""Inferred: the paper's one layer, 28.3 MB, in 339 ms."""
LENGTH = 128


@dataclass(frozen=True, slots=True)
class Preset:
    """A cost and where it comes from."""

    cost: StiCost
    kind: str
    said: str
    """In words, for whoever reads the plan."""
    preload_bytes: int
    """The paper's buffer on that board."""


def preset(name: str) -> Preset | None:
    """By its name, with the @; None where there is none of that name."""
    made = PRESETS.get(name)
    return None if made is None else made()


def odroid() -> Preset:
    """A processor whose layers cost in proportion to their shards."""
    said = "12 x 12 of BERT-base's size; disk inferred from 28.3 MB in 339 ms; layers synthetic, 1 + 2.5 m ms for m shards"
    return Preset(_cost(lambda slices: (1.0 + 2.5 * slices) / 1e3), "inferred", said, 10**6)


def jetson() -> Preset:
    """A GPU, whose layers cost nearly the same with any number of shards."""
    said = (
        "12 x 12 of BERT-base's size; disk inferred from 28.3 MB in 339 ms, as on the other board; layers synthetic, "
        "40 ms with 3 shards and 0.7 % more with 12"
    )
    return Preset(_cost(lambda slices: 0.040 * (1.0 + 0.007 * (slices - 3) / 9)), "inferred", said, 5 * 10**6)


PRESETS: dict[str, Callable[[], Preset]] = {"@odroid-sti": odroid, "@jetson-sti": jetson}


def _cost(layer_s: Callable[[int], float]) -> StiCost:
    sizes = {bits: BERT_BASE.index_bytes(bits) + BERT_BASE.dictionary_bytes(bits) for bits in BITS}
    return StiCost(
        geometry=BERT_BASE,
        io_s={bits: size / DISK_BYTES_PER_S for bits, size in sizes.items()},
        comp_s={LENGTH: tuple(layer_s(slices) for slices in range(1, BERT_BASE.heads + 1))},
        shard_bytes=sizes,
    )
