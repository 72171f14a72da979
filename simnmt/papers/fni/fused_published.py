"""What the paper prints about fusing: Tables 2 and 3, shares, speeds, and what follows from them (FNI-15, 16, 17, 19)."""

from __future__ import annotations

from dataclasses import dataclass

from simnmt.kernels.memory_traffic import memory_traffic
from simnmt.papers.kit.amdahl import end_to_end, share_needed

REFERENCE = (
    "Faster Neural Machine Translation Inference, anonymous ACL submission: tables 2 and 3, figures 1, 3, 4, 5, 9 and 10, "
    "sections 5.1 and 5.3 (top-up batching, its other half, has a page of its own)"
)


@dataclass(frozen=True, slots=True)
class OutputTimes:
    """One half of Table 2 or 3: seconds of the output layer over a whole test set (FNI-15)."""

    test_set: str
    table: int
    beam: int
    product_s: float
    product_fused_s: float
    """The product again, beside the fused kernel: the same work."""
    printed_product_percent: float
    """By how much the product changed, as printed."""
    bias_s: float
    softmax_s: float
    search_s: float
    fused_s: float
    """Bias, softmax and search in one kernel."""
    printed_fused_percent: float

    @property
    def three_s(self) -> float:
        """Bias, softmax and search, one after the other."""
        return self.bias_s + self.softmax_s + self.search_s

    @property
    def product_percent(self) -> float:
        """By how much the product changed, from the seconds."""
        return 100.0 * (self.product_fused_s / self.product_s - 1.0)

    @property
    def fused_percent(self) -> float:
        """By how much the three steps changed, from the seconds."""
        return 100.0 * (self.fused_s / self.three_s - 1.0)

    @property
    def ratio(self) -> float:
        """Of the three steps to the fused kernel."""
        return self.three_s / self.fused_s

    @property
    def layer_ratio(self) -> float:
        """Of the whole output layer, product included."""
        return (self.product_s + self.three_s) / (self.product_fused_s + self.fused_s)


TABLES = (
    OutputTimes("europarl", 2, 1, 25.62, 26.47, 3.3, 4.98, 12.81, 16.64, 7.94, -76.9),
    OutputTimes("europarl", 2, 5, 112.9, 115.04, 1.9, 23.66, 56.61, 75.12, 67.58, -56.5),
    OutputTimes("opensubtitles", 3, 1, 21.47, 21.94, 2.2, 3.29, 8.83, 13.91, 5.70, -78.1),
    OutputTimes("opensubtitles", 3, 5, 79.66, 80.01, 4.4, 14.95, 36.86, 68.80, 42.91, -64.4),
)
"""Tables 2 (Europarl) and 3 (OpenSubtitles), to the digit; the slip in the last row's 4.4 included."""

OUTPUT_SHARE = 0.70
"""Of Europarl's translation time in the output layer, `nearly` (section 1, figure 1); of OpenSubtitles more (figure 5)."""
FUSED_GAIN = {"europarl": 0.23, "opensubtitles": 0.41}
"""`Up to`: section 5.1, figures 3 and 4."""
TOPUP_GAIN = 0.12
"""`Up to`, of top-up batching alone on OpenSubtitles (section 5.2)."""
BOTH_GAIN = {"europarl": 0.34, "opensubtitles": 0.57}
"""`Up to`, fused and topped up, without maxi-batching (section 5.3, figures 9 and 10)."""
BOTH_GAIN_WITH_MAXI = {"europarl": 0.21, "opensubtitles": 0.41}
"""The same with maxi-batching."""
LEAST_RATIO = 1.5
"""What is asked of the three steps at beam 5, and more at beam 1 (FNI-15's accept)."""
SAME_PRODUCT = 0.05
"""By how much the product's time may change (FNI-15's accept)."""
NEAR_PREDICTED = 0.10
"""By how much Amdahl's prediction may differ from what is measured (FNI-17's accept)."""
NEAR_PRODUCT = 0.02
"""By how much what both gain may differ from the product of what each does."""
NEAR_SHARE = 0.10
"""By how much a share of the time may differ from `nearly 70 %`."""
VOCAB = 85_000
"""Words that the output layer chooses from (FNI-13)."""


