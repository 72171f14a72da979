"""What can be wrong with a corpus, a table of lengths, or a request for one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from simnmt.errors import InputError


class CorpusError(InputError):
    """Parallel text or a length table that cannot be used: says which file and line, and the remedy."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A remedy for a name that is not among the `known` ones."""
    listed = list(known)
    near = difflib.get_close_matches(name, listed, n=1)
    return f"did you mean {near[0]}?" if near else "known: " + ", ".join(listed)
