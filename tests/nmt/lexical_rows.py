"""Rows of a lexical table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simnmt.nmt.vocabulary.alignment import LexicalTable


def row(table: LexicalTable, source: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Target tokens of one source token, ascending, and their probabilities."""
    here = slice(int(table.starts[source]), int(table.starts[source + 1]))
    return table.tokens[here], table.probabilities[here]
