"""What can be wrong with a corpus, a table of lengths, or a request for one."""

from __future__ import annotations

from collections.abc import Iterable

from simnmt.errors import InputError
from simnmt.names import nearest


class CorpusError(InputError):
    """Parallel text or a length table that cannot be used: says which file and line, and the remedy."""


def hint(name: str, known: Iterable[str]) -> str:
    """A remedy for a name that is not among the `known` ones."""
    listed = list(known)
    near = nearest(name, listed)
    return f"did you mean {near}?" if near else "known: " + ", ".join(listed)
