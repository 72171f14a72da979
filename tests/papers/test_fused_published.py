"""The figures derived from the printed Tables 2 and 3 (FNI-15, FNI-16, FNI-17)."""

from __future__ import annotations

import pytest

from simnmt.papers.fni.published import FUSED_SLIPS, TABLES, OutputTimes, derived, memory_traffic

RECOMPUTED = {
    ("europarl", 1): (3.32, 34.43, -76.94, 4.34, 1.745),
    ("europarl", 5): (1.90, 155.39, -56.51, 2.30, 1.469),
    ("opensubtitles", 1): (2.19, 26.03, -78.10, 4.57, 1.719),
    ("opensubtitles", 5): (0.44, 120.61, -64.42, 2.81, 1.629),
}


@pytest.mark.parametrize("row", TABLES, ids=lambda row: f"{row.test_set}-{row.beam}")
def test_sums_changes_and_ratios_follow_from_the_printed_seconds(row: OutputTimes) -> None:
    product, three, fused, ratio, layer = RECOMPUTED[row.test_set, row.beam]
    assert round(row.product_percent, 2) == product and round(row.three_s, 2) == three
    assert round(row.fused_percent, 2) == fused and round(row.ratio, 2) == ratio and round(row.layer_ratio, 3) == layer


def test_one_printed_percentage_alone_does_not_follow_from_its_seconds() -> None:
    pairs = {
        (row.test_set, row.beam, part): (printed, derived_percent)
        for row in TABLES
        for part, printed, derived_percent in (
            ("product", row.printed_product_percent, row.product_percent),
            ("fused", row.printed_fused_percent, row.fused_percent),
        )
    }
    wrong = [key for key, (printed, ours) in pairs.items() if abs(printed - ours) > 0.051]
    assert wrong == [("opensubtitles", 5, "product")]


def test_beam_1_gains_more_than_memory_traffic_allows() -> None:
    """FNI-02; it also skips the probabilities (FNI-06)."""
    assert (memory_traffic(85_000, fused=False), memory_traffic(85_000, fused=True)) == (8 * 85_000, 2 * 85_000)
    (row,) = (figure for figure in derived() if "memory traffic" in figure.what)
    assert (row.value, row.unit) == (4.0, "times")
    assert "8V over 2V" in row.meaning and "4.34 and 4.57 of beam 1 exceed it" in row.meaning


def test_shares_and_gains_as_fni_16_and_17_state_them() -> None:
    values = {figure.what: round(figure.value, 1) for figure in derived()}
    assert values["europarl, beam 5: gain if the output layer has 70 %"] == 28.8
    assert values["europarl, beam 1: gain if the output layer has 70 %"] == 42.6
    assert values["europarl, beam 5: share that a gain of 23 % needs"] == 58.6
    assert values["europarl, beam 1: share that a gain of 23 % needs"] == 43.8
    assert values["opensubtitles, beam 5: share that a gain of 41 % needs"] == 75.3
    assert values["opensubtitles, beam 1: share that a gain of 41 % needs"] == pytest.approx(69.5, abs=0.1)
    assert values["opensubtitles: fused times topped up"] == 57.9 and values[
        "europarl: both over fused, so topped up alone"
    ] == pytest.approx(8.9)


def test_the_slips_are_listed() -> None:
    """FNI-19."""
    for place in ("Algorithm 2", "+0.44 %", "58.6 %", "Figure 2"):
        assert sum(place in slip for slip in FUSED_SLIPS) == 1
