"""Workloads: source and target lengths from corpora, the length regression, and arrival processes (`arrivals/`).

To read it, start with `length_table.py` (joint counts of lengths, from which requests are drawn), `length_regression.py`
(target length predicted from source length) and `configuration.py` (the workload in a scenario file). It imports only `base`.
"""

from __future__ import annotations

from simnmt.base.errors import InputError


class CorpusError(InputError):
    """Parallel text or a length table that cannot be used."""


class ArrivalsError(InputError):
    """A recorded trace or a rate series that cannot be used."""
