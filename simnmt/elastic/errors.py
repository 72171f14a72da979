"""What can go wrong with an elastic model, its task, or its shards."""

from __future__ import annotations

from simnmt.errors import InputError


class ElasticError(InputError):
    """A model, a task or a setting that cannot be used: says which, and the remedy."""


class StoreError(ElasticError):
    """A shard store that is damaged, unfinished or of another model, or a model that cannot be put into one."""
