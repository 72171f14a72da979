"""The paper's printed figures: Table 1 (the ladder), Table 2 (systems), Figure 1, claims and slips (SHARP-11, 15 to 19)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simnmt.papers.kit.table import Derived

REFERENCE = (
    "Devlin, Sharp Models on Dull Hardware: Fast and Accurate Neural Machine Translation Decoding on the CPU, EMNLP 2017: "
    "tables 1 and 2, figure 1, sections 4 and 5"
)

SETTING = (
    ("training", "WMT English-French, 380 million words; NewsTest2014 (3,003 sentences) to test, NewsTest2013 to validate"),
    ("vocabulary", "80,000 words, source and target; about 500 candidates a sentence"),
    ("source", "three bidirectional GRU layers of 512 (S1 to S6), eight LSTM layers (S7)"),
    ("target", "attentional GRU of 1,024 (S7: attentional LSTM), and the stacks of Table 2; size of the embedding not stated"),
    ("decoder", "beam 6, one thread, one sentence at a time, stopped when 3.0 behind the best complete hypothesis"),
    ("device", "Intel E5-2660, labelled Haswell; AVX2"),
)
"""SHARP-16."""

BEAM = 6


@dataclass(frozen=True, slots=True)
class Rung:
    """A row of Table 1: one technique, and the speed of the decoder with it and with all earlier ones."""

    key: str
    name: str
    words_per_s: int
    printed_factor: float
    exact: bool
    """False if the technique adds noise (section 4, footnote 1; SHARP-10)."""

    @property
    def factor(self) -> float:
        """Speed over the baseline, from the printed speeds."""
        return self.words_per_s / LADDER[0].words_per_s

    @property
    def step(self) -> float | None:
        """Speed over the rung before, from the printed speeds; None for the first rung."""
        place = LADDER.index(self)
        return self.words_per_s / LADDER[place - 1].words_per_s if place else None

    @property
    def implied_baseline(self) -> tuple[float, float]:
        """Least and greatest unrounded speed of the baseline, words/s, that give the printed factor after rounding."""
        return (
            (self.words_per_s - 0.5) / (self.printed_factor + 0.005),
            (self.words_per_s + 0.5) / (self.printed_factor - 0.005),
        )


LADDER = (
    Rung("baseline", "baseline", 95, 1.00, True),
    Rung("int16", "+ 16-bit product", 248, 2.59, False),
    Rung("embeddings", "+ embeddings", 311, 3.25, True),
    Rung("attention", "+ attention", 342, 3.57, True),
    Rung("activations", "+ SSE, lookup", 386, 4.06, False),
    Rung("merge", "+ merge", 418, 4.37, True),
)
"""Table 1 as printed (SHARP-11)."""
ODD_FACTOR = "activations"
"""The one rung whose printed factor needs another baseline."""
SPEED_UP = 4.4
"""Speed-up of the whole ladder in the text."""
UNIQUE_SHARE = 0.70
"""Share of the hypotheses' previous states at beam 6 that differ (section 4.5; SHARP-09)."""
PRODUCT_RATIO = (2.0, 3.0)
PRODUCT_BATCHES = (2, 8)
"""Speed-up of 16-bit over 32-bit products, and the batch sizes that it is printed for (section 4.1, figure 1; SHARP-18)."""


def implied_baselines() -> tuple[tuple[float, float], tuple[float, float]]:
    """Return two ranges (least, greatest) of the baseline's unrounded speed, in words a second.

    The first gives all printed factors but the odd one, and would print as 96; the second gives the odd one. They do not
    meet (SHARP-11).
    """
    others = [rung.implied_baseline for rung in LADDER[1:] if rung.key != ODD_FACTOR]
    (odd,) = (rung.implied_baseline for rung in LADDER if rung.key == ODD_FACTOR)
    return (max(low for low, _ in others), min(high for _, high in others)), odd


class Context(NamedTuple):
    """A row of Table 2 that quotes another system."""

    name: str
    bleu: float
    remark: str = ""


CONTEXT = (
    Context("Phrase-based, Schwenk 2014", 33.1),
    Context("Phrase-based, Durrani et al. 2014", 37.0),
    Context("6-layer LSTM without attention, Luong et al. 2014", 33.1),
    Context("RNNsearch, large vocabulary, Jean et al. 2015", 34.6, "about 8 words/s on one core"),
    Context("GNMT, 8 layers, words, Wu et al. 2016", 37.9, "about 100 words/s on 44 cores"),
    Context("GNMT, 8 layers, 32,000 word pieces, Wu et al. 2016", 39.0, "about 100 words/s on 44 cores"),
    Context("Baidu deep attention, 8 layers, Zhou et al. 2016", 39.2),
)
"""Systems of others in Table 2 (SHARP-15)."""


class System(NamedTuple):
    """A row of Table 2 with one of the paper's own systems."""

    key: str
    name: str
    bleu: float
    words_per_s: int
    """Speed on one thread."""


