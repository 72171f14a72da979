"""The source papers: their printed figures, our measurements and simulations, and a verdict on every claim.

Open `kit/report.py` first (the parts of a reproduction), then `kit/table.py` and `kit/claim.py`; then a paper's `published.py`
(its printed figures) and its `reproduction.py` (measurements, tables, claims). The rooms: `cnmt` (C-NMT, ISCAS 2022), `fni`
(faster NMT inference: top-up batching and the fused output layer), `sharp` (sharp models on dull hardware, EMNLP 2017), `sti`
(elastic pipelines, ASPLOS 2023), `fvp` (projection onto clusters of the vocabulary, 2022). Only `api` and `cli` may import
this room: the rooms below know no paper.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean

if TYPE_CHECKING:
    from simnmt.report import PublishedTable
    from simnmt.results.result import RunResult
    from simnmt.scenario.configuration import Scenario

PublishedTableOf = Callable[["RunResult", "Scenario"], "PublishedTable | str"]
"""Gives a paper's table beside a run, or a sentence on why the run is not the paper's protocol."""

PUBLISHED_TABLES = {"cnmt-table-1": "simnmt.papers.cnmt.table_one"}
"""By the scenario's key `published`: the module whose `published_table` sets the paper's table beside a run."""


def published_table(name: str) -> PublishedTableOf:
    """Return the function that sets a paper's table beside a run. Raises `InputError` for an unknown name."""
    if name not in PUBLISHED_TABLES:
        raise InputError(f"published: no table of a paper is called {name}", remedy=did_you_mean(name, PUBLISHED_TABLES))
    function: PublishedTableOf = import_module(PUBLISHED_TABLES[name]).published_table
    return function
