"""Shard stores: every shard of a model at every number of bits, in one file that is read by positions (STI-05).

Open first: `shard_store.py` (read a store), `writer.py` (write one), `shard_format.py` (one shard in memory and in the file).
Does not import `simnmt.streaming.pipeline`.
"""

from __future__ import annotations
