"""Names in messages: suggest the known name that was probably meant, and list several names on one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches

SLIP = 0.6
"""Least likeness of a name to a known one of which it may be a slip."""
MOST_LISTED = 10


def format_list(names: Iterable[str], last: str = "and", *, most: int = MOST_LISTED) -> str:
    """Return names on one line: the first `most` of them, and the number of the others; `last` stands before the last name.

    Example:
        >>> format_list(["edge", "cloud", "naive"]), format_list(["edge", "cloud", "naive"], ",")
        ('edge, cloud and naive', 'edge, cloud, naive')
        >>> format_list(["edge", "cloud", "naive"], most=1)
        'edge and 2 more'
    """
    texts = list(names)
    if len(texts) > most:
        return f"{', '.join(texts[:most])} and {len(texts) - most:,} more"
    if last == "," or len(texts) < 2:
        return ", ".join(texts)
    return f"{', '.join(texts[:-1])} {last} {texts[-1]}"


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name that is most like `name`; None if none is near, or if `name` is no text.

    Ignores case, hyphens, blanks and camel case.
    """
    if not isinstance(name, str):
        return None
    folded = {_folded(other): other for other in known}
    return next((folded[match] for match in get_close_matches(_folded(name), folded, n=1, cutoff=SLIP)), None)


def _folded(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_").replace(" ", "_")


def did_you_mean(name: object, known: Iterable[str], otherwise: str | None = None, *, shown: Callable[[str], str] = str) -> str:
    """Return the remedy for an unknown name: the nearest known name, or else `otherwise`, by default the known names.

    `shown` formats a known name.

    Example:
        >>> did_you_mean("clout", ["edge", "cloud"])
        'did you mean cloud?'
        >>> did_you_mean("zzz", ["edge", "cloud"])
        'known: edge, cloud'
    """
    names = list(known)
    if (near := nearest(name, names)) is not None:
        return f"did you mean {shown(near)}?"
    return f"known: {format_list(map(shown, names), ',') or 'none'}" if otherwise is None else otherwise
