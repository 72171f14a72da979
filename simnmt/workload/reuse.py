"""How soon texts are requested again, and from that what a least-recently-used cache of any size would answer.

The method is that of R. L. Mattson, J. Gecsei, D. R. Slutz and I. L. Traiger, Evaluation techniques for storage hierarchies,
IBM Systems Journal 9 (1970): a cache of C entries has the text of a request if and only if at most C texts, that text among
them, were requested from its last request on. These numbers, the stack distances, are counted in one pass of O(n log n).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats

Texts = NDArray[np.int64]
"""What identifies the text of each request, in the order of the requests: equal numbers for equal texts."""
MOST_REQUESTS = 10_000_000
"""Most requests whose reuse a command counts, the first ones of its input: each takes about 100 bytes of memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Reuse:
    """How soon the text of each request was requested before."""

    order: NDArray[np.int64]
    """Numbers of the requests sorted by text, those of a text in their order; shape (requests,)."""
    distance: NDArray[np.int64]
    """Stack distance of each request: the different texts from the last request of its text on; 0 if there is none."""

    @classmethod
    def of(cls, texts: Texts) -> Reuse:
        """Return the reuse of texts.

        Example:
            >>> Reuse.of(np.array([7, 8, 8, 7, 9, 7])).distance.tolist()
            [0, 0, 1, 2, 0, 2]
        """
        order = np.argsort(texts, kind="stable")
        again = np.flatnonzero(texts[order][1:] == texts[order][:-1])
        last, is_last, distance = np.full(len(texts), -1), np.zeros(len(texts), np.bool_), np.zeros(len(texts), np.int64)
        last[order[again + 1]] = order[again]
        repeats = np.flatnonzero(last >= 0)
        since = last[repeats]
        is_last[since] = True
        # The requests after `since` whose own last request is before it are the first ones of their text since then. The last
        # requests of all up to `since` are before it, too: what remains is to count the smaller numbers of last requests.
        rank = (np.cumsum(is_last) - 1)[since]
        first_ones = repeats - np.arange(len(repeats))
        distance[repeats] = first_ones + _smaller_before(rank) - since
        return cls(order, distance)

    @property
    def distinct(self) -> int:
        """Number of different texts."""
        return int((self.distance == 0).sum())

    @property
    def repeated_share(self) -> float:
        """Share of the requests whose text was requested before."""
        return 1.0 - self.distinct / len(self.distance)

    def hits(self, entries: int, expiry: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        """Return for each request whether a cache of this size has its text.

        `expiry`: of `expiries`; None: an entry stays until it makes room.
        """
        is_kept = (self.distance > 0) & (self.distance <= entries)
        if expiry is None:
            return is_kept
        # By places in `order`. Each miss stores an entry. The next miss of the text is where that has expired or has made room.
        is_miss = np.append(~is_kept[self.order], True)
        misses = np.flatnonzero(is_miss)
        following = np.append(np.minimum(expiry, misses[np.cumsum(is_miss[:-1])]), len(expiry))
        while not is_miss[reached := following[misses]].all():
            is_miss[reached] = True
            misses, following = np.flatnonzero(is_miss), following[following]  # steps of twice the length
        is_hit = np.empty_like(is_kept)
        is_hit[self.order] = ~is_miss[:-1]
        return is_hit

    def expiries(self, time_s: Floats, ttl_s: float) -> NDArray[np.int64]:
        """Return for each place in `order` the next place at which the text is requested `ttl_s` later or more.

        If there is none, it is the first place of the next text. `time_s`: moments of the requests, ascending.
        """
        requests = np.arange(len(time_s))
        expired = np.maximum(np.searchsorted(time_s, time_s + ttl_s), requests + 1)
        text = np.cumsum(self.distance[self.order] == 0) * (len(time_s) + 1)
        return np.searchsorted(text + self.order, text + expired[self.order])

    def most_useful_entries(self, expiry: NDArray[np.int64]) -> int:
        """Return the size from which on a cache answers no more requests, since entries expire before they make room."""
        lives = expiry[:-1] > np.arange(1, len(expiry))
        return int(self.distance[self.order[1:]][lives].max(initial=1))

    def hit_rates(self) -> list[dict[str, Any]]:
        """Return the share of hits for cache sizes of 1, 2, 5, 10 and so on, up to all texts."""
        return [{"entries": size, "share": float(self.hits(size).mean())} for size in cache_sizes(self.distinct)]


def _smaller_before(rank: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return for each element of a permutation of 0, 1, ... how many of the elements before it are smaller.

    The elements, in ascending order, are divided by their position into an earlier and a later half, and each half again: an
    element of a later half has before it all smaller elements of the earlier half.
    """
    index = np.arange(len(rank), dtype=np.int32)  # half the memory of int64, a sixth less time
    position, smaller = np.empty_like(index), np.zeros_like(index)
    position[rank] = index
    for bit in reversed(range(max(len(rank) - 1, 0).bit_length())):
        # A part takes as many places as it has positions, and all parts but the last are full.
        is_later = (position >> bit) & 1 == 1
        begin = (index >> (bit + 1)) << (bit + 1)
        earlier = np.cumsum(~is_later, dtype=np.int32) - (begin >> 1)
        smaller[position[is_later]] += earlier[is_later]
        place = np.where(is_later, index - earlier + (1 << bit), begin + earlier - 1)
        position[place] = position.copy()
    return smaller


def cache_sizes(most: int) -> list[int]:
    """Return the sizes 1, 2, 5, 10, 20 and so on below `most`, and `most`."""
    series = (digit * 10**power for power in range(len(str(most))) for digit in (1, 2, 5))
    return [*(size for size in series if size < most), most]
