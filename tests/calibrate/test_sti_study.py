"""Studies of a streamed classifier: what they hold, how they go on, and what they refuse (STI-10, 19 to 24, 27)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.calibrate.settings import CalibrationError
from simnmt.papers.kit.study import read_study, write_study
from simnmt.papers.sti.study import METHODS, PARTS, PLANNED, Study, packed_correct
from simnmt.papers.sti.study_run import LENGTH, StudySettings, continued_study, measure, paper_boards, study_classifier
from simnmt.profile.streaming_cost import BERT_BASE, Shard
from simnmt.streaming.encoder import EncoderWeights
from simnmt.streaming.evaluation import Evaluation
from simnmt.streaming.store import write_store
from simnmt.streaming.texts import learn_pieces
from tests.papers.sti_stand_ins import SETTINGS, Imagined, begun, bench, study
from tests.streaming.made_encoder import made_weights


def test_a_study_is_read_as_it_was_written_with_the_answer_to_every_example(tmp_path: Path) -> None:
    small_study = study()
    write_study(tmp_path / "study.json", small_study)
    assert read_study(tmp_path / "study.json", Study) == small_study
    right = np.random.default_rng(1).random(small_study.task.examples) < 0.7
    packed = small_study.uniform[0].outcome.model_copy(update={"correct": packed_correct(right)})
    assert (packed.right(small_study.task.examples) == right).all()


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({"task": {"examples": 999}}, "outcomes are not of 999 examples"),
        ({"odd": 1}, "odd"),
    ],
)
def test_a_file_that_is_no_study_is_refused_by_its_place(change: dict[str, Any], messages: str, tmp_path: Path) -> None:
    held = study().model_dump(mode="json")
    for key, value in change.items():
        held[key] = held[key] | value if isinstance(value, dict) else value
    (tmp_path / "study.json").write_text(json.dumps(held))
    with pytest.raises(CalibrationError, match=messages):
        read_study(tmp_path / "study.json", Study)


def test_the_boards_costs_are_the_papers_own_times_of_a_layer() -> None:
    """STI-20, STI-21: 339 ms over 95 ms; a GPU's layer of 12 takes 0.7 % longer than one of 3; 0.13 of it all is 150 ms."""
    order = tuple((layer, piece) for layer in range(12) for piece in range(12))
    (slow, cost), _, (gpu, _) = paper_boards(12, 12, order)
    assert slow.skew == pytest.approx(339 / 95) and 12 * slow.io_s[32] == pytest.approx(0.339)
    assert gpu.comp_s[11] / gpu.comp_s[2] == pytest.approx(1.007, abs=1e-4)
    assert 0.13 * 12 * cost.t_comp(LENGTH, 12) == pytest.approx(0.150, abs=0.003)
    assert slow.preload_share * 12 * BERT_BASE.float32_bytes_per_layer == pytest.approx(1e6)
    assert cost.geometry == BERT_BASE and cost.bytes_of(32) == BERT_BASE.index_bytes(32)


def test_every_point_has_the_latency_and_stall_of_its_timeline() -> None:
    """STI-12; a late method is marked, and no plan without a flag waits for more than a shard (STI-15)."""
    small_study = study()
    reads = {device.name: device.io_s[32] for device in small_study.devices}
    for point in (*small_study.grid, *small_study.sizes):
        drawn = point.timeline(next(device for device in small_study.devices if device.name == point.device))
        assert drawn.latency_s == pytest.approx(point.latency_s) and drawn.stall_s == pytest.approx(point.stall_s, abs=1e-12)
        assert point.misses == (point.latency_s > point.deadline_s * (1 + 1e-9))
        if point.method == "STI" and not point.flagged:
            assert point.stall_s <= reads[point.device]
        if point.method.startswith("PreloadModel"):
            assert point.stall_s == 0.0 and point.io_s == 0.0


