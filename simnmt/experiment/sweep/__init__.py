"""Sweeps: run a scenario at many points of its keys, on this machine or a cluster, and gather the results in one table.

Start with `tasks` (the points of a grid, all checked before anything runs, and their replications), then `execution` (who runs
them), then `run` (the folder of finished tasks, and the whole way); `rows` makes the table. Nothing here draws or prints: no
import of `report` or `cli`.
"""

from __future__ import annotations
