"""The verbs `simnmt sti ...`: elastic sharded models, from training to a pipeline that runs."""

from __future__ import annotations
