from __future__ import annotations

import pytest
from pydantic import ValidationError

from simnmt.workload.errors import CorpusError
from simnmt.workload.fertility import Fertility, convert_units
from simnmt.workload.length_table import LengthTable
from simnmt.workload.lognormal_lengths import LognormalLengths

TABLE = LengthTable.of_pairs("news", "made up", "word", "mixed", [4, 10], [5, 20], [10, 10])


def test_lengths_in_the_requested_units_are_unchanged() -> None:
    assert convert_units(TABLE, None, "word", "mixed") is TABLE
    assert convert_units(TABLE, Fertility(), "word", "mixed") is TABLE
    assert convert_units(TABLE, Fertility(src=1.0, tgt=1.0), "word", "mixed") is TABLE


def test_each_side_is_scaled_by_what_is_stated_of_it() -> None:
    both = convert_units(TABLE, Fertility(src=1.5, tgt=2.0), "subword", "subword")
    assert (both.src_unit, both.tgt_unit) == ("subword", "subword")
    assert (both.mean_src_len, both.mean_tgt_len) == (1.5 * TABLE.mean_src_len, 2.0 * TABLE.mean_tgt_len)
    one = convert_units(TABLE, Fertility(src=1.25), "subword", "mixed")
    assert (one.mean_src_len, one.mean_tgt_len) == (1.25 * TABLE.mean_src_len, TABLE.mean_tgt_len)
    assert "1.25 / 1" in one.source


@pytest.mark.parametrize(
    ("fertility", "units", "message"),
    [
        (None, ("subword", "mixed"), r"src lengths of news are counted by word, the profile's by subword \(.*fertility\.src"),
        (Fertility(tgt=1.5), ("subword", "piece"), r"src lengths of news"),
        (
            Fertility(src=1.5),
            ("subword", "piece"),
            r"tgt lengths of news are counted by mixed, .* state fertility\.tgt: piece per mixed",
        ),
        (
            Fertility(src=1.5),
            ("word", "mixed"),
            r"fertility\.src is 1\.5, but table news and the profile both .* \(leave it out\)",
        ),
        (Fertility(src=1.2, tgt=1.5), ("subword", "mixed"), r"fertility\.tgt is 1\.5, but .* both count it by mixed"),
    ],
)
def test_a_mismatch_needs_a_stated_fertility_and_a_match_none(fertility, units, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        convert_units(TABLE, fertility, *units)


@pytest.mark.parametrize("value", [0, -1, 101, "2", True, None, float("nan")])
def test_a_factor_is_a_sensible_number(value: object) -> None:
    if value is None:
        assert Fertility.model_validate({"src": None}).src is None
        return
    with pytest.raises(ValidationError):
        Fertility.model_validate({"src": value})


def test_the_end_of_the_sentence_is_added_once_and_not_scaled() -> None:
    both = convert_units(TABLE, None, "word", "mixed", "both")
    assert (both.src_len.tolist(), both.tgt_len.tolist()) == ([5, 11], [6, 21])
    assert convert_units(both, None, "word", "mixed", "both") is both
    target = convert_units(both, None, "word", "mixed", "target")
    assert (target.src_len.tolist(), target.tgt_len.tolist()) == ([4, 10], [6, 21])
    scaled = convert_units(both, Fertility(src=1.5, tgt=2.0), "subword", "subword", "both")
    assert (scaled.mean_src_len, scaled.mean_tgt_len) == (1.5 * TABLE.mean_src_len + 1, 2.0 * TABLE.mean_tgt_len + 1)


def test_drawn_lengths_count_the_end_of_the_target_alone() -> None:
    assert LognormalLengths(10.0, 5.0).table(50).end_of_sentence == "target"
    assert LognormalLengths(10.0, 5.0, end=0).table(50).end_of_sentence == "none"
