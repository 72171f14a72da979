"""What the paper prints about batching: Table 1, occupancies, speeds, its setting (FNI-12, 13, 14, 16, 19)."""

from __future__ import annotations

from dataclasses import dataclass

REFERENCE = (
    "Faster Neural Machine Translation Inference, anonymous ACL submission: table 1, figures 2, 6, 7 and 8, section 5.2 "
    "(fusing softmax and search, its other half, is not part of this page)"
)

BATCH = 128
"""Sentences of a mini-batch (FNI-13)."""
COLLECTED = 1_280
"""Sentences of a maxi-batch (FNI-13)."""
BEAM = 5
"""Unless the paper says otherwise; its figures also show others, `small` and larger ones, without naming them in the text."""

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

    @property
    def exact_mean(self) -> float:
        """From the two totals, which are printed to the last digit."""
        return self.subwords / self.sentences


TABLE_ONE = (
    TestSet("europarl", "Europarl", 30_000, 787_908, 26.3, 14.9),
    TestSet("opensubtitles", "OpenSubtitles", 50_000, 467_654, 9.4, 6.1),
)
SETS = {paper_set.key: paper_set for paper_set in TABLE_ONE}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """One statistic of the active batch in decode steps."""

    test_set: str
    strategy: str
    measure: str
    """`full_share`, `below_8_share`, `mean_active` or `steps`."""
    stated: float
    """Mean over five seeds that is stated for the recipe of the lengths (FNI-12)."""
    published: float | None = None
    """In the paper's text; None where it gives none."""
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
"""How near a share must come to the stated mean over seeds and to the paper's figure (FNI-12)."""

ALONE = "up to 12 % faster on OpenSubtitles; on Europarl as fast as maxi-batching"
WITH_MAXI = {"europarl": "2 to 18 % slower", "opensubtitles": "no harm, a little faster with small beams"}
AS_MAXI = "as fast, slightly faster with small beams (Europarl)"
HALF_EMPTY = "the authors settled on refilling at half empty after some experimentation"
"""FNI-16, section 5.2: the text; the curves of figures 6 and 7 are not in it."""

SLIPS = (
    "Figure 2 does not say how its batches were formed; of such lengths only maxi-batching gives its 42 % of full steps (see "
    "FNI-12 (d)).",
    "The text speaks of modern GPUs; one card, a GTX 1060, was measured.",
)
"""What concerns batching (FNI-19), in our words; nothing here changes a verdict."""
