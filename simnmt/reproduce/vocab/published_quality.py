"""Tables 3 and 4 as printed, BLEU and tokens a second, and what their averages are averages of (FVP-16, FVP-17)."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from simnmt.reproduce.vocab.published import GROUPS, MODELS, SENTENCES, Model


@dataclass(frozen=True, slots=True)
class Quality:
    """BLEU without and with clusters, and the gain in tokens a second, of one cell."""

    model: Model
    row: str
    """A direction, or EX or XE, whose averages were printed."""
    test_set: int
    beam: int
    batch: int
    baseline: float
    clustered: float
    gain_percent: float

    @property
    def bleu_change(self) -> float:
        """Of the clusters."""
        return self.clustered - self.baseline


_TABLE_3 = """
dense EnEs 43.29 43.21 25.70 43.89 43.81 13.00
dense EnFr 38.90 38.80 25.90 39.55 39.55 10.20
dense EnIt 38.58 38.49 23.55 39.24 39.30 13.96
dense FrEn 44.83 44.80 22.25 45.37 45.46 15.51
dense ItEn 44.55 44.28 26.60 45.37 45.38 16.34
dense EsEn 45.28 45.36 21.03 45.99 45.96 11.85
dense EX 39.50 39.40 25.00 40.14 40.15 11.70
dense XE 45.03 44.80 23.30 45.57 45.60 14.60
m3 EnEs 45.99 45.96 6.80 46.07 46.09 7.87
m3 EnFr 45.50 45.46 7.58 45.68 45.69 7.58
m3 EnIt 43.09 43.08 6.59 43.31 43.35 8.84
m3 FrEn 50.06 49.92 4.70 50.21 50.31 4.90
m3 ItEn 49.28 49.12 6.84 49.28 49.36 7.78
m3 EsEn 50.01 50.04 7.50 50.21 50.32 6.00
m3 EX 44.86 44.83 7.00 45.02 45.04 8.10
m3 XE 49.78 49.69 6.30 49.90 49.90 6.20
"""
_TABLE_4 = """
EnEs 43.95 43.95 12.29 47.21 47.25 6.70
EnFr 41.46 41.46 11.83 46.74 46.77 5.95
EnIt 41.79 41.81 11.82 47.28 47.34 6.50
FrEn 46.31 46.24 11.49 48.64 48.75 6.00
ItEn 44.15 44.01 13.34 47.89 47.99 6.48
EsEn 45.02 44.89 12.05 47.56 47.68 7.00
EX 42.40 42.40 12.00 47.07 47.12 6.40
XE 45.16 45.04 12.30 48.03 47.81 6.50
"""
SEARCHES = ((1, 1), (2, 20))
"""Beam and batch."""
WAYS = ("simple", "by sentences")
"""To take a mean of directions: each alike, or weighted by Table 1."""


def _cells() -> tuple[Quality, ...]:
    found = []
    for line in _TABLE_3.split("\n")[1:-1]:
        model, row, *numbers = line.split()
        for place, (beam, batch) in enumerate(SEARCHES):
            found.append(Quality(_model(model), row, 1, beam, batch, *map(float, numbers[3 * place : 3 * place + 3])))
    for place, own in enumerate(MODELS):
        for line in _TABLE_4.split("\n")[1:-1]:
            row, *numbers = line.split()
            found.append(Quality(own, row, 2, *SEARCHES[1], *map(float, numbers[3 * place : 3 * place + 3])))
    return tuple(found)


def _model(word: str) -> Model:
    return "dense" if word == "dense" else "m3"


CELLS = _cells()
"""Tables 3 (set 1, both searches) and 4 (set 2, beam 2 and batch 20), averages included, to the digit."""
ROWS = tuple(each for each in CELLS if each.row not in GROUPS)
"""Those of directions."""
AVERAGES = tuple(each for each in CELLS if each.row in GROUPS)
"""Those printed as averages."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A printed average beside both means of its three directions."""

    printed: Quality
    what: str
    """`baseline`, `clustered` or `gain_percent`."""
    simple: float
    by_sentences: float

    @property
    def value(self) -> float:
        """As printed."""
        return float(getattr(self.printed, self.what))

    @property
    def decimals(self) -> int:
        """BLEU has two; gains are rounded to one."""
        return 1 if self.what == "gain_percent" else 2

    @property
    def follows(self) -> str:
        """Which of `WAYS` gives what is printed, the simple one where both do; empty: neither.

        A BLEU may be 0.01 off, and a gain 0.05 more than its rounding, as means of rounded values may.
        """
        allowed = 0.0151 if self.decimals == 2 else 0.0751
        near = [
            way for way, own in zip(WAYS, (self.simple, self.by_sentences), strict=True) if abs(own - self.value) <= allowed
        ]
        return near[0] if near else ""


def means() -> list[Mean]:
    """Of every printed average."""
    found = []
    for printed in AVERAGES:
        own = [
            each
            for row in GROUPS[printed.row]
            for each in ROWS
            if (each.model, each.row, each.test_set, each.beam) == (printed.model, row, printed.test_set, printed.beam)
        ]
        weights = [SENTENCES[printed.test_set][each.row] for each in own]
        for what in ("baseline", "clustered", "gain_percent"):
            values = [float(getattr(each, what)) for each in own]
            weighted = sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)
            found.append(Mean(printed, what, fmean(values), weighted))
    return found
