"""The paper's printed figures: setting, test sets, occupancies, seconds, gains, and derived figures (FNI-12 to 17, 19)."""

from __future__ import annotations

from dataclasses import dataclass

from simnmt.papers.kit.claim import end_to_end, share_needed
from simnmt.papers.kit.table import Derived

_PAPER = "Faster Neural Machine Translation Inference, anonymous ACL submission"
TOPUP_REFERENCE = (
    f"{_PAPER}: table 1, figures 2, 6, 7 and 8, section 5.2 (fusing softmax and search, its other half, has a page of its own)"
)
FUSED_REFERENCE = (
    f"{_PAPER}: tables 2 and 3, figures 1, 3, 4, 5, 9 and 10, sections 5.1 and 5.3 (top-up batching, its other half, has a "
    "page of its own)"
)

BATCH = 128
"""Sentences of a mini-batch (FNI-13)."""
COLLECTED = 1_280
"""Sentences of a maxi-batch (FNI-13)."""
BEAM = 5
"""Default beam of the paper. Its figures also show smaller and larger beams, which its text does not name."""
VOCAB = 85_000
"""Words of the output layer (FNI-13)."""

SETTING = (
    ("model", "GRU encoder-decoder with attention, hidden layers of 512: `--model gru-512` of `simnmt calibrate`"),
    ("vocabulary", "85,000 subwords by byte-pair encoding, source and target"),
    ("decoder", "Amun, extended; beam 5, mini-batches of 128, maxi-batches of 1,280 sentences unless stated"),
    ("training", "German-English Europarl"),
    ("device", "NVIDIA GTX 1060, 8 hyper-threads at 2.8 GHz, 16 GB, SSD"),
)
"""FNI-13."""


@dataclass(frozen=True, slots=True)
class TestSet:
    """A column of Table 1 (FNI-14)."""

    key: str
    name: str
    sentences: int
    subwords: int
    mean: float
    """Subwords a sentence, as printed."""
    sd: float
    output_table: int
    """Number of the table that prints the output layer's seconds over this set."""


TABLE_ONE = (
    TestSet("europarl", "Europarl", 30_000, 787_908, 26.3, 14.9, 2),
    TestSet("opensubtitles", "OpenSubtitles", 50_000, 467_654, 9.4, 6.1, 3),
)
SETS = {test_set.key: test_set for test_set in TABLE_ONE}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """One statistic of the active batch in decode steps."""

    test_set: str
    strategy: str
    measure: str
    """`full_share`, `below_8_share`, `mean_active` or `steps`."""
    stated: float
    """Known mean over five seeds of simulating such lengths (FNI-12)."""
    published: float | None = None
    """Figure in the paper's text; None if it prints none."""
    where: str = ""


OCCUPANCIES = (
    Occupancy("europarl", "maxi", "full_share", 0.425, 0.42, "figure 2"),
    Occupancy("europarl", "maxi", "below_8_share", 0.200, 0.20, "figure 8"),
    Occupancy("opensubtitles", "mini", "below_8_share", 0.474, 0.50, "figure 8"),
    Occupancy("europarl", "mini", "full_share", 0.069),
    Occupancy("europarl", "half-empty", "below_8_share", 0.003),
    Occupancy("opensubtitles", "half-empty", "below_8_share", 0.003),
    Occupancy("europarl", "half-empty", "mean_active", 98.0),
    Occupancy("opensubtitles", "half-empty", "mean_active", 100.0),
    Occupancy("europarl", "mini", "steps", 22_800),
    Occupancy("europarl", "maxi", "steps", 10_300),
    Occupancy("europarl", "half-empty", "steps", 8_400),
    Occupancy("europarl", "immediate", "steps", 6_500),
    Occupancy("opensubtitles", "mini", "steps", 15_900),
    Occupancy("opensubtitles", "maxi", "steps", 6_800),
    Occupancy("opensubtitles", "half-empty", "steps", 5_250),
    Occupancy("opensubtitles", "immediate", "steps", 4_130),
)
"""FNI-12: shares are shares of decode steps, batches of 128."""

NEAR_STATED, NEAR_PUBLISHED = 0.02, 0.04
"""Largest difference of a share from the stated mean over seeds and from the paper's figure (FNI-12)."""

