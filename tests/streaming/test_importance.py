"""What raising single shards brings (STI-09): the planted one first, every evaluation kept, none of another's taken over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from simnmt.calibrate.harness import Listener, Silent
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.streaming.profile import measure_importance
from simnmt.profile.streaming_block import StiImportance
from simnmt.streaming.encoder import ElasticEncoder
from simnmt.streaming.evaluation import Evaluator
from simnmt.streaming.store import ShardStore
from simnmt.streaming.texts import Task
from tests.streaming.made_encoder import PLANTED, made_texts, planted_weights, stored

WEIGHTS = planted_weights()
TEXTS = made_texts(200)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardStore]:
    with stored(WEIGHTS, tmp_path_factory.mktemp("importance") / "store") as opened:
        yield opened


@pytest.fixture
def fresh(store: ShardStore) -> Evaluator:
    """On texts whose labels are what the full model says of them."""
    encoder = ElasticEncoder(WEIGHTS.configuration, WEIGHTS.resident)
    full = Evaluator(encoder, store, TEXTS, [0] * len(TEXTS)).evaluate(
        {(layer, slice_): 32 for layer in range(3) for slice_ in range(4)}
    )
    assert 0.2 < full.predicted.mean() < 0.8
    return Evaluator(encoder, store, TEXTS, full.predicted.tolist())


def measured(evaluator: Evaluator, journal: Path | None = None, listener: Listener = Silent) -> StiImportance:
    task = Task("planted.tsv", (), np.zeros(0, np.int64), ("0", "1"), "t" * 64)
    if journal is None:
        return measure_importance(evaluator, task, listener)
    with closing(Journal(journal, {"task": task.sha256})) as kept:
        return measure_importance(evaluator, task, listener, kept)


def test_the_planted_shard_ranks_first_and_all_others_tie_in_their_own_order(fresh: Evaluator) -> None:
    table = measured(fresh)
    assert table.order[0] == PLANTED
    assert list(table.order[1:]) == [(layer, slice_) for layer in range(3) for slice_ in range(4) if (layer, slice_) != PLANTED]
    assert table.accuracy[PLANTED[0]][PLANTED[1]] == 1.0
    assert table.base_accuracy < 0.9
    assert {value for row in table.accuracy for value in row} == {1.0, table.base_accuracy}


def test_a_table_takes_one_evaluation_for_each_shard_and_the_base_and_few_layers_twice(fresh: Evaluator) -> None:
    table = measured(fresh)
    assert [len(row) for row in table.log_likelihood] == [4, 4, 4]
    # The base's three layers, and for each of four slices the layers from its own on: 3 + 4 (1 + 2 + 3).
    assert fresh.layers_computed == 27


def test_an_interrupted_measurement_goes_on_and_ends_alike(fresh: Evaluator, tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"

    class Stopping:
        def say(self, text: str) -> None:
            pass

        def measured(self, part: str, done_s: float, left_s: float) -> None:
            assert done_s + left_s == 13
            if done_s == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(fresh, journal=journal, listener=Stopping())
    with journal.open("ab") as file:
        file.write(b'{"finding": ["0.1", [0')  # a crash amid a line
    before = fresh.layers_computed
    table = measured(fresh, journal=journal)
    assert 0 < fresh.layers_computed - before < 27
    assert table == measured(fresh)
