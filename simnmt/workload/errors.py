"""What can be wrong with a corpus, a table of lengths, or a request for one."""

from __future__ import annotations

from simnmt.errors import InputError


class CorpusError(InputError):
    """Parallel text or a length table that cannot be used: says which file and line, and the remedy."""
