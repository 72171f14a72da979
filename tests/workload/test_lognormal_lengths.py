"""The synthetic mixes have the moments of table 1 and say that they are synthetic (FNI-12, FNI-14)."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import numpy as np
import pytest
from pydantic import ValidationError

from simnmt.base.configuration import input_files, with_absolute_paths
from simnmt.base.random_streams import stream
from simnmt.workload.configuration import WorkloadConfiguration
from simnmt.workload.lognormal_lengths import EUROPARL, MIXES, SENTENCES, LognormalLengths

TABLE_1 = {"europarl": (30_000, 787_908, 26.3, 14.9), "opensubtitles": (50_000, 467_654, 9.4, 6.1)}
"""Sentences, sub-words, mean, standard deviation."""


def lengths_of(value: object):
    return WorkloadConfiguration.model_validate({"lengths": value}).lengths


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("seed", range(5))
def test_every_workload_has_the_moments_of_table_1_within_2_percent(mix: str, seed: int) -> None:
    sentences, subwords, mean, sd = TABLE_1[mix]
    assert SENTENCES[mix] == sentences
    src_len, _ = MIXES[mix].draw(stream(seed, 0, "lengths"), sentences)
    assert src_len.mean() == pytest.approx(mean, rel=0.02)
    assert src_len.std() == pytest.approx(sd, rel=0.02)
    assert src_len.sum() == pytest.approx(subwords, rel=0.02)


def test_a_target_is_its_source_give_or_take_the_spread_and_an_end_symbol() -> None:
    src_len, tgt_len = EUROPARL.draw(stream(1, 0, "lengths"), 30_000)
    assert (src_len.dtype, tgt_len.dtype) == (np.int64, np.int64)
    long = src_len > 40
    log_ratio = np.log((tgt_len[long] - 1) / src_len[long])
    assert log_ratio.mean() == pytest.approx(0.0, abs=0.01)
    assert log_ratio.std() == pytest.approx(0.12, rel=0.05)
    exact = LognormalLengths(26.3, 14.9, spread=0.0, end=2).draw(stream(1, 0, "lengths"), 100)
    assert (exact[1] == exact[0] + 2).all()


def test_sources_follow_a_lognormal_law_in_random_order() -> None:
    """The median tells a log-normal law from a normal one of like moments; order must carry no length."""
    src_len = EUROPARL.draw(stream(2, 0, "lengths"), 30_000)[0]
    assert np.median(src_len) == pytest.approx(26.3 / (1 + (14.9 / 26.3) ** 2) ** 0.5, abs=0.6)
    assert abs(np.corrcoef(src_len[:-1], src_len[1:])[0, 1]) < 0.03
    assert abs(np.corrcoef(src_len, np.arange(len(src_len)))[0, 1]) < 0.03


@pytest.mark.parametrize("size", [0, 1, 2])
def test_no_length_falls_below_one(size: int) -> None:
    src_len, tgt_len = LognormalLengths(0.1, 0.1, spread=1.0, end=0).draw(stream(3, 0, "lengths"), size)
    assert (src_len.tolist(), len(tgt_len)) == ([1] * size, size)
    assert (tgt_len >= 1).all()


def test_a_scenario_names_a_mix_and_its_table_is_marked_synthetic(tmp_path: Path) -> None:
    lengths = lengths_of({"lognormal": {"mix": "opensubtitles"}})
    table = lengths.load(tmp_path)
    assert (table.pairs, table.name) == (50_000, "lognormal-opensubtitles")
    assert (table.src_unit, table.tgt_unit) == ("subword", "subword")
    assert table.source.startswith("synthetic")
    assert table.mean_src_len == pytest.approx(9.4, rel=0.02)
    assert (lengths.warnings(table), lengths.fertility, input_files(lengths, tmp_path)) == ((), None, {})
    assert with_absolute_paths(lengths, tmp_path) == lengths
    again = lengths.load(tmp_path)
    assert (again.count == table.count).all() and (again.src_len == table.src_len).all()


def test_stated_moments_replace_a_mix(tmp_path: Path) -> None:
    moments = {"src_mean": 40.0, "src_sd": 0.0, "spread": 0.0, "end": 0, "sentences": 7}
    table = lengths_of({"lognormal": moments, "fertility": {"src": 2.0}}).load(tmp_path)
    assert (table.src_len.tolist(), table.tgt_len.tolist(), table.count.tolist()) == ([40], [40], [7])
    drawn = [lengths_of({"lognormal": {"mix": "europarl", "seed": seed}}).load(tmp_path) for seed in (0, 1)]
    assert drawn[0].src_len.shape != drawn[1].src_len.shape or (drawn[0].count != drawn[1].count).any()


@pytest.mark.parametrize(
    ("lognormal", "complaint"),
    [
        ({}, "mix: europarl or mix: opensubtitles, or src_mean and src_sd"),
        ({"mix": "news"}, "europarl.*opensubtitles"),
        ({"mix": "europarl", "sentences": 0}, "greater than or equal to 1"),
    ],
)
def test_moments_that_are_none_are_refused(lognormal: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        lengths_of({"lognormal": lognormal})


def test_the_schema_for_editors_knows_the_kind() -> None:
    validator = jsonschema.Draft202012Validator(WorkloadConfiguration.model_json_schema())
    assert validator.is_valid({"lengths": {"lognormal": {"mix": "europarl"}}})
    assert not validator.is_valid({"lengths": {"lognormal": {"mix": "news"}}})
