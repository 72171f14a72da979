"""What an execution of a plan found, and when each layer was read, waited for, unpacked and computed (STI-16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from simnmt.sti.timeline import Timeline


@dataclass(frozen=True, slots=True)
class LayerExecution:
    """One layer, in seconds since the execution began."""

    layer: int
    io_begin_s: float
    io_end_s: float
    """When the last of its shards was in memory; both 0 where all of them were beforehand."""
    begin_s: float
    """When its shards began to be unpacked."""
    wait_s: float
    """How long the processor had waited for its shards: the stall."""
    unpack_s: float
    forward_s: float
    bytes_read: int

    @property
    def io_s(self) -> float:
        """That the disk, or the pace it is held to, took."""
        return self.io_end_s - self.io_begin_s

    @property
    def compute_s(self) -> float:
        """Unpacking and forward pass together: what T_comp predicts."""
        return self.unpack_s + self.forward_s

    @property
    def end_s(self) -> float:
        """When its output stood."""
        return self.begin_s + self.compute_s


@dataclass(frozen=True, slots=True, eq=False)
class Execution:
    """A plan, executed once."""

    logits: Tensor
    """[batch, classes]"""
    layers: tuple[LayerExecution, ...]
    embed_s: float
    """Before the first layer, while its shards were being read."""
    head_s: float
    """After the last layer."""
    latency_s: float
    peak_bytes: int
    """Of compressed shards in memory at once, preloaded ones included: the working buffer comes on top."""
    cold: bool
    """Whether nothing of the store's file was in this system's memory beforehand."""

    @property
    def stall_s(self) -> float:
        """Of all layers together."""
        return sum(layer.wait_s for layer in self.layers)

    @property
    def bytes_read(self) -> int:
        """From the store."""
        return sum(layer.bytes_read for layer in self.layers)

    @property
    def compute_s(self) -> float:
        """Of all layers together, unpacking included."""
        return sum(layer.compute_s for layer in self.layers)

    @property
    def timeline(self) -> Timeline:
        """In the terms of what was predicted; the embedding comes ahead of its rows, the head behind them."""
        columns = [
            (each.io_begin_s, each.io_end_s, each.begin_s, each.end_s, each.wait_s) for each in self.layers
        ]  # a row per layer
        load_begin, load_end, begin, end, stall = np.array(columns, np.float64).T
        return Timeline(load_begin, load_end, begin, end, stall, self.head_s, self.embed_s)

    def as_json(self) -> dict[str, Any]:
        """Times alone."""
        fields = ("layer", "io_begin_s", "io_end_s", "begin_s", "wait_s", "unpack_s", "forward_s", "bytes_read")
        return {
            "latency_s": self.latency_s,
            "stall_s": self.stall_s,
            "embed_s": self.embed_s,
            "head_s": self.head_s,
            "bytes_read": self.bytes_read,
            "peak_bytes": self.peak_bytes,
            "cold": self.cold,
            "layers": [{name: getattr(layer, name) for name in fields} for layer in self.layers],
        }