@dataclass(frozen=True, slots=True)
class Derived:
    """One figure that follows from printed ones."""

    what: str
    value: float
    unit: str
    """`times` or `%`."""
    meaning: str


def derived() -> tuple[Derived, ...]:
    """Return figures that follow from memory traffic, Tables 2 and 3 and the shares (FNI-02, FNI-15 to 17)."""
    by_key = {(printed.test_set, printed.beam): printed for printed in TABLES}
    figures = [_traffic()]
    figures += [
        Derived(f"{key}, beam {beam}: three steps over fused", printed.ratio, "times", f"Table {printed.table}")
        for (key, beam), printed in by_key.items()
    ]
    figures += [
        Derived(
            f"{key}, beam {beam}: whole output layer", printed.layer_ratio, "times", f"Table {printed.table}, product included"
        )
        for (key, beam), printed in by_key.items()
    ]
    for beam in (5, 1):
        gain = end_to_end(OUTPUT_SHARE, by_key["europarl", beam].layer_ratio) - 1.0
        figures.append(
            Derived(f"europarl, beam {beam}: gain if the output layer has 70 %", 100 * gain, "%", "claimed: at most 23 %")
        )
    for key, gain in FUSED_GAIN.items():
        for beam in (5, 1):
            share = share_needed(1.0 + gain, by_key[key, beam].layer_ratio)
            meaning = "nearly 70 % in the text" if key == "europarl" else "more than Europarl's in the text"
            figures.append(
                Derived(f"{key}, beam {beam}: share that a gain of {100 * gain:.0f} % needs", 100 * share, "%", meaning)
            )
    both = 100 * ((1.0 + FUSED_GAIN["opensubtitles"]) * (1.0 + TOPUP_GAIN) - 1.0)
    figures.append(Derived("opensubtitles: fused times topped up", both, "%", "claimed together: up to 57 %"))
    alone = 100 * ((1.0 + BOTH_GAIN["europarl"]) / (1.0 + FUSED_GAIN["europarl"]) - 1.0)
    figures.append(Derived("europarl: both over fused, so topped up alone", alone, "%", "not printed"))
    return tuple(figures)


def _traffic() -> Derived:
    unfused, fused = (memory_traffic(VOCAB, fused=with_kernel) for with_kernel in (False, True))
    limit = unfused / fused
    beyond = [printed for printed in TABLES if printed.ratio > limit]
    beams = " and ".join(dict.fromkeys(f"beam {printed.beam}" for printed in beyond))
    ratios = " and ".join(f"{printed.ratio:.2f}" for printed in beyond)
    return Derived(
        "memory traffic of the three steps over the fused one's",
        limit,
        "times",
        f"{unfused // VOCAB}V over {fused // VOCAB}V elements, the most that bandwidth allows; {ratios} of {beams} exceed it, "
        "as they skip the probabilities too",
    )


SLIPS = (
    "Algorithm 2 multiplies the running sum by the difference of two maxima; its derivation takes the exponential of it. As "
    "printed the first element gives 0 times minus infinity, which is no number (FNI-03 has the right form).",
    "Table 3 prints +4.4 % for the product at beam 5; 79.66 and 80.01 s give +0.44 %: a decimal point.",
    "Shares against gains: were nearly 70 % of Europarl's time in the output layer, Table 2 would make it 28.8 % (beam 5) or "
    "42.6 % (beam 1) faster; at most 23 % is claimed, which a share of 58.6 % or 43.8 % gives.",
    "The text speaks of modern GPUs; one card, a GTX 1060, was measured.",
    "Figure 2 does not say how its batches were formed; `simnmt reproduce topup` settles it: maxi-batching.",
)
"""FNI-19, in our words; nothing here changes a verdict."""
