"""The pipeline's timeline against its definition, and the paper's own figures (STI-11, 12, 21)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.streaming.plan.streaming_plan import accumulated_budgets
from simnmt.streaming.plan.timeline import Work, load_then_run, timeline

SECONDS = st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, 1.75])
"""Exact in binary, so that ties are ties."""
LAYERS = st.lists(st.tuples(SECONDS, SECONDS.filter(bool)), min_size=1, max_size=8)


def test_the_motivating_pipeline_of_sti_21_to_the_digits() -> None:
    load_s, work = [0.339] * 6, Work([0.095] * 6)
    pipeline, in_turn = timeline(load_s, work), load_then_run(load_s, work)
    assert pipeline.latency_s == pytest.approx(2.129, abs=1e-12)
    assert in_turn.latency_s == pytest.approx(2.604, abs=1e-12)
    assert 100 * pipeline.stall_s / pipeline.latency_s == pytest.approx(73.2, abs=0.05)


@given(LAYERS)
def test_a_timeline_is_what_a_walk_over_its_layers_finds(layers: list[tuple[float, float]]) -> None:
    load_s, comp_s = zip(*layers, strict=True)
    result = timeline(load_s, Work(comp_s))
    loaded = computed = 0.0
    for k, (load, comp) in enumerate(layers):
        assert result.load_begin[k] == loaded
        loaded += load
        assert result.stall[k] == max(0.0, loaded - computed)
        computed = max(computed, loaded) + comp
        assert (result.load_end[k], result.compute_end[k]) == (loaded, computed)
    assert result.latency_s == computed


@given(LAYERS, st.integers(0, 8))
def test_no_budget_is_overdrawn_exactly_where_nothing_stalls(layers: list[tuple[float, float]], preloaded: int) -> None:
    """STI-12: for a prefix in layer order, both say the same."""
    load, comp = (np.array(column) for column in zip(*layers, strict=True))
    remaining = load.copy()
    remaining[:preloaded] = 0.0
    budgets = accumulated_budgets(float(load[:preloaded].sum()), comp, load)
    assert (budgets.min() >= 0.0) == (timeline(remaining, Work(comp)).stall_s == 0.0)


def test_worked_example_of_sti_11() -> None:
    comp, two_bits = [1.0, 1.0], [0.6, 0.0]
    assert accumulated_budgets(0.6, comp, [0.0, 0.0]) == pytest.approx([0.6, 1.6])
    assert accumulated_budgets(0.6, comp, two_bits) == pytest.approx([0.0, 1.0])
    for of_layer_1, left in (((2, 2, 6), 0.0), ((4, 3, 3), 0.0), ((4, 4, 4), -0.2)):
        assert accumulated_budgets(0.6, comp, [0.6, 0.1 * sum(of_layer_1)])[1] == pytest.approx(left)


def test_an_embedding_runs_beside_the_loads_and_a_head_follows_the_last_layer() -> None:
    result = timeline([0.5, 0.5], Work([1.0, 1.0], 0.25, before_s=0.75))
    assert result.compute_begin.tolist() == [0.75, 1.75]
    assert (result.stall_s, result.latency_s) == (0.0, 3.0)
    assert timeline([1.0, 0.5], Work([1.0, 1.0], 0.25, before_s=0.75)).stall.tolist() == [0.25, 0.0]
    assert load_then_run([0.5, 0.5], Work([1.0, 1.0], 0.25, before_s=0.75)).latency_s == 3.25
    assert load_then_run([0.5, 0.5], Work([1.0, 1.0], 0.25, before_s=1.5)).latency_s == 3.75


def test_reads_slow_what_is_computed_meanwhile_and_no_more() -> None:
    """Reads until 2 s: of 1 s of work that begins at 1 s, half is done by then, and the rest takes its own time."""
    result = timeline([1.0, 1.0], Work([1.0, 1.0], slowed=2.0))
    assert result.compute_begin.tolist() == [1.0, 2.5]
    assert result.compute_end.tolist() == [2.5, 3.5]
    assert result.load_end.tolist() == [1.0, 2.0]
    assert load_then_run([1.0, 1.0], Work([1.0, 1.0], slowed=2.0)).latency_s == 4.0
