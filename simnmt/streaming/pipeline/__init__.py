"""Execution of plans: one thread reads shards while another unpacks and computes the layers before them (STI-16).

Open first: `pipeline.py` (one execution), `shard_reader.py` (reads and the preload buffer), `turns.py` (a whole engagement).
"""

from __future__ import annotations
