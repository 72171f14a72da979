"""One kind of each sort for simnmt; the names under which scenarios use them are in pyproject.toml."""

from dataclasses import dataclass

import numpy as np

from simnmt import Encode, Join


@dataclass
class LongAway:
    """A policy that sends sentences longer than `threshold` tokens to target 1."""

    threshold: int

    def prepare(self, src_len):
        away = (src_len > self.threshold).astype(int).tolist()
        return lambda request, delay_s: away[request]


@dataclass
class Every:
    """Arrivals at fixed intervals."""

    seconds: float

    def times(self, n, rng):
        return self.seconds * np.arange(1, n + 1)


def power_law(src_len, tgt_len, scale_s: float = 0.001, exponent: float = 1.2):
    """Seconds of a request alone on a device."""
    return scale_s * (src_len + tgt_len) ** exponent


class LongestFirst:
    """A batcher that takes the longest waiting sentences when nothing is decoded."""

    threshold = 0

    def __init__(self, size: int = 8):
        self.size, self.waiting, self.encoded = size, [], ()

    def arrive(self, request, src_len, now_s):
        self.waiting.append((-src_len, request))

    def next(self, active, now_s, longest):
        if active:
            return None
        if self.encoded:
            joining, self.encoded = self.encoded, ()
            return Join(joining)
        self.waiting.sort()
        taken, self.waiting = self.waiting[: self.size], self.waiting[self.size :]
        self.encoded = tuple(request for _, request in taken)
        return Encode(self.encoded) if taken else None