SYSTEMS = (
    System("S1", "1024-AttGRU", 36.2, 418),
    System("S2", "1024-AttGRU + 1024-GRU", 36.8, 242),
    System("S3", "1024-AttGRU + 3x768-FC-relu + 1024-FC-tanh", 37.1, 271),
    System("S4", "1024-AttGRU + 7x768-FC-relu + 1024-FC-tanh", 37.4, 229),
    System("S5", "1024-AttGRU + 7x768-FC-relu + 1024-GRU", 37.6, 157),
    System("S6", "1024-AttGRU + 15x768-FC-relu + 1024-FC-tanh", 37.3, 163),
    System("S7", "1024-AttLSTM + 7x1024-LSTM, source 8-layer LSTM", 37.8, 28),
    System("E1", "2 x S4", 38.3, 102),
    System("E2", "3 x S4", 38.5, 65),
)
"""The paper's own systems in Table 2 (SHARP-15)."""
BY_KEY = {system.key: system for system in SYSTEMS}
CLEARLY_FASTER = 2.0
"""Least speed-up of E1 over S7 (SHARP-15's accept)."""
FC_OVER_GRU = 6
"""Matrices of a GRU layer for one matrix of a fully connected layer (section 5; SHARP-13)."""


def speed_over(one: str, other: str) -> float:
    """Return the printed speed of one system of Table 2 over another's."""
    return BY_KEY[one].words_per_s / BY_KEY[other].words_per_s


def derived() -> tuple[Derived, ...]:
    """Derive the figures that follow from Table 2 (SHARP-13, 14, 15, 17)."""
    word_ms = {system.key: 1e3 / system.words_per_s for system in SYSTEMS}
    fc_ms = {
        f"{deep} and {shallow}": (word_ms[deep] - word_ms[shallow]) / layers
        for deep, shallow, layers in (("S4", "S3", 4), ("S6", "S4", 8))
    }
    gru_ms = word_ms["S2"] - word_ms["S1"]
    wider = (1024 / 768) ** 2
    return (
        *(Derived(f"one 768-FC layer, from {pair}", ms, "ms", "SHARP-13") for pair, ms in fc_ms.items()),
        *(
            Derived(f"a 1024-GRU layer over a 1024-FC layer, FC from {pair}", gru_ms / (ms * wider), "times", "6 by matrices")
            for pair, ms in fc_ms.items()
        ),
        Derived("E1's speed over half of S4's", 2 * speed_over("E1", "S4"), "times", "two members in sequence: 1"),
        Derived("E2's speed over a third of S4's", 3 * speed_over("E2", "S4"), "times", "three members in sequence: 1"),
        Derived("E1's speed over S7's", speed_over("E1", "S7"), "times", "over 3 times, by the text"),
        Derived("S4's speed over S2's", speed_over("S4", "S2"), "times", "similar cost, by the text"),
        Derived("BLEU of S4 over S1", BY_KEY["S4"].bleu - BY_KEY["S1"].bleu, "points", "1.2, by the text"),
        Derived("BLEU of S2 over S1", BY_KEY["S2"].bleu - BY_KEY["S1"].bleu, "points", "half of it, by the text"),
        Derived("BLEU of E1 over S4", BY_KEY["E1"].bleu - BY_KEY["S4"].bleu, "points", "0.9, by the text"),
    )


UNMEASURED = (
    ("S4 trains 3 times as fast as S7, and E1 1.5 times", "training on GPUs, out of scope: as published"),
    ("38.3 BLEU at about 100 words a second on one thread (E1)", "needs models trained on 380 million words: as published"),
    ("S4 doubles S2's gain in BLEU over S1", "needs models trained on 380 million words: as published"),
    ("phrase-based systems decode 100 to 500 words a second, an early shallow NMT 8 to 10", "quoted from others"),
)
"""Claims of SHARP-17 that nothing here can decide, each with the reason."""

SLIPS = (
    "The candidate state as printed applies a sigmoid to one term alone and leaves the others outside it, unbounded; section 5 "
    "says GRUs use tanh. Here it is tanh of the whole sum (SHARP-04).",
    "The printed factors of Table 1 do not follow from its speeds: 95.52 to 95.88 words a second, which would print as 96, "
    "give all but 4.06, which needs 94.83 to 95.31.",
    "`0.2226 sents/sec` beside 100 words a second would mean sentences of 449 words: seconds a sentence (22 words) are meant.",
    "GNMT's range of BLEU ends at 38.9 in the text and at 39.0 in Table 2.",
    "In Table 2 one footnote mark carries two meanings: a reported speed, and tokenization by word pieces.",
    "E5-2660 without a version is an older core that has no AVX2; Haswell means its v3 successor.",
)
"""What does not fit together in the paper, in our words (SHARP-19); none of it changes a verdict."""