def test_plans_compute_as_many_shards_as_any_pipeline_and_hold_no_more_than_their_buffer() -> None:
    """STI-19: STI's n x m is no less than that of a StdPL, where that one keeps the deadline."""
    small_study = study()
    plans = {(p.device, p.deadline_share): p.shards for p in small_study.grid if p.method == "STI" and p.preload_share == 0.0}
    in_time = [point for point in small_study.grid if point.method.startswith("StdPL") and not point.misses]
    assert in_time and all(plans[point.device, point.deadline_share] >= point.shards for point in in_time)
    for point in small_study.grid:
        if point.preload_share is not None:
            assert point.held_bytes <= point.preload_bytes
        elif point.method in ("Load&Exec", "StdPL-2", "StdPL-6", "StdPL-32"):
            assert point.held_bytes == 0


def test_the_whole_model_in_memory_counts_as_a_whole() -> None:
    """STI-23: the bytes that PreloadModel holds do not shrink with the submodel that it runs."""
    small_bench = bench()
    device, cost = small_bench.devices[0]
    least, most = (small_bench.point(device, cost, "PreloadModel-32", share, None) for share in (0.1, 1.0))
    assert least.held_bytes == most.held_bytes == 24 * cost.bytes_of(32) and least.shards < most.shards


def test_an_execution_unpacks_one_layer_whatever_its_depth_and_loads_all_where_nothing_overlaps() -> None:
    """STI-23: parameters that are computed where they lie need no working buffer."""
    small_bench = bench()
    device, cost = small_bench.devices[0]
    for method in METHODS:
        point = small_bench.point(device, cost, method, 8.0, 0.0 if method in PLANNED else None)
        layers = {"Load&Exec": point.layers, "PreloadModel-32": 0}.get(method, 1)
        assert point.layers > 1 and point.working_bytes == layers * point.slices * 4 * cost.geometry.weights_per_shard


class Breaking(Imagined):
    """Stops answering after so many submodels."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after

    def evaluate(self, bits: Mapping[Shard, int]) -> Evaluation:
        if self.calls >= self._after:
            raise KeyboardInterrupt
        return super().evaluate(bits)


def test_a_stopped_study_continues_with_the_missing_parts(tmp_path: Path) -> None:
    out = tmp_path / "study.json"
    with pytest.raises(KeyboardInterrupt):
        measure(begun(), bench(Breaking(15)), out=out)
    held = read_study(out, Study)
    assert [run.part for run in held.runs] == ["uniform"] and not held.grid
    whole = measure(continued_study(begun(), out), bench(), out=out)
    assert [run.part for run in whole.runs] == list(PARTS)
    assert [whole.uniform, whole.grid, whole.sizes] == [study().uniform, study().grid, study().sizes]
    idle = Imagined()
    assert measure(continued_study(begun(), out), bench(idle), out=out) == whole and not idle.calls


def test_a_part_is_measured_anew_with_other_settings_alone() -> None:
    fewer = replace(SETTINGS, random_orders=2)
    again = measure(study(), bench(settings=fewer), parts=["upgrades"])
    assert [len(case.random) for case in again.upgrades] == [2, 2] and again.grid == study().grid
    idle = Imagined()
    assert measure(study(), bench(idle)) == study() and not idle.calls


def test_a_submodel_of_many_plans_is_evaluated_once() -> None:
    imagined = Imagined()
    measured = measure(begun(), bench(imagined), parts=["uniform", "grid", "sizes", "upgrades"])
    assert sum(run.evaluations for run in measured.runs) + 1 == imagined.calls < len(measured.outcomes) / 2


def test_importance_and_chance_raise_equally_many_shards_and_the_draw_is_repeatable() -> None:
    """STI-24: equal IO; the same seed draws the same orders."""
    asked: list[Mapping[Shard, int]] = []

    class Listening(Imagined):
        def evaluate(self, bits: Mapping[Shard, int]) -> Evaluation:
            asked.append(bits)
            return super().evaluate(bits)

    measured = measure(begun(), bench(Listening()), parts=["upgrades"])
    raised = [sum(width == 6 for width in bits.values()) for bits in asked if set(bits.values()) == {2, 6}]
    assert set(raised) == {case.raised for case in measured.upgrades} == {2, 6}
    assert measured.upgrades == measure(begun(), bench(), parts=["upgrades"]).upgrades


TEXTS = ["a fine film", "a dull film", "fine and warm", "dull and cold", "warm film", "cold film and dull"] * 3
SMALL = StudySettings(
    deadline_shares=(0.5, 1.0), size_shares=(0.0, 0.05), size_deadlines=(0.5,), depths=(0.5,), upgrades=((1.0, 0.5, 0.5),),
    random_orders=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store of a small classifier, and a task."""
    folder = tmp_path_factory.mktemp("study")
    pieces = learn_pieces(TEXTS, 30)
    made = made_weights(layers=2, vocabulary=pieces.size)
    weights = EncoderWeights(made.configuration, made.resident, made.layer, origin="folder/tiny")
    write_store(weights, folder / "tiny.store", beside=pieces.files)
    lines = [f"{text}\t{int('fine' in text or 'warm' in text)}" for text in TEXTS]
    (folder / "films.tsv").write_text("sentence\tlabel\n" + "\n".join(lines) + "\n")
    (folder / "ranking.tsv").write_text("sentence\tlabel\nwarm and fine\t1\ndull and cold\t0\ncold\t0\n")
    return folder / "tiny.store", folder / "films.tsv"