ALONE = "up to 12 % faster on OpenSubtitles; on Europarl as fast as maxi-batching"
WITH_MAXI = {"europarl": "2 to 18 % slower", "opensubtitles": "no harm, a little faster with small beams"}
AS_MAXI = "as fast, slightly faster with small beams (Europarl)"
HALF_EMPTY = "the authors settled on refilling at half empty after some experimentation"
"""Statements of the text, whose figures 6 and 7 print no numbers (FNI-16, section 5.2)."""


@dataclass(frozen=True, slots=True)
class OutputTimes:
    """Seconds of the output layer over a whole test set, printed (half of Table 2 or 3) or on a device (FNI-15)."""

    source: str
    """`published`, or the device's name."""
    kind: str
    test_set: str
    beam: int
    product_s: float
    product_fused_s: float
    """The product beside the fused kernel: the same work."""
    three_s: float
    """Bias, softmax and search, one after the other."""
    fused_s: float
    """Bias, softmax and search in one kernel."""
    exact: bool = True
    """True if fusing changes no translation (XP-03)."""
    bias_s: float | None = None
    softmax_s: float | None = None
    search_s: float | None = None
    printed_product_percent: float | None = None
    """Printed change of the product."""
    printed_fused_percent: float | None = None

    @property
    def product_percent(self) -> float:
        """Change of the product, from the seconds."""
        return 100.0 * (self.product_fused_s / self.product_s - 1.0)

    @property
    def fused_percent(self) -> float:
        """Change of the three steps, from the seconds."""
        return 100.0 * (self.fused_s / self.three_s - 1.0)

    @property
    def ratio(self) -> float:
        """Speed-up of the three steps."""
        return self.three_s / self.fused_s

    @property
    def layer_ratio(self) -> float:
        """Speed-up of the whole output layer, product included."""
        return (self.product_s + self.three_s) / (self.product_fused_s + self.fused_s)


def _printed(
    test_set: str,
    beam: int,
    products_s: tuple[float, float],
    parts_s: tuple[float, float, float],
    fused_s: float,
    *percents: float,
) -> OutputTimes:
    return OutputTimes("published", "published", test_set, beam, *products_s, sum(parts_s), fused_s, True, *parts_s, *percents)


TABLES = (
    _printed("europarl", 1, (25.62, 26.47), (4.98, 12.81, 16.64), 7.94, 3.3, -76.9),
    _printed("europarl", 5, (112.9, 115.04), (23.66, 56.61, 75.12), 67.58, 1.9, -56.5),
    _printed("opensubtitles", 1, (21.47, 21.94), (3.29, 8.83, 13.91), 5.70, 2.2, -78.1),
    _printed("opensubtitles", 5, (79.66, 80.01), (14.95, 36.86, 68.80), 42.91, 4.4, -64.4),
)
"""Tables 2 (Europarl) and 3 (OpenSubtitles) as printed, with the slip in the last row's 4.4."""

OUTPUT_SHARE = 0.70
"""The output layer's share of Europarl's translation time, `nearly` (section 1, figure 1); more of OpenSubtitles (figure 5)."""
FUSED_GAIN = {"europarl": 0.23, "opensubtitles": 0.41}
"""Gain of fusing alone, `up to` (section 5.1, figures 3 and 4)."""
TOPUP_GAIN = 0.12
"""Gain of top-up batching alone on OpenSubtitles, `up to` (section 5.2)."""
BOTH_GAIN = {"europarl": 0.34, "opensubtitles": 0.57}
"""Gain of both without maxi-batching, `up to` (section 5.3, figures 9 and 10)."""
BOTH_GAIN_WITH_MAXI = {"europarl": 0.21, "opensubtitles": 0.41}
"""Gain of both with maxi-batching, `up to`."""
LEAST_RATIO = 1.5
"""Least speed-up of the three steps at beam 5, and more at beam 1 (FNI-15's accept)."""
SAME_PRODUCT = 0.05
"""Largest relative change of the product's time (FNI-15's accept)."""
NEAR_PREDICTED = 0.10
"""Largest relative difference of Amdahl's prediction from the measured speed-up (FNI-17's accept)."""
NEAR_PRODUCT = 0.02
"""Largest difference of the gain of both from the product of both gains."""
NEAR_SHARE = 0.10
"""Largest difference of a share of the time from `nearly 70 %`."""


