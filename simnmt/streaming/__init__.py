"""Model streaming (STI): a Transformer is read from storage, shard by shard, while it is computed.

`plan/` chooses what is read and at how many bits, `encoder/` holds models, tokenizers, tasks and training, `store/` keeps
shards on the disk, `pipeline/` executes plans. Open first: `plan/streaming_plan.py`, `store/shard_format.py`,
`pipeline/pipeline.py`.

This package imports nothing, and `plan/` imports neither torch nor the other folders: simulations need the plans alone.
"""

from __future__ import annotations
