"""Sentences that come back: Zipf's law, the order of a log, and lengths whose law stays that of the corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy import stats

from simnmt.workload.arrivals import ArrivalsError, RandomStream
from simnmt.workload.repeats import Repeats, RepeatsConfiguration, first_requests, numbered_apart

configuration: TypeAdapter[Any] = TypeAdapter(RepeatsConfiguration)


def rng(replication: int = 0) -> RandomStream:
    return RandomStream(1, replication, "sentences")


def repeats(base: Path = Path(), **keys: Any) -> Repeats:
    result: Repeats = configuration.validate_python(keys).read(base)
    return result


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 1.8])
def test_sentences_are_requested_in_proportion_to_a_power_of_their_rank(exponent: float) -> None:
    sentence = repeats(zipf=exponent, over=200).draw(300_000, rng())
    weights = np.arange(1, 201) ** -exponent
    expected = 300_000 * weights / weights.sum()
    assert stats.chisquare(np.bincount(sentence, minlength=200), expected).pvalue > 1e-3
    assert sentence.dtype == np.int32


def test_a_longer_run_begins_with_the_sentences_of_a_shorter_one() -> None:
    law = repeats(zipf=1.1, over=1_000)
    shorter, longer = law.draw(70_000, rng()), law.draw(200_000, rng())
    np.testing.assert_array_equal(longer[:70_000], shorter)
    assert (law.draw(70_000, rng(1)) != shorter).any()
    assert not repeats(zipf=0.0, over=1).draw(10, rng()).any()


def test_a_log_gives_its_sentences_in_their_order_and_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("t_s,Text,hash\n0,a b,1\n1,c,2\n2,a b,1\n5,d,1\n")
    log = repeats(tmp_path, recorded="log.csv")
    assert log.draw(10, rng()).tolist() == [0, 1, 0, 2, 0, 1, 0, 2, 0, 1]
    assert log.draw(3, rng(), 3).tolist() == [2, 0, 1]
    assert log.shares.tolist() == [0.5, 0.25, 0.25]
    begins = {tuple(log.draw(4, rng(replication))) for replication in range(1, 30)}
    assert begins == {(0, 1, 0, 2), (1, 0, 2, 0), (0, 2, 0, 1), (2, 0, 1, 0)}, "of further replications"
    assert repeats(tmp_path, recorded="log.csv", column="Hash").draw(4, rng()).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("t_s,words\n0,a\n1,b\n", None, "no column text, src_text"),
        ("t_s,text\n0,a\n1,b\n", "hash", "no column hash among t_s and text"),
        ("t_s,text\n0,a\n1,\n", None, "no text"),
        ("t_s,requests\n0,4\n1,5\n", None, "a log of counts"),
    ],
)
def test_a_log_without_a_text_for_each_request_is_refused(tmp_path: Path, text: str, column: str | None, what: str) -> None:
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(ArrivalsError, match=what):
        repeats(tmp_path, recorded="log.csv", column=column)


def test_lengths_by_sentence_have_the_law_of_the_corpus_for_the_requests() -> None:
    law = repeats(zipf=1.1, over=5_000)
    for seed in range(5):
        quantile = law.length_quantiles(np.random.default_rng(seed))
        assert quantile.min() >= 0.0 and quantile.max() < 1.0
        # The share of requests below each quantile is that quantile, but for the part of one sentence.
        below = np.cumsum(law.shares[np.argsort(quantile)])
        assert np.abs(below - np.sort(quantile)).max() <= law.shares[0] + 1e-9
    firsts = [law.length_quantiles(np.random.default_rng(seed))[0] for seed in range(300)]
    assert stats.kstest(firsts, "uniform").pvalue > 1e-3, "of the most frequent sentence over replications"


def test_requests_are_traced_to_the_first_of_their_sentence() -> None:
    sentence = np.array([3, 0, 3, 7, 0, 3], np.int32)
    assert first_requests(sentence).tolist() == [0, 1, 0, 3, 1, 0]
    apart = numbered_apart([sentence, np.array([0, 0, 1], np.int32)])
    assert [column.tolist() for column in apart if column is not None] == [[3, 0, 3, 7, 0, 3], [8, 8, 9]]
    assert numbered_apart([sentence, None]) == [None, None]
