"""What follows from Tables 1 and 2 is what their transcription says follows from them (SHARP-11, 13, 14, 15, 17, 19)."""

from __future__ import annotations

from simnmt.papers.sharp.published import LADDER, SPEED_UP, derived, implied_baselines
from simnmt.profile.decoder_settings import IDENTITIES, RUNGS


def test_the_ladder_recomputed() -> None:
    """SHARP-11."""
    assert [round(each.factor, 3) for each in LADDER] == [1.0, 2.611, 3.274, 3.6, 4.063, 4.4]
    assert [each.step and round(each.step, 3) for each in LADDER] == [None, 2.611, 1.254, 1.1, 1.129, 1.083]
    assert [round(each.ms_per_word, 2) for each in LADDER] == [10.53, 4.03, 3.22, 2.92, 2.59, 2.39]
    assert round(LADDER[-1].factor, 1) == SPEED_UP


def test_our_ladder_is_the_papers() -> None:
    """Rung by rung, and what is an identity in it."""
    assert tuple(each.key for each in LADDER) == RUNGS
    assert {each.key for each in LADDER if each.exact} == {*IDENTITIES, "baseline"}


def test_no_baseline_gives_all_printed_factors() -> None:
    """SHARP-11, SHARP-19."""
    (low, high), (odd_low, odd_high) = implied_baselines()
    assert (round(low, 2), round(high, 2)) == (95.52, 95.88)
    assert (round(odd_low, 2), round(odd_high, 2)) == (94.83, 95.31)
    assert odd_high < low and round(low) == 96


def test_layers_and_ensembles_recomputed() -> None:
    """SHARP-13, SHARP-14, SHARP-15."""
    found = {each.what: each.value for each in derived()}
    layers = [value for what, value in found.items() if what.startswith("one 768-FC layer")]
    assert [round(value, 3) for value in layers] == [0.169, 0.221]
    ratios = sorted(round(value, 1) for what, value in found.items() if what.startswith("a 1024-GRU layer"))
    assert ratios == [4.4, 5.8]
    assert (
        round(found["E1's speed over half of S4's"], 2) == 0.89 and round(found["E2's speed over a third of S4's"], 2) == 0.85
    )
    assert round(found["E1's speed over S7's"], 2) == 3.64
    assert round(found["BLEU of S4 over S1"], 1) == 1.2 and round(found["BLEU of E1 over S4"], 1) == 0.9


def test_a_sentence_of_449_words_is_a_slip_for_seconds_a_sentence() -> None:
    assert round(100 / 0.2226) == 449 and round(100 * 0.2226, 1) == 22.3
