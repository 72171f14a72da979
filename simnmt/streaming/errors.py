"""Errors of models, tasks and shard stores."""

from __future__ import annotations

from simnmt.base.errors import InputError


class StreamingError(InputError):
    """A model, a task or a setting that cannot be used."""


class StoreError(StreamingError):
    """A shard store that is damaged, unfinished or of another model, or a model that cannot be put into one."""
