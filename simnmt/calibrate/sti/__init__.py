"""What a device profile has to know of a streamed model: reads of its shards, layers by width, what shards are worth."""

from __future__ import annotations
