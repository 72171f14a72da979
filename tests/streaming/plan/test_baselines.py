"""What STI is compared with, to the digits of STI-19; memory to those of STI-23."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.papers.sti.plans import GPU, PROCESSOR
from simnmt.profile.streaming_block import BERT_BASE, BITS, StiCost
from simnmt.streaming.plan.plan_summary import PRESETS, board_cost, contestants, in_memory, load_and_execute, standard_pipeline
from simnmt.streaming.plan.streaming_plan import make_plan, memory_of, model_bytes
from tests.streaming.plan.made_cost import LENGTH, costs, round_cost


def test_worked_example_of_sti_19() -> None:
    cost = round_cost(4)
    by_name = contestants(cost, 2.0, length=LENGTH)
    sizes_and_latencies = {
        name: run and (run.plan.layers, run.plan.slices_per_layer, round(run.plan.latency_s, 3))
        for name, run in by_name.items()
    }
    assert sizes_and_latencies == {
        "Load&Exec": (1, 1, 3.533),
        "StdPL-full": None,
        "StdPL-2": (4, 1, 1.533),
        "StdPL-6": (2, 1, 1.533),
        "PreloadModel-full": (3, 2, 2.0),
        "PreloadModel-6": (3, 2, 2.0),
    }
    assert [name for name, run in by_name.items() if run and run.plan.misses_deadline] == ["Load&Exec"]
    assert all(run is None or run.timeline.latency_s == run.plan.latency_s for run in by_name.values())


@given(costs(), st.floats(0.05, 5.0))
def test_sti_computes_no_fewer_shards_than_any_pipeline(cost: StiCost, deadline_s: float) -> None:
    """STI-19: its size is bound by computing alone; theirs by reading too."""
    shards = len(make_plan(cost, deadline_s, 0, length=LENGTH).bits)
    for bits in BITS:
        other = standard_pipeline(cost, deadline_s, bits, length=LENGTH)
        assert other is None or (len(other.bits) <= shards and not other.misses_deadline)
    assert len(in_memory(cost, deadline_s, 6, length=LENGTH).bits) == shards


def test_memory_keeps_what_is_preloaded_apart_from_what_is_worked_with() -> None:
    cost = round_cost(4)
    layer_bytes = 3 * 4 * cost.geometry.weights_per_shard
    streamed = memory_of(cost, make_plan(cost, 4.0, 7000, length=LENGTH))
    assert (streamed.preload_bytes, streamed.working_bytes) == (7000, layer_bytes)
    whole = memory_of(cost, in_memory(cost, 4.0, 6, length=LENGTH), whole=True)
    assert (whole.preload_bytes, whole.streamed_bytes) == (model_bytes(cost, 6), 0) == (12 * 6000, 0)
    in_turn = memory_of(cost, load_and_execute(cost, 100.0, length=LENGTH), in_turn=True)
    assert (in_turn.preload_bytes, in_turn.working_bytes, in_turn.streamed_bytes) == (
        0,
        4 * layer_bytes,
        0,
    )  # what is loaded is computed where it lies


def test_there_is_one_model_of_each_board() -> None:
    """The planner's presets are the boards that studies stand on, for shards of BERT's size (STI-20, STI-21)."""
    order = tuple((layer, piece) for layer in range(12) for piece in range(12))
    for name, device in (("@odroid-sti", PROCESSOR), ("@jetson-sti", GPU)):
        shipped, studied = board_cost(PRESETS[name][0], BERT_BASE), device.cost(12, 12, order)
        assert shipped.io_s == studied.io_s
        assert [*shipped.comp_s.values()] == [*studied.comp_s.values()]
    processor = board_cost("odroid", BERT_BASE)
    assert processor.t_comp(128, 12) == pytest.approx(0.095)
    assert 12 * processor.io_s[32] == pytest.approx(0.339)
