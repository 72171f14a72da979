"""Submodels evaluated on a task (STI-02, STI-27), and what raising single shards brings (STI-09)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.calibrate.harness import Listener, Silent
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.streamed_model import measure_importance
from simnmt.profile.streaming_block import StiImportance
from simnmt.streaming.encoder import ElasticEncoder
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.evaluation import Evaluator
from simnmt.streaming.store import ShardStore
from simnmt.streaming.texts import Task, read_task
from tests.streaming.made_encoder import PLANTED, logits_of, made_texts, made_weights, planted_weights, stored

WEIGHTS = made_weights()
TEXTS = made_texts()
LABELS = [at % 2 for at in range(len(TEXTS))]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardStore]:
    with stored(WEIGHTS, tmp_path_factory.mktemp("evaluation") / "store") as opened:
        yield opened


def evaluator(store: ShardStore, **options: int) -> Evaluator:
    return Evaluator(ElasticEncoder(WEIGHTS.configuration, WEIGHTS.resident), store, TEXTS, LABELS, **options)


def uniform(bits: int, layers: int = 3, slices: int = 4) -> dict[tuple[int, int], int]:
    return {(layer, slice_): bits for layer in range(layers) for slice_ in range(slices)}


def test_all_shards_at_32_bits_answer_as_the_model_itself(store: ShardStore) -> None:
    """One text after another through the unsharded weights is the oracle; padding and batches change nothing."""
    evaluation = evaluator(store).evaluate(uniform(32))
    for at, text in enumerate(TEXTS[:40]):
        logits = logits_of(WEIGHTS, torch.tensor([text]), torch.ones((1, len(text)), dtype=torch.bool))
        expected = float(logits.double().log_softmax(1)[0, LABELS[at]])
        assert evaluation.log_likelihood[at] == pytest.approx(expected, abs=1e-5)
        assert evaluation.predicted[at] == int(logits.argmax())
    assert evaluation.correct.tolist() == (evaluation.predicted == np.array(LABELS)).tolist()
    assert evaluation.accuracy == evaluation.correct.mean()


SUBMODELS = st.integers(1, 3).flatmap(
    lambda layers: st.lists(
        st.dictionaries(st.integers(0, 3), st.sampled_from((2, 3, 6, 32)), min_size=1), min_size=layers, max_size=layers
    )
)


@given(submodels=st.lists(SUBMODELS, min_size=2, max_size=4), kept_bytes=st.sampled_from((0, 40_000, 10**9)))
def test_what_was_computed_before_changes_no_answer(submodels: list[list[dict[int, int]]], kept_bytes: int) -> None:
    store = _STORE[0]
    used = evaluator(store, kept_bytes=kept_bytes)
    for layers in submodels:
        bits = {(layer, slice_): width for layer, shards in enumerate(layers) for slice_, width in shards.items()}
        again, fresh = used.evaluate(bits), evaluator(store).evaluate(bits)
        assert np.array_equal(again.log_likelihood, fresh.log_likelihood)


_STORE: list[ShardStore] = []


@pytest.fixture(autouse=True)
def _for_hypothesis(store: ShardStore) -> None:
    _STORE[:] = [store]


def test_the_accuracy_proxy_rises_with_bits_and_shards_to_1_for_the_full_model(store: ShardStore) -> None:
    used = evaluator(store)
    full = used.evaluate(uniform(32))
    assert used.evaluate(uniform(32)).agreement(full) == 1.0
    by_bits = [used.evaluate(uniform(bits)).agreement(full) for bits in (2, 3, 4, 5, 6)]
    assert max(by_bits[:2]) < 0.9 < min(by_bits[2:])
    by_shards = {(n, m): used.evaluate(uniform(32, n, m)).agreement(full) for n in (1, 2, 3) for m in (1, 2, 3, 4)}
    few, many = ([outcome for (n, m), outcome in by_shards.items() if (n * m > 6) == large] for large in (False, True))
    assert np.mean(few) < 0.8 < np.mean(many)


def task_of(folder: Path, content: str | bytes, **options: object) -> Task:
    path = folder / "task.tsv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_task(path, **options)  # type: ignore[arg-type]


def test_columns_are_found_by_name_and_pairs_stay_pairs(tmp_path: Path) -> None:
    task = task_of(tmp_path, "index\tlabel\tsentence1\tsentence2\r\n7\tnot\tone\tother\r\n8\tentailment\ta\tb\r\n")
    assert task.texts == (("one", "other"), ("a", "b"))
    assert (task.labels.tolist(), task.label_names) == ([1, 0], ("entailment", "not"))


def test_the_models_classes_decide_what_a_label_means(tmp_path: Path) -> None:
    names = ("entailment", "not_entailment")
    assert task_of(tmp_path, "sentence\tlabel\nx\tnot_entailment\n", label_names=names).labels.tolist() == [1]
    unnamed = ("LABEL_0", "LABEL_1", "LABEL_2")
    assert task_of(tmp_path, "sentence\tlabel\nx\t2\n", label_names=unnamed).labels.tolist() == [2]


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", 1, "no column sentence"),
        (b"sentence\tlabel\nx\t1\ny\tz\t0\n", 3, "3 fields"),
        (b"sentence\tlabel\nx\tyes\ny\tyes\n", None, "number of classes: 1"),
    ],
)
def test_a_bad_line_is_named_with_the_remedy(tmp_path: Path, content: bytes, line: int | None, message: str) -> None:
    with pytest.raises(StreamingError, match=message) as caught:
        task_of(tmp_path, content)
    assert (caught.value.line, caught.value.path) == (line, str(tmp_path / "task.tsv"))


PLANTED_WEIGHTS = planted_weights()
PLANTED_TEXTS = made_texts(200)


@pytest.fixture(scope="module")
def planted_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardStore]:
    with stored(PLANTED_WEIGHTS, tmp_path_factory.mktemp("importance") / "store") as opened:
        yield opened


@pytest.fixture
def fresh(planted_store: ShardStore) -> Evaluator:
    """On texts whose labels are what the full model says of them."""
    encoder = ElasticEncoder(PLANTED_WEIGHTS.configuration, PLANTED_WEIGHTS.resident)
    full = Evaluator(encoder, planted_store, PLANTED_TEXTS, [0] * len(PLANTED_TEXTS)).evaluate(
        {(layer, slice_): 32 for layer in range(3) for slice_ in range(4)}
    )
    assert 0.2 < full.predicted.mean() < 0.8
    return Evaluator(encoder, planted_store, PLANTED_TEXTS, full.predicted.tolist())


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