def test_a_real_store_is_studied_and_its_study_continued(places: tuple[Path, Path], tmp_path: Path) -> None:
    """The whole model at 32 bits agrees with itself, and a second call finds nothing left to measure."""
    out, apart = tmp_path / "s.json", places[1].with_name("ranking.tsv")
    parts: list[str] = []

    def progress(done: float, total: int, title: str) -> None:
        parts.append(title)

    measured = study_classifier(*places, settings=SMALL, importance_task=apart, out=out, progress=progress)
    assert len(parts) == 4
    assert measured.name == "tiny on films" and measured.importance.evaluations == 9
    assert measured.importance.task_sha256 == hashlib.sha256(apart.read_bytes()).hexdigest() != measured.task.sha256
    assert (measured.importance.task, measured.importance.examples, measured.importance.shared) == ("ranking.tsv", 3, 1)
    assert (measured.model.layers, measured.model.heads, measured.task.examples) == (2, 4, 18)
    whole = next(entry for entry in measured.uniform if (entry.layers, entry.slices, entry.bits) == (2, 4, 32))
    assert whole.outcome.agreement == 1.0
    assert measured.store.shard_bytes[2] < measured.store.shard_bytes[6] < measured.store.shard_bytes[32]
    assert study_classifier(*places, settings=SMALL, out=out, progress=progress) == measured
    assert len(parts) == 4 and sorted(path.name for path in tmp_path.iterdir()) == ["s.json"]


def test_examples_that_judge_rank_only_where_the_option_says_so(places: tuple[Path, Path]) -> None:
    with pytest.raises(CalibrationError, match="no option names"):
        study_classifier(*places, settings=SMALL)
    with pytest.raises(CalibrationError, match="the examples of --task"):
        study_classifier(*places, settings=SMALL, importance_task=places[1])
    measured = study_classifier(*places, settings=SMALL, importance_on_task=True)
    assert measured.ranked_on_judged and measured.importance.shared == measured.importance.examples == 18


def test_a_study_with_another_order_is_not_continued(tmp_path: Path) -> None:
    study = begun()
    write_study(tmp_path / "study.json", study)
    other = study.model_copy(update={"importance": study.importance.model_copy(update={"order": study.importance.order[::-1]})})
    with pytest.raises(CalibrationError, match=r"another importance\.order"):
        continued_study(other, tmp_path / "study.json")
