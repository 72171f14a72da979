"""What the benchmark of candidate lists says of their size."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optional_packages import skip_file_without

torch = pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")
pytest.importorskip("sacrebleu", reason="the extra packages of simnmt[models] are not installed")
skip_file_without("ctranslate2", extra="ctranslate2")

from benchmarks.candidate_lists import BARS, CANDIDATES, sizes  # noqa: E402
from simnmt.nmt.vocabulary.candidate_lists import CandidateLists  # noqa: E402

EOS = 0


def lists_of(end: int) -> CandidateLists:
    """20 of each of three words, none of which is another's, and so many of the end mark."""
    counts = [end, CANDIDATES, CANDIDATES, CANDIDATES]
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    columns = np.arange(2, 2 + sum(counts), dtype=np.int32)
    return CandidateLists(starts, columns, np.full(len(columns), 0.1, np.float32), np.array([0, 1], np.int32), 200)


def test_lists_at_the_bound_exceed_it_by_nothing_and_those_of_an_end_mark_by_their_length() -> None:
    """SHARP-02: 20 a word and two; the end mark is no word."""
    sources, references = [[1, 2, EOS], [3, EOS]], [[2, 150], [42]]
    told = sizes(lists_of(0), sources, references)
    assert (told["largest_excess"], BARS["largest_excess"]) == (0, ("<=", 0))
    assert told["candidates"] == pytest.approx((42 + 22) / 2)
    assert told["active_share"] == pytest.approx((42 + 22) / 2 / 200)
    assert told["reference_tokens_listed"] == pytest.approx(2 / 3)
    assert sizes(lists_of(7), sources, references)["largest_excess"] == 7
