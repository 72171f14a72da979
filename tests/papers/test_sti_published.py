"""What the text of the paper on elastic pipelines gives, and what follows from it, to the digits (STI-05, 20 to 28)."""

from __future__ import annotations

import pytest

from simnmt.papers.kit.claim import FAILS, HOLDS, UNKNOWN
from simnmt.papers.sti import published
from simnmt.papers.sti.paper_claims import DERIVED, LOADED_FIRST, PAPER_CLAIMS, PIPELINE, mean_gain, memory_ratio

VALUES = {figure.what: figure.value for figure in DERIVED}


def test_the_motivating_pipeline_takes_2129_ms_and_loading_first_2604() -> None:
    """STI-21: the timeline of STI-12 reproduces both exactly; a layer stalls for 71.98 % and six are idle for 73.2 %."""
    assert PIPELINE.latency_s == pytest.approx(2.129, abs=1e-12)
    assert LOADED_FIRST.latency_s == pytest.approx(2.604, abs=1e-12)
    assert VALUES["a layer’s stall"] == pytest.approx(71.98, abs=0.005)
    assert VALUES["its idle computation"] == pytest.approx(73.2, abs=0.05)


@pytest.mark.parametrize(
    ("what", "value", "within"),
    [
        ("weights of a layer", 7_077_888, 0),
        ("weights of a shard", 589_824, 0),
        ("three shards, 2 bits", 0.44, 0.005),
        ("three shards, 6 bits", 1.33, 0.005),
        ("twelve shards, 2 bits", 1.77, 0.005),
        ("twelve shards, 6 bits", 5.31, 0.005),
        ("six layers, 32 bits", 169.9, 0.05),
        ("twelve layers, 32 bits", 339.7, 0.05),
        ("five low versions", 212.3, 0.05),
        ("the same with outliers, value alone", 214.9, 0.05),
        ("the same with outliers, value and place", 217.4, 0.1),
        ("rate of reading a layer", 83.5, 0.05),
        ("rate of reading DistilBERT", 81, 0.5),
        ("rate of reading its file", 77, 0.5),
        ("load over computation of a layer", 3.57, 0.005),
        ("mean gain over loading on demand", 14.04, 0.005),
        ("mean gain over StdPL-full", 19.91, 0.005),
        ("mean gain over StdPL-2 and StdPL-6", 8.16, 0.005),
        ("mean gain over all baselines", 7.10, 0.005),
        ("memory against PreloadModel-full", 203.8, 0.05),
        ("memory against PreloadModel-6", 38.2, 0.05),
        ("size that 41 times implies", 68, 0.5),
        ("mean of both printed", 122.5, 0),
    ],
)
def test_derived_figures_equal_those_of_the_requirements(what: str, value: float, within: float) -> None:
    """STI-01, 05, 20 to 23."""
    assert VALUES[what] == pytest.approx(value, abs=within + 1e-9)


def test_the_printed_figures_decide_six_claims() -> None:
    verdicts = {record.identifier: record.verdict for record in PAPER_CLAIMS}
    assert verdicts == {
        "STI-21 (a)": HOLDS,
        "STI-22 (g)": HOLDS,
        "STI-22 (h)": FAILS,
        "STI-23 (a)": HOLDS,
        "STI-23 (b)": FAILS,
        "STI-05": HOLDS,
        "STI-22 (i)": UNKNOWN,
    }


def test_a_mean_of_gains_covers_the_named_baselines() -> None:
    assert mean_gain("StdPL-6") == pytest.approx((5.83 + 3.15) / 2)
    assert memory_ratio(10) == pytest.approx((10 + 2) / 2)


def test_every_table_and_figure_is_named_as_lost_and_every_slip_listed() -> None:
    """STI-26, STI-28."""
    names = " ".join(what for what, _, _ in published.LOST)
    assert all(f"Table {number}" in names for number in range(1, 8))
    assert all(text in names for text in ("Figures 1 to 6", "Figure 7", "Figure 8"))
    slips = " ".join(published.SLIPS)
    for text in ("0.16", "5.9 to 54.1", "169.9", "32 is taken here", "2 with 32 bits", "Load&Exec", "2^20", "1.33 MB", "38.2"):
        assert text in slips