def derived() -> tuple[Derived, ...]:
    """Return figures that follow from memory traffic, Tables 2 and 3 and the shares (FNI-02, FNI-15 to 17)."""
    names = {row: f"{row.test_set}, beam {row.beam}" for row in TABLES}
    tables = {row: f"Table {SETS[row.test_set].output_table}" for row in TABLES}
    at_beam_5_first = sorted(TABLES, key=lambda row: (row.test_set, -row.beam))
    meanings = {"europarl": "nearly 70 % in the text", "opensubtitles": "more than Europarl's in the text"}
    claimed = {row: FUSED_GAIN[row.test_set] for row in TABLES}
    both = 100 * ((1.0 + FUSED_GAIN["opensubtitles"]) * (1.0 + TOPUP_GAIN) - 1.0)
    alone = 100 * ((1.0 + BOTH_GAIN["europarl"]) / (1.0 + FUSED_GAIN["europarl"]) - 1.0)
    return (
        _traffic(),
        *(Derived(f"{names[row]}: three steps over fused", row.ratio, "times", tables[row]) for row in TABLES),
        *(
            Derived(f"{names[row]}: whole output layer", row.layer_ratio, "times", f"{tables[row]}, product included")
            for row in TABLES
        ),
        *(
            Derived(
                f"{names[row]}: gain if the output layer has 70 %",
                100 * (end_to_end(OUTPUT_SHARE, row.layer_ratio) - 1.0),
                "%",
                "claimed: at most 23 %",
            )
            for row in at_beam_5_first
            if row.test_set == "europarl"
        ),
        *(
            Derived(
                f"{names[row]}: share that a gain of {100 * claimed[row]:.0f} % needs",
                100 * share_needed(1.0 + claimed[row], row.layer_ratio),
                "%",
                meanings[row.test_set],
            )
            for row in at_beam_5_first
        ),
        Derived("opensubtitles: fused times topped up", both, "%", "claimed together: up to 57 %"),
        Derived("europarl: both over fused, so topped up alone", alone, "%", "not printed"),
    )


def memory_traffic(vocab: int, *, fused: bool) -> int:
    """Return the elements that bias, softmax and 1-best move for one hypothesis (FNI-02).

    Unfused, the products are read five times and written twice, and the bias is read once; fused, both are read once.
    """
    return 2 * vocab if fused else 8 * vocab


def _traffic() -> Derived:
    unfused, fused = (memory_traffic(VOCAB, fused=with_kernel) for with_kernel in (False, True))
    beyond = [printed for printed in TABLES if printed.ratio > unfused / fused]
    beams = " and ".join(dict.fromkeys(f"beam {printed.beam}" for printed in beyond))
    ratios = " and ".join(f"{printed.ratio:.2f}" for printed in beyond)
    return Derived(
        "memory traffic of the three steps over the fused one's",
        unfused / fused,
        "times",
        f"{unfused // VOCAB}V over {fused // VOCAB}V elements, the most that bandwidth allows; {ratios} of {beams} exceed it, "
        "as they skip the probabilities too",
    )


_ONE_CARD = "The text speaks of modern GPUs; one card, a GTX 1060, was measured."
TOPUP_SLIPS = (
    "Figure 2 does not say how its batches were formed; of such lengths only maxi-batching gives its 42 % of full steps (see "
    "FNI-12 (d)).",
    _ONE_CARD,
)
FUSED_SLIPS = (
    "Algorithm 2 multiplies the running sum by the difference of two maxima; its derivation takes the exponential of it. As "
    "printed the first element gives 0 times minus infinity, which is no number (FNI-03 has the right form).",
    "Table 3 prints +4.4 % for the product at beam 5; 79.66 and 80.01 s give +0.44 %: a decimal point.",
    "Shares against gains: were nearly 70 % of Europarl's time in the output layer, Table 2 would make it 28.8 % (beam 5) or "
    "42.6 % (beam 1) faster; at most 23 % is claimed, which a share of 58.6 % or 43.8 % gives.",
    _ONE_CARD,
    "Figure 2 does not say how its batches were formed; `simnmt reproduce topup` settles it: maxi-batching.",
)
"""What does not fit together in the paper, in our words (FNI-19); none of it changes a verdict."""
