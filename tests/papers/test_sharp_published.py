"""The figures derived from the printed Tables 1 and 2 (SHARP-11, 13, 14, 15, 17, 19)."""

from __future__ import annotations

from simnmt.papers.sharp.published import LADDER, SPEED_UP, derived, implied_baselines
from simnmt.profile.decoder_settings import IDENTITIES, RUNGS


def test_factors_and_steps_of_the_ladder_follow_from_its_speeds() -> None:
    """SHARP-11."""
    assert [round(rung.factor, 3) for rung in LADDER] == [1.0, 2.611, 3.274, 3.6, 4.063, 4.4]
    assert [rung.step and round(rung.step, 3) for rung in LADDER] == [None, 2.611, 1.254, 1.1, 1.129, 1.083]
    assert [round(1e3 / rung.words_per_s, 2) for rung in LADDER] == [10.53, 4.03, 3.22, 2.92, 2.59, 2.39]
    assert round(LADDER[-1].factor, 1) == SPEED_UP


def test_our_ladder_has_the_papers_rungs_and_identities() -> None:
    assert tuple(rung.key for rung in LADDER) == RUNGS
    assert {rung.key for rung in LADDER if rung.exact} == {*IDENTITIES, "baseline"}


def test_no_baseline_gives_all_printed_factors() -> None:
    """SHARP-11, SHARP-19."""
    (low, high), (odd_low, odd_high) = implied_baselines()
    assert (round(low, 2), round(high, 2)) == (95.52, 95.88)
    assert (round(odd_low, 2), round(odd_high, 2)) == (94.83, 95.31)
    assert odd_high < low and round(low) == 96


def test_costs_of_layers_and_ensembles_follow_from_table_2() -> None:
    """SHARP-13, SHARP-14, SHARP-15."""
    values = {figure.what: figure.value for figure in derived()}
    layers = [value for name, value in values.items() if name.startswith("one 768-FC layer")]
    assert [round(value, 3) for value in layers] == [0.169, 0.221]
    ratios = sorted(round(value, 1) for name, value in values.items() if name.startswith("a 1024-GRU layer"))
    assert ratios == [4.4, 5.8]
    assert (
        round(values["E1's speed over half of S4's"], 2) == 0.89 and round(values["E2's speed over a third of S4's"], 2) == 0.85
    )
    assert round(values["E1's speed over S7's"], 2) == 3.64
    assert round(values["BLEU of S4 over S1"], 1) == 1.2 and round(values["BLEU of E1 over S4"], 1) == 0.9


def test_a_sentence_of_449_words_is_a_slip_for_seconds_a_sentence() -> None:
    assert round(100 / 0.2226) == 449 and round(100 * 0.2226, 1) == 22.3
