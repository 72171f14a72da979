"""Shard stores: every shard of a model at every fidelity, in one file to be read by positions (STI-05)."""

from __future__ import annotations

from simnmt.elastic.store.packed import Packed, decode, dequantised
from simnmt.elastic.store.record import Record
from simnmt.elastic.store.shard_store import ShardStore
from simnmt.elastic.store.writing import write_store

__all__ = ["Packed", "Record", "ShardStore", "decode", "dequantised", "write_store"]
