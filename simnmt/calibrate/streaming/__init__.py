"""Measurement of a streamed model for a device profile: shard reads, layers by width, whole models, shard importance.

Open first: `streaming_profile.py` (assembles the profile), `encoder_block.py` (block `sti` of an encoder), `layer_times.py`.
"""

from __future__ import annotations
