"""Filters of sentence pairs (CNMT-08): worked examples, and the harm of mismatched pairs that they repair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simnmt.workload import CorpusError
from simnmt.workload.corpus import RatioFilter, dropped_warning, filter_named, keep, read_corpus
from simnmt.workload.length_regression import fit_lengths


def kept_by(name: str | RatioFilter, src_len: int, tgt_len: int, **units: str) -> bool:
    kept, _ = keep(name, np.array([src_len]), np.array([tgt_len]), np.array([1]), **units)
    return bool(kept[0])


@pytest.mark.parametrize(
    ("src_len", "tgt_len", "kept"),
    [
        (0, 3, False),
        (3, 0, False),
        (0, 0, False),
        (200, 200, True),
        (201, 200, False),
        (200, 201, False),
        (1, 5, True),  # 5 to 1, but too short to be sure
        (1, 6, False),
        (6, 1, False),
        (2, 6, True),  # exactly 3 to 1
        (2, 7, False),
        (60, 20, True),
        (61, 20, False),
    ],
)
def test_worked_examples_of_cnmt_08(src_len: int, tgt_len: int, kept: bool) -> None:
    assert kept_by("cnmt", src_len, tgt_len) is kept
    assert kept_by("none", src_len, tgt_len) is (min(src_len, tgt_len) > 0)


@pytest.mark.parametrize(
    ("parameters", "src_len", "tgt_len", "kept"),
    [
        ("", 10, 20, True),  # exactly twice
        ("", 10, 21, False),
        ("", 21, 10, False),
        ("", 1, 3, False),  # short ones too, unlike cnmt
        ("", 3, 0, False),
        ("", 200, 150, True),
        ("", 201, 150, False),
        ("max_ratio=3,max_len=50", 10, 30, True),
        ("max_ratio=3,max_len=50", 51, 50, False),
        # About its own ratio: 16 Chinese tokens are to be expected of 10 English words.
        ("tgt_per_src=1.6", 10, 32, True),
        ("tgt_per_src=1.6", 10, 33, False),
        ("tgt_per_src=1.6", 10, 8, True),
        ("tgt_per_src=1.6", 10, 7, False),
    ],
)
def test_the_ratio_filter_has_bounds_of_your_own(parameters: str, src_len: int, tgt_len: int, kept: bool) -> None:
    assert kept_by(f"ratio:{parameters}", src_len, tgt_len) is kept


def test_limits_belong_to_the_unit() -> None:
    """Twice as many pieces as words, five times as many characters; and the ratio is that of the corpus."""
    for unit, most in (("word", 200), ("sentencepiece 0123456789ab", 400), ("char", 1000)):
        units = {"src_unit": unit, "tgt_unit": unit}
        assert kept_by("cnmt", most, most, **units) and not kept_by("cnmt", most + 1, most + 1, **units)
    columns = np.array([100, 100, 100]), np.array([400, 400, 20]), np.array([50, 50, 1])
    assert keep("cnmt", *columns, "char", "char")[0].tolist() == [True, True, False]
    assert keep("cnmt", *columns)[0].tolist() == [False, False, False]


def test_each_pair_is_booked_under_the_first_rule_that_drops_it() -> None:
    src_len, tgt_len = np.array([0, 300, 300, 2, 5]), np.array([300, 1, 300, 9, 5])
    kept, dropped = keep("cnmt", src_len, tgt_len, np.array([1, 10, 100, 1000, 10000]))
    assert kept.tolist() == [False, False, False, False, True]
    assert dropped.rejects == {"empty": 1, "too_long": 110, "ratio": 1000}
    assert (dropped.pairs_read, dropped.pairs_dropped) == (11111, 1111)
    assert str(dropped) == "cnmt: 11111 pairs read, 1111 dropped (empty 1, too_long 110, ratio 1000)"
    assert dropped_warning(str(dropped)).startswith("10.0 % of the pairs")
    assert dropped_warning("none: 100 pairs read, 5 dropped (empty 5)") is None is dropped_warning("")
    _, strict = keep("ratio:max_ratio=1.5", np.array([10, 10]), np.array([10, 16]), np.array([3, 4]))
    assert str(strict).startswith("ratio max_ratio=1.5 max_len=200 tgt_per_src=1: 7 pairs read, 4 dropped ")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cmnt", "cnmt"),
        ("cnmt:max_len=3", "cnmt"),
        ("ratio:max_rato=3", "max_rato"),
        ("ratio:max_ratio", "max_ratio"),
        ("ratio:max_len=2,max_len=3", "twice"),
    ],
)
def test_what_names_no_filter_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message) as caught:
        filter_named(name)
    assert "\n" not in str(caught.value) and caught.value.remedy


@pytest.mark.parametrize("name", ["cnmt", "ratio"])
def test_every_filter_halves_the_shift_on_made_up_text(tmp_path: Path, name: str) -> None:
    """3,000 pairs of 3 to 60 words of like length, and a tenth as many paired at random."""
    generator = np.random.default_rng(4)
    lengths = generator.integers(3, 60, size=3000)
    others = np.maximum(np.rint(lengths * generator.normal(0.95, 0.12, lengths.size)), 3).astype(int)
    mismatched = generator.integers(len(lengths), size=(2, 300))

    def fitted(src_len: np.ndarray, tgt_len: np.ndarray, name: str) -> float:
        for file, side in (("s.txt", src_len), ("t.txt", tgt_len)):
            (tmp_path / file).write_text("".join("x " * length + "\n" for length in side))
        table, _ = read_corpus(tmp_path / "s.txt", tmp_path / "t.txt", src_unit="word", tgt_unit="word", filter=name)
        return fit_lengths(table).len_slope

    right = fitted(lengths, others, "none")
    harmed = np.append(lengths, lengths[mismatched[0]]), np.append(others, others[mismatched[1]])
    shift = fitted(*harmed, "none") - right
    assert shift < -0.04
    assert abs((fitted(*harmed, name) - right) / shift) <= 0.5
