"""Statistics of a validation by runs of known truth: errors, rules, intervals, equivalence, ranking and bars."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.calibrate import processor_use
from simnmt.live import validation
from simnmt.live.bars import BARS, Bar, judge_bars
from simnmt.live.cell_comparison import Cell, Rules, compare_cell, equivalent, group_verdicts, mean_interval, reason_void
from simnmt.live.cell_run import References
from simnmt.live.drawn_paces import BoxPaces, drawn_paces, reference_times_s
from simnmt.live.matched_simulation import Simulations
from tests.live.made_runs import live_run, result, simulated_run


def test_errors_are_simulated_over_live_means_and_their_parts_add_up() -> None:
    cell = result([0.1, 0.1, 0.1], 0.11, structural_s=0.098)
    assert cell.error_mean == pytest.approx(0.1)
    assert cell.error_p95 == pytest.approx(0.1)
    assert cell.structural_error_mean == pytest.approx(-0.02)
    assert sum(cell.attribution_s.values()) == pytest.approx(0.01)
    assert cell.attribution_s["execution_s"] == pytest.approx(0.005)
    assert cell.document()["offloaded_share_error"] == 0.0


def test_a_wrong_queue_shows_in_the_queue_alone() -> None:
    one = Simulations(simulated_run(0.1), [simulated_run(0.1, execution_share=0.6)], [simulated_run(0.1)], [simulated_run(0.1)])
    cell = compare_cell(Cell("edge", "alone", 0.2, "constant"), [live_run(0.1)], [one], Rules())
    assert cell.error_mean == pytest.approx(0.0, abs=1e-12)
    assert cell.attribution_s["execution_s"] == pytest.approx(0.01)
    assert cell.attribution_s["queue_s"] == pytest.approx(-0.01)


def test_the_interval_of_a_mean_holds_it_ninety_times_of_a_hundred() -> None:
    random = np.random.default_rng(5)
    inside = 0
    for _ in range(400):
        interval = mean_interval(random.normal(1.0, 0.1, 3).tolist())
        assert interval is not None
        inside += interval[0] <= 1.0 <= interval[1]
    assert 0.86 <= inside / 400 <= 0.94


def test_one_repeat_has_no_interval_and_no_spread() -> None:
    cell = result([0.1], 0.1)
    assert (cell.live_interval_s, cell.spread_mean, cell.equivalent) == (None, None, None)


def test_runs_are_void_by_other_programs_unsteady_references_and_lost_requests() -> None:
    assert reason_void(live_run(0.1), Rules()) == ""
    assert "0.25 processors" in reason_void(live_run(0.1, others_cpus=0.25), Rules())
    assert reason_void(live_run(0.1, others_cpus=None), Rules()) == ""
    unsteady = np.array([0.01] * 15 + [0.02] * 5)
    assert "gateway were unsteady" in reason_void(live_run(0.1, reference_s=unsteady), Rules())
    assert "2.5 % of the requests" in reason_void(live_run(0.1, refused=1), Rules())
    assert reason_void(live_run(0.1, others_cpus=0.25), Rules(others_cpus=0.3)) == ""


def test_disturbed_repeats_are_left_out_and_a_cell_without_others_is_void() -> None:
    one = Simulations(simulated_run(0.1), [simulated_run(0.1)], [simulated_run(0.1)], [simulated_run(0.1)])
    cell = Cell("edge", "alone", 0.2, "constant")
    kept = compare_cell(cell, [live_run(0.1), live_run(9.0, others_cpus=1.0), live_run(0.12)], [one] * 3, Rules())
    assert kept.live.mean_s == pytest.approx(0.11)
    assert (kept.void, len(kept.void_repeats), len(kept.live_repeats)) == (False, 1, 2)
    void = compare_cell(cell, [live_run(9.0, others_cpus=1.0)], [one], Rules())
    assert void.void and void.live.mean_s == pytest.approx(9.0)


def test_a_single_changed_decision_shows_even_in_a_void_repeat() -> None:
    one = Simulations(simulated_run(0.1), [simulated_run(0.1)], [simulated_run(0.1)], [simulated_run(0.1)])
    runs = [live_run(0.1), live_run(0.1, others_cpus=1.0, identical=False)]
    assert not compare_cell(Cell("edge", "alone", 0.2, "x"), runs, [one, one], Rules()).decisions_identical


def test_equivalence_needs_an_interval_within_the_margin_and_not_the_absence_of_a_difference() -> None:
    live = [0.100, 0.101, 0.099, 0.100, 0.100]
    assert equivalent(live, live, 0.05) is True
    assert equivalent([1.03 * one for one in live], live, 0.05) is True
    assert equivalent([1.06 * one for one in live], live, 0.05) is False
    # Ratios of 0.8 to 1.25 about 1: no difference shows, and nothing is equivalent.
    assert equivalent([0.08, 0.10, 0.125], [0.1, 0.1, 0.1], 0.05) is False
    assert equivalent([0.1, 0.1], [0.1, 0.1], 0.05) is None


@given(shift=st.floats(0.051, 0.5), sign=st.sampled_from((-1.0, 1.0)), spread=st.floats(0.0, 0.2))
def test_a_mean_ratio_beyond_the_margin_is_never_equivalent(shift: float, sign: float, spread: float) -> None:
    ratios = (1.0 + sign * shift) * np.array([1.0 / (1.0 + spread), 1.0, 1.0 + spread])
    assert equivalent(ratios.tolist(), [1.0, 1.0, 1.0], 0.05) is False


def test_a_prediction_interval_covers_the_live_mean_within_its_draws_alone() -> None:
    draws = np.linspace(0.09, 0.11, 20).tolist()
    assert result([0.1, 0.101], 0.1, predicted_s=draws).covered
    assert not result([0.13, 0.131], 0.1, predicted_s=draws).covered
    # The ends of 20 draws are about the first and the last.
    assert result([0.1, 0.1], 0.1, predicted_s=draws).interval_s == pytest.approx((0.09, 0.11), abs=2e-3)


def test_a_ranking_is_inverted_only_where_both_intervals_are_apart() -> None:
    narrow, wide = [0.100, 0.101, 0.099], [0.08, 0.12, 0.10]
    slower = [0.150, 0.151, 0.149]
    edge_wrong = result(narrow, 0.15, policy="edge"), result(slower, 0.1, policy="cloud")
    (verdict,) = group_verdicts(edge_wrong)
    assert verdict.inverted == ("edge, cloud",)
    assert (verdict.best_live, verdict.best_simulated) == ("edge", "cloud")
    assert verdict.best_same_or_indistinguishable is False
    overlapping_live = result(wide, 0.15, policy="edge"), result([0.11, 0.10, 0.12], 0.1, policy="cloud")
    (verdict,) = group_verdicts(overlapping_live)
    assert verdict.inverted == () and verdict.best_same_or_indistinguishable is True
    broad = (0.05, 0.1, 0.15, 0.2)
    overlapping_simulated = (
        result(narrow, 0.15, policy="edge", predicted_s=broad * 5),
        result(slower, 0.1, policy="cloud", predicted_s=broad * 5),
    )
    assert group_verdicts(overlapping_simulated)[0].inverted == ()
    once = result([0.1], 0.15, policy="edge"), result([0.15], 0.1, policy="cloud")
    (verdict,) = group_verdicts(once)
    assert verdict.inverted == () and verdict.best_same_or_indistinguishable is None


def test_void_cells_have_no_place_in_a_ranking() -> None:
    cells = [result([0.1] * 3, 0.1, policy="edge"), result([0.01] * 3, 0.2, policy="cloud", others_cpus=1.0)]
    assert group_verdicts(cells)[0].best_live == "edge"
    assert group_verdicts(cells[1:]) == []


def test_a_gain_is_that_over_the_better_single_device_and_how_much_of_it_is_realised() -> None:
    cells = [
        result([0.2, 0.2], 0.2, policy="edge"),
        result([0.1, 0.1], 0.1, policy="cloud"),
        result([0.085, 0.085], 0.08, policy="cnmt"),
    ]
    (verdict,) = group_verdicts(cells, {"edge", "cloud"})
    assert verdict.gain_simulated == pytest.approx(0.2)
    assert verdict.gain_live == pytest.approx(0.15)
    assert verdict.gain_realised == pytest.approx(0.75)
    small = [cells[1], result([0.1, 0.1], 0.097, policy="cnmt")]
    assert group_verdicts(small, {"cloud"})[0].gain_realised is None
    assert group_verdicts(cells[:2], {"edge", "cloud"})[0].gain_simulated is None


def bar(name: str) -> Bar:
    return next(one for one in BARS if one.name.startswith(name))


def test_bars_are_met_by_the_figure_and_never_by_its_rounding() -> None:
    cells = [result([0.1] * 3, 0.1, structural_s=0.1 * 1.020001)]
    judged = {one.bar.name: one for one in judge_bars(cells, group_verdicts(cells))}
    missed = judged["structural error of the mean, load to 0.6, median"]
    assert missed.met is False
    assert missed.figure_text == "2.01"
    assert missed.bound_text == "at most 2 %"
    kept = judged["cells that are not void"]
    assert (kept.met, kept.figure_text) == (True, "100.00")


def test_structural_bars_count_cells_of_three_repeats_and_of_their_loads_alone() -> None:
    two = result([0.1] * 2, 0.1, structural_s=0.15)
    high = result([0.1] * 3, 0.1, structural_s=0.15, load=0.8)
    beyond = result([0.1] * 3, 0.1, structural_s=0.15, load=1.1)
    judged = {one.bar.name: one for one in judge_bars([two, high, beyond], [])}
    assert judged["structural error of the mean, load to 0.6, worst"].met is None
    at_high_load = judged["structural error of the mean, load 0.6 to 0.8, median"]
    assert (at_high_load.judged, at_high_load.met) == (1, False)


def test_bars_without_anything_to_judge_are_neither_met_nor_missed() -> None:
    cells = [result([0.1], 0.1, others_cpus=1.0)]
    judged = {one.bar.name: one for one in judge_bars(cells, [])}
    coverage = judged["coverage of the 90 % prediction intervals"]
    assert (coverage.met, coverage.figure_text) == (None, "-")
    assert judged["cells that are not void"].met is False
    assert judged["cells whose decisions are the same when replayed"].met is True


def test_full_coverage_is_as_much_a_fault_as_little() -> None:
    covered = [result([0.1] * 2, 0.1, link=str(number)) for number in range(20)]
    assert {one.bar.name: one.met for one in judge_bars(covered, [])}["coverage of the 90 % prediction intervals"] is False
    outside = [result([0.2] * 2, 0.1, link=f"far {number}") for number in range(2)]
    assert {one.bar.name: one.met for one in judge_bars([*covered, *outside], [])}[
        "coverage of the 90 % prediction intervals"
    ] is True


USUAL_S = {"gateway": 0.01, "cloud": 0.01}


def test_the_pace_of_a_run_is_that_of_its_reference_executions() -> None:
    run = live_run(0.1, reference_s=np.full(4, 0.012))
    assert BoxPaces(USUAL_S, [run]).of(run) == pytest.approx([1.2, 1.0])
    nothing = live_run(0.1, reference_s=np.empty(0))
    assert BoxPaces(USUAL_S, [nothing]).of(nothing) == pytest.approx([1.0, 1.0])


def test_runs_shortly_before_and_after_count_for_a_pace_and_later_ones_do_not() -> None:
    slow, usual, much_later = (live_run(0.1, reference_s=np.full(20, 0.01 * pace)) for pace in (1.2, 1.0, 3.0))
    runs = [slow, replace(usual, begun_s=slow.span_s - 2.0), replace(much_later, begun_s=60.0)]
    assert BoxPaces(USUAL_S, runs).of(runs[0]) == pytest.approx([1.1, 1.0])


def test_the_pace_at_a_moment_is_that_of_the_reference_executions_about_it() -> None:
    execution_s = np.where(np.arange(100) < 50, 0.01, 0.02)
    about = References(0.2 * np.arange(100), execution_s, execution_s)
    moments_s = np.array([-9.0, 5.0, 10.0, 15.0, 40.0])
    assert reference_times_s(about, moments_s) == pytest.approx([0.01, 0.01, 0.015, 0.02, 0.02], rel=0.05)
    assert reference_times_s(References(*np.empty((3, 0))), moments_s).tolist() == [1.0] * 5
    few = References(np.array([0.0, 30.0]), np.array([0.01, 0.03]), np.array([0.01, 0.03]))
    assert reference_times_s(few, np.array([0.0])) == pytest.approx([0.02]), "too few near it: the nearest ones"


def test_a_few_disturbed_reference_executions_do_not_change_a_pace() -> None:
    disturbed = np.where(np.arange(20) < 2, 0.5, 0.012)
    run = live_run(0.1, reference_s=disturbed)
    assert BoxPaces(USUAL_S, [run]).of(run) == pytest.approx([1.2, 1.0])


def test_paces_are_drawn_from_the_given_runs_and_a_level_holds_for_all_repeats() -> None:
    levels = np.array([[1.0, 1.0], [1.1, 0.9], [0.8, 1.2]] * 10)
    paces = np.array([[1.0, 2.0], [1.5, 1.0]])
    first, second = drawn_paces(levels, paces, 1, 2)
    again, _, _ = drawn_paces(levels, paces, 1, 3)
    assert np.array_equal(first, again)
    for factors in (first, second):
        pairs = {tuple(pair) for pair in np.round(factors / levels, 9).tolist()}
        assert pairs == {(1.0, 2.0), (1.5, 1.0)}
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(("others_cpus", "warnings"), [(0.12, 1), (0.05, 0), (None, 0)])
def test_a_validation_says_before_it_begins_that_its_cells_would_be_void(
    monkeypatch: pytest.MonkeyPatch, others_cpus: float | None, warnings: int
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(processor_use, "others_cpus", lambda: others_cpus)
    validation._warn_if_busy(Rules(), lines.append)
    assert len(lines) == warnings
    assert all("other programs use 0.12 processors: a cell in which they use more than 0.1 is void" in line for line in lines)
