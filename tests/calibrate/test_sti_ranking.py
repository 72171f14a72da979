"""The examples that rank the shards, and how many of them are also judged (STI-09)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

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
    study = begun()
    return study.model_copy(update={"importance": study.importance.model_copy(update={"task_sha256": sha256})})


def known(ranking: Ranking, *on: str, held: str | None = None) -> ImportanceOrder | None:
    """The order taken where profiles were ranked on these files."""
    return ranking.known([ranked_on(sha256) for sha256 in on], None if held is None else held_order(held))


def test_an_order_from_other_examples_is_preferred_to_one_from_the_judged_examples() -> None:
    for order in (
        known(Ranking(FILMS), JUDGED, OTHER),
        known(Ranking(FILMS), OTHER, JUDGED),
        known(Ranking(FILMS), JUDGED, held=OTHER),
        known(Ranking(FILMS), OTHER, held=JUDGED),
    ):
        assert order is not None and order.task_sha256 == OTHER and order.shared is None


def test_an_order_from_the_judged_examples_needs_the_option_for_it() -> None:
    for on, held in (((JUDGED, JUDGED), None), ((JUDGED,), JUDGED), ((), JUDGED)):
        with pytest.raises(CalibrationError, match="the very examples"):
            known(Ranking(FILMS), *on, held=held)
        order = known(Ranking(FILMS, on_judged=True), *on, held=held)
        assert order is not None and (order.task_sha256, order.shared) == (JUDGED, 3)
    with pytest.raises(CalibrationError, match="no option names"):
        known(Ranking(FILMS))
    assert known(Ranking(FILMS, on_judged=True), OTHER, held=OTHER) is None


def test_shared_texts_are_counted_if_the_ranking_file_is_given() -> None:
    """Three of its four, one of its first two."""
    by_file = Ranking(FILMS, APART)
    for blocks, held in (([ranked_on(OTHER)], None), ([], held_order(OTHER))):
        order = by_file.known(blocks, held)
        assert order is not None and order.shared == 3
    fewer = by_file.known([ranked_on(OTHER, examples=2)], None)
    assert fewer is not None and (fewer.examples, fewer.shared) == (2, 1)
    apart = Ranking(FILMS, replace(APART, texts=("cold",), labels=APART.labels[:1])).known([ranked_on(OTHER)], None)
    assert apart is not None and apart.shared == 0


def test_a_study_continues_with_and_without_a_count_of_shared_texts(tmp_path: Path) -> None:
    study = begun()
    counted = study.model_copy(update={"importance": study.importance.model_copy(update={"shared": 3})})
    for held, again in ((study, counted), (counted, study)):
        write_study(tmp_path / "study.json", held)
        assert continued_study(again, tmp_path / "study.json").importance == counted.importance
    other = study.model_copy(update={"importance": study.importance.model_copy(update={"shared": 4})})
    with pytest.raises(CalibrationError, match="another importance"):
        continued_study(other, tmp_path / "study.json")
