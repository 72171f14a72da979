"""Which known name was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is most like; None where none is near."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)
