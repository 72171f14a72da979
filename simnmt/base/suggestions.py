"""Names in messages: suggest the known name that was probably meant, and list several names on one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable

SLIP = 0.6
"""Likeness from which on a name is taken for a slip of a known one."""
MOST_LISTED = 12
"""Names that a message lists before it counts the others."""


def format_list(names: Iterable[str], last: str = "and", *, most: int = MOST_LISTED) -> str:
    """Return names on one line; beyond `most` of them, how many more there are.

    Args:
        names: what to list, fit to be shown.
        last: the word before the last name; a comma lists all names alike.
        most: how many names are shown at most.

    Example:
        >>> format_list(["edge"]), format_list(["edge", "cloud", "naive"]), format_list(["edge", "cloud", "naive"], ",")
        ('edge', 'edge, cloud and naive', 'edge, cloud, naive')
        >>> format_list(["edge", "cloud", "naive"], most=1)
        'edge and 2 more'
    """
    texts = list(names)
    if len(texts) > most:
        return f"{', '.join(texts[:most])} and {len(texts) - most:,} more"
    if last == "," or len(texts) < 2:
        return ", ".join(texts)
    return f"{', '.join(texts[:-1])} {last} {texts[-1]}"


def nearest(name: object, known: Iterable[str], *, likeness: float = SLIP) -> str | None:
    """Return the known name that `name` is most like; None where none is near, or `name` is no text.

    Case, hyphens, blanks and camel case do not count.

    Example:
        >>> nearest("lenSlop", ["len_offset", "len_slope"])
        'len_slope'
    """
    if not isinstance(name, str):
        return None
    folded = {_folded(other): other for other in known}
    match = next(iter(difflib.get_close_matches(_folded(name), list(folded), n=1, cutoff=likeness)), None)
    return None if match is None else folded[match]


def did_you_mean(
    name: object,
    known: Iterable[str],
    otherwise: str | None = None,
    *,
    shown: Callable[[str], str] = str,
    likeness: float = SLIP,
) -> str:
    """Return the remedy for an unknown name: the known one that is near, or else `otherwise`, by default the known names.

    `shown`: how a known name is written.

    Example:
        >>> did_you_mean("clout", ["edge", "cloud"])
        'did you mean cloud?'
        >>> did_you_mean("zzz", ["edge", "cloud"])
        'known: edge, cloud'
    """
    names = list(known)
    near = nearest(name, names, likeness=likeness)
    if near is not None:
        return f"did you mean {shown(near)}?"
    return f"known: {', '.join(map(shown, names)) or 'none'}" if otherwise is None else otherwise


def _folded(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_").replace(" ", "_")
