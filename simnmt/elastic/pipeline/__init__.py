"""The pipeline itself: shards are read by one thread while another unpacks and computes the layers before them (STI-16)."""

from __future__ import annotations

from simnmt.elastic.pipeline.execution import Execution, LayerExecution
from simnmt.elastic.pipeline.pipeline import Pipeline, load_then_run
from simnmt.elastic.pipeline.preload_buffer import PreloadBuffer
from simnmt.elastic.pipeline.shard_reader import ShardReader
from simnmt.elastic.pipeline.unpacking import unpack_into

__all__ = ["Execution", "LayerExecution", "Pipeline", "PreloadBuffer", "ShardReader", "load_then_run", "unpack_into"]
