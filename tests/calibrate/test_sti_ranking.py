"""On which examples shards are ranked, of all that could be had, and how many of them judge as well (STI-09)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")

from simnmt.calibrate.settings import CalibrationError
from simnmt.papers.kit.study import write_study
from simnmt.papers.sti.study import ImportanceOrder, Study
from simnmt.papers.sti.study_run import Ranking, continued_study
from simnmt.profile.streaming_block import StiBlock
from simnmt.streaming.encoder.task import Task
from tests.papers.sti_stand_ins import begun
from tests.profile.made_sti import sti_block

JUDGED, OTHER = "a" * 64, "b" * 64


def task_of(sha256: str, *texts: str) -> Task:
    """Examples of one class."""
    return Task("films.tsv", texts, np.zeros(len(texts), np.int64), ("0", "1"), sha256)


FILMS = task_of(JUDGED, "fine", "dull", "warm")
APART = task_of(OTHER, "cold", "dull", "dull", "warm")


def ranked_on(sha256: str, examples: int = 4) -> StiBlock:
    """A profile's block whose shards were ranked on that many first examples of that file."""
    made = sti_block(2, 4, 16, 32)
    made["importance"] |= {"task_sha256": sha256, "examples": examples}
    return StiBlock.model_validate_json(json.dumps(made))


def held_order(sha256: str) -> Study:
    """A study that was begun with an order found on that file."""
    own = begun()
    return own.model_copy(update={"importance": own.importance.model_copy(update={"task_sha256": sha256})})


def known(ranking: Ranking, *on: str, held: str | None = None) -> ImportanceOrder | None:
    """The order taken where profiles were ranked on these files."""
    return ranking.known([ranked_on(each) for each in on], None if held is None else held_order(held))


def test_an_order_that_was_found_on_the_judging_examples_hides_no_other() -> None:
    for found in (
        known(Ranking(FILMS), JUDGED, OTHER),
        known(Ranking(FILMS), OTHER, JUDGED),
        known(Ranking(FILMS), JUDGED, held=OTHER),
        known(Ranking(FILMS), OTHER, held=JUDGED),
    ):
        assert found is not None and found.task_sha256 == OTHER and found.shared is None


def test_orders_that_were_found_on_the_judging_examples_alone_are_taken_only_where_that_is_said() -> None:
    for on, held in (((JUDGED, JUDGED), None), ((JUDGED,), JUDGED), ((), JUDGED)):
        with pytest.raises(CalibrationError, match="the very examples"):
            known(Ranking(FILMS), *on, held=held)
        found = known(Ranking(FILMS, on_judged=True), *on, held=held)
        assert found is not None and (found.task_sha256, found.shared) == (JUDGED, 3)
    with pytest.raises(CalibrationError, match="no option names"):
        known(Ranking(FILMS))
    assert known(Ranking(FILMS, on_judged=True), OTHER, held=OTHER) is None


def test_texts_that_rank_and_judge_are_counted_where_the_ranking_file_is_given() -> None:
    """Three of its four, one of its first two."""
    by_file = Ranking(FILMS, APART)
    for blocks, held in (([ranked_on(OTHER)], None), ([], held_order(OTHER))):
        found = by_file.known(blocks, held)
        assert found is not None and found.shared == 3
    fewer = by_file.known([ranked_on(OTHER, examples=2)], None)
    assert fewer is not None and (fewer.examples, fewer.shared) == (2, 1)
    apart = Ranking(FILMS, replace(APART, texts=("cold",), labels=APART.labels[:1])).known([ranked_on(OTHER)], None)
    assert apart is not None and apart.shared == 0


def test_a_study_is_gone_on_with_whether_or_not_the_shared_texts_were_counted_before(tmp_path: Path) -> None:
    own = begun()
    counted = own.model_copy(update={"importance": own.importance.model_copy(update={"shared": 3})})
    for held, again in ((own, counted), (counted, own)):
        write_study(tmp_path / "study.json", held)
        assert continued_study(again, tmp_path / "study.json").importance == counted.importance
    other = own.model_copy(update={"importance": own.importance.model_copy(update={"shared": 4})})
    with pytest.raises(CalibrationError, match="another importance"):
        continued_study(other, tmp_path / "study.json")
