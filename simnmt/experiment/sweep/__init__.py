"""Sweeps: run a scenario at many points of its keys, on this machine or a cluster, and gather the results in one table.

Start with `points` (the points of a grid, all checked before anything runs), then `tasks` (what one process runs,
keyed by content), then `execution` (who runs them). `store` is the folder of finished tasks; `gather` makes the table. Nothing
here draws or prints: no import of `report` or `cli`.
"""

from __future__ import annotations
