"""Studies of a streamed classifier: what they hold, how they go on, and what they refuse (STI-10, 19 to 24, 27)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simnmt.calibrate.settings import CalibrationError
from simnmt.papers.kit.study import read_study
from simnmt.papers.sti.plans import Planner, submodels
from simnmt.papers.sti.study import Study
from simnmt.papers.sti.study_run import SAVED_EVERY, measure, study_classifier
from simnmt.profile.streaming_block import Shard
from simnmt.streaming.encoder import EncoderWeights
from simnmt.streaming.evaluation import Evaluation
from simnmt.streaming.store import write_store
from simnmt.streaming.texts import learn_pieces
from tests.papers.sti_stand_ins import ORDER, Imagined, begun, studied, study
from tests.streaming.made_encoder import made_weights

LAYERS, SLICES = 6, 4
LAYER_BYTES = 4 * (4 * 256 + 2 * 1024) * 256
"""Of four slices of BERT's size."""


def test_every_point_waits_as_its_plan_says() -> None:
    """STI-12, STI-19, STI-23: STI computes no fewer shards than a StdPL in time, and holds no more than its buffer."""
    grid = studied().grid
    assert (grid["misses"] == (grid["latency_ms"] > grid["deadline_ms"] * (1 + 1e-9))).all()
    in_memory = grid[grid["method"].str.startswith("PreloadModel")]
    assert (in_memory["stall_ms"] == 0.0).all() and (in_memory["io_busy_ms"] == 0.0).all()
    plans = grid[(grid["method"] == "STI") & (grid["preload_share"] == 0.0)]
    pipelines = grid[grid["method"].str.startswith("StdPL") & ~grid["misses"]]
    pairs = pipelines.merge(plans, on=["device", "deadline_share"], suffixes=("", "_planned"))
    assert len(pairs) == len(pipelines) > 0 and (pairs["shards"] <= pairs["shards_planned"]).all()
    buffered = grid[grid["preload_share"].notna()]
    assert (1e6 * buffered["held_mb"] <= buffered["preload_share"] * LAYERS * LAYER_BYTES + 1).all()


def test_the_whole_model_in_memory_counts_as_a_whole_and_executions_unpack_one_layer() -> None:
    """STI-23: what PreloadModel holds does not shrink with its submodel; Load&Exec unpacks all layers before it computes."""
    for method, points in studied().grid.groupby("method"):
        layers = {"Load&Exec": points["layers"], "PreloadModel-32": 0}.get(str(method), 1)
        layer_mb = 1e-6 * LAYER_BYTES * points["slices"] / SLICES
        assert np.allclose(points["working_mb"], layers * layer_mb)
    whole = studied().grid.query("method == 'PreloadModel-32'")
    assert np.allclose(whole["held_mb"], 1e-6 * LAYERS * LAYER_BYTES) and whole["shards"].nunique() > 1


class Breaking(Imagined):
    """Stops answering after so many submodels."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after

    def evaluate(self, bits: Mapping[Shard, int]) -> Evaluation:
        if self.calls >= self._after:
            raise KeyboardInterrupt
        return super().evaluate(bits)


def test_a_stopped_study_continues_with_the_missing_answers(tmp_path: Path) -> None:
    out = tmp_path / "study.json"
    with pytest.raises(KeyboardInterrupt):
        measure(begun(), Breaking(SAVED_EVERY + 3), out=out)
    held, rest = read_study(out, Study), Imagined()
    assert len(held.answers) == SAVED_EVERY
    whole = measure(held, rest, out=out)
    assert rest.calls == 1 + len(whole.answers) - SAVED_EVERY
    assert whole.answers == study().answers and read_study(out, Study) == whole


def test_importance_and_chance_raise_equally_many_shards_by_orders_that_are_drawn_alike() -> None:
    """STI-24: equal IO."""
    planner = Planner(LAYERS, SLICES, ORDER)
    rows = [row for row in planner.rows("upgrades") if row["order"] != "none"]
    assert all(list(row["bits"].values()).count(6) == row["raised"] for row in rows)
    assert {row["raised"] for row in rows} == {1, 2, 6}
    assert submodels(planner).keys() == submodels(planner).keys() == study().answers.keys()


TEXTS = ["a fine film", "a dull film", "fine and warm", "dull and cold", "warm film", "cold film and dull"] * 3


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store of a small classifier, and a task."""
    folder = tmp_path_factory.mktemp("study")
    pieces = learn_pieces(TEXTS, 30)
    made = made_weights(layers=2, vocabulary=pieces.size)
    weights = EncoderWeights(made.configuration, made.resident, made.layer, origin="folder/tiny")
    write_store(replace(weights, files=pieces.files), folder / "tiny.store")
    lines = [f"{text}\t{int('fine' in text or 'warm' in text)}" for text in TEXTS]
    (folder / "films.tsv").write_text("sentence\tlabel\n" + "\n".join(lines) + "\n")
    (folder / "ranking.tsv").write_text("sentence\tlabel\nwarm and fine\t1\ndull and cold\t0\ncold\t0\n")
    return folder / "tiny.store", folder / "films.tsv"


def test_a_real_store_is_studied_and_its_study_continued(places: tuple[Path, Path], tmp_path: Path) -> None:
    """The whole model at 32 bits agrees with itself, and a second call finds nothing left to measure."""
    out, apart = tmp_path / "s.json", places[1].with_name("ranking.tsv")
    done: list[float] = []

    def progress(count: float, total: int, title: str) -> None:
        done.append(count)

    measured = study_classifier(*places, importance_task=apart, out=out, progress=progress)
    assert measured.name == "tiny on films" and len(done) == len(measured.answers)
    ranked = measured.importance
    assert (ranked.task, ranked.examples, ranked.shared, len(ranked.order)) == ("ranking.tsv", 3, 1, 8)
    assert (measured.model.layers, measured.model.heads, measured.task.examples) == (2, 4, 18)
    assert measured.answers["ffff/ffff"].agreement == 1.0
    assert study_classifier(*places, out=out, progress=progress) == measured
    assert len(done) == len(measured.answers) and [path.name for path in tmp_path.iterdir()] == ["s.json"]
    for task, ranking in ((apart, None), (places[1], places[1])):
        with pytest.raises(CalibrationError) as refusal:
            study_classifier(places[0], task, importance_task=ranking, out=out)
        assert refusal.value.path == str(out)
