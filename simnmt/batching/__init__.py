"""Batching: which waiting sentences a server encodes and decodes together. Pure decisions: no clock, no model, no device.

To read it, start with `configuration.py` (mini, maxi and top-up as a scenario names them), then `batcher.py` (one server's
queues and its next move: it decides when a top-up batch takes in sentences). The reference world (`devices/batch.py`) and the
live server's decoder (`nmt/decoder.py`) ask the same `Batcher`; `world/compiled/batcher.h` is its translation to C.
"""

from simnmt.batching.batcher import Batcher, Batching, Encode, Join, half_empty, immediate, maxi, mini, top_up

__all__ = ["Batcher", "Batching", "Encode", "Join", "half_empty", "immediate", "maxi", "mini", "top_up"]
