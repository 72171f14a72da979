"""The source papers: what each one prints, what we measure and simulate of it, and a verdict on each of its claims.

Open `kit/report.py` first (what a reproduction consists of), then `kit/table.py` and `kit/claim.py`; then of a paper its
`published.py` (what it prints) and its `reproduction.py` (what is measured, the tables, the claims). The rooms: `cnmt` (C-NMT,
ISCAS 2022), `fni` (faster NMT inference: top-up batching and the fused output layer), `sharp` (sharp models on dull hardware,
EMNLP 2017), `sti` (elastic pipelines, ASPLOS 2023), `fvp` (projection onto clusters of the vocabulary, 2022). Only `api` and
`cli` may import this room: the rooms below know no paper.
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
