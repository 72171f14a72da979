"""Costs of decode steps and of the encoder by batch: both forms, their sums in closed form, and the choice between them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.calibrate.fits import fit_grid, fit_overhead, split_totals
from simnmt.profile.batch_cost import LinearSurface, Surface, TableSurface
from simnmt.profile.blocks import EncoderBlock, StepBlock

BATCH, POSITION = (axis.ravel() for axis in np.meshgrid([1, 2, 4, 8, 16, 32, 64], [0, 8, 32, 128]))


@st.composite
def surfaces(draw: st.DrawFn) -> Surface:
    if draw(st.booleans()):
        return LinearSurface(*draw(st.tuples(*[st.floats(0.0, 1.0)] * 4)))
    batches = sorted(draw(st.sets(st.integers(1, 64), min_size=1, max_size=5)))
    lengths = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=5)))
    cells = np.random.default_rng(draw(st.integers(0, 99))).random((len(batches), len(lengths))) + 0.1
    return TableSurface(np.array(batches, float), np.array(lengths, float), cells)


@given(surfaces(), st.integers(1, 100), st.integers(0, 90), st.integers(0, 90))
def test_the_closed_sum_is_the_sum_of_the_steps(surface: Surface, batch: int, first: int, many: int) -> None:
    each_s = surface.seconds(batch, np.arange(first, first + many))
    total_s = surface.sum_s(batch, first, first + many - 1)
    assert total_s == pytest.approx(each_s.sum(), rel=1e-9, abs=1e-12)
    assert surface.at_batch(batch).sum_s()(first, first + many - 1) == pytest.approx(each_s.sum(), rel=1e-9, abs=1e-12)


@given(surfaces(), st.integers(1, 100), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_a_run_of_steps_may_be_cut_anywhere(surface: Surface, batch: int, first: int, one: int, two: int) -> None:
    """A batch server meets another sentence in the middle, and must not end at another time for it."""
    whole = surface.sum_s(batch, first, first + one + two)
    parts = surface.sum_s(batch, first, first + one - 1) + surface.sum_s(batch, first + one, first + one + two)
    assert parts == pytest.approx(whole, rel=1e-9)


@given(surfaces())
def test_columns_broadcast_and_a_run_without_steps_costs_nothing(surface: Surface) -> None:
    batch, position = np.array([[1], [7], [70]]), np.array([0, 3, 30, 99])
    grid = surface.seconds(batch, position)
    assert grid.shape == surface.sum_s(batch, 0, position).shape == (3, 4)
    assert grid[1, 2] == pytest.approx(surface.seconds(7, 30), rel=1e-12)
    assert surface.sum_s(batch, 0, position)[1, 2] == pytest.approx(surface.sum_s(7, 0, 30), rel=1e-12)
    assert (surface.sum_s(batch, position + 1, position) == 0.0).all()
    assert surface.at_batch(3).sum_s()(5, 4) == 0.0


def test_a_table_holds_its_cells_and_is_bilinear_between_them() -> None:
    table = TableSurface(np.array([1.0, 3.0]), np.array([0.0, 10.0]), np.array([[1.0, 2.0], [3.0, 8.0]]))
    assert table.seconds([1, 1, 3, 3], [0, 10, 0, 10]).tolist() == [1.0, 2.0, 3.0, 8.0]
    assert table.seconds(2, 5) == pytest.approx(3.5)
    assert table.seconds([1, 3], 4) == pytest.approx([1.4, 5.0])


def test_beyond_its_grid_a_table_grows_on_but_never_falls_and_below_it_holds() -> None:
    rising = TableSurface(np.array([2.0, 4.0]), np.array([10.0, 20.0]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert rising.seconds(1, 5) == 1.0
    assert rising.seconds(6, 30) == pytest.approx(7.0)
    falling = TableSurface(np.array([2.0, 4.0]), np.array([10.0, 20.0]), np.array([[4.0, 3.0], [2.0, 1.0]]))
    assert falling.seconds([4, 50], [20, 999]).tolist() == [1.0, 1.0]


def step_times(surface: LinearSurface, relative_sd: float = 0.0, seed: int = 1) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0.0, relative_sd, BATCH.size)
    return surface.seconds(BATCH, POSITION) * np.exp(noise)


def test_a_linear_device_is_fitted_as_linear_with_its_coefficients() -> None:
    block = fit_grid(StepBlock, BATCH, POSITION, step_times(LinearSurface(0.004, 1e-4, 2e-6, 1e-6)))
    assert block.form == "linear"
    assert block.coefficients is not None
    assert list(block.coefficients.model_dump().values()) == pytest.approx([0.004, 1e-4, 2e-6, 1e-6], rel=1e-6)
    assert block.heldout_error == pytest.approx(0.0, abs=1e-9)
    cost = block.cost
    assert cost.seconds(128, 256) == pytest.approx(0.004 + 128e-4 + 256 * 2e-6 + 128 * 256e-6)
    assert cost.outside([1, 64, 65, 8], [0, 128, 0, 129]).tolist() == [False, False, True, True]


def test_the_noise_of_the_last_cell_is_not_prolonged() -> None:
    lengths = np.array([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 63.0])
    cells = np.array([[62.0, 63.0, 61.0, 62.0, 64.0, 63.0, 62.0, 90.0]])
    table = TableSurface(np.array([64.0]), lengths, cells)
    segment = 90.0 + (200.0 - 63.0) * (90.0 - 62.0) / (63.0 - 32.0)
    assert 90.0 < table.seconds(64, 200) < (90.0 + segment) / 2.0
    singly = sum(float(table.seconds(64, length)) for length in range(60, 201))
    assert table.sum_s(64, 60, 200) == pytest.approx(singly) == pytest.approx(table.at_batch(64).sum_s()(60, 200))


def test_noise_alone_does_not_make_a_table_of_a_linear_device() -> None:
    forms = [
        fit_grid(StepBlock, BATCH, POSITION, step_times(LinearSurface(0.004, 1e-4, 2e-6, 1e-6), 0.03, seed)).form
        for seed in range(20)
    ]
    assert forms.count("linear") >= 19


def test_a_device_that_is_flat_until_it_is_full_becomes_a_table() -> None:
    """FNI-18's point: small batches cost no less. No line is flat and then steep; the held-out batch sizes say so."""
    sizes = [1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64]
    batch, position = (axis.ravel() for axis in np.meshgrid(sizes, [0, 16, 64]))
    block = fit_grid(StepBlock, batch, position, np.maximum(0.004, 0.00025 * batch))
    assert block.form == "table"
    assert block.heldout_error is not None and block.heldout_error_linear is not None
    assert block.heldout_error < 0.02 < 0.1 < block.heldout_error_linear
    cost = block.cost
    assert cost.seconds([1, 8, 16, 64], 16) == pytest.approx([0.004, 0.004, 0.004, 0.016])
    assert cost.sum_s(32, 0, 99) == pytest.approx(100 * 0.008)
    assert float(cost.seconds(64, 16) / cost.seconds(4, 16)) == pytest.approx(4.0)


# One thread of a processor whose matrix kernel changes after batch 3: 25, 46, 64 and then 40 ms.
KERNELS_MS = {1: 25, 2: 46, 3: 64, 4: 40, 8: 48, 16: 64, 32: 96, 64: 160}


def kernel_steps(judged: dict[int, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ms = KERNELS_MS | judged
    batch, position = (axis.ravel() for axis in np.meshgrid(list(ms), [0, 16, 64]))
    return batch, position, np.array([1e-3 * ms[int(size)] for size in batch]) + 1e-5 * position


def test_batch_sizes_that_only_judge_choose_the_form_and_enter_neither() -> None:
    """A table that holds all small sizes is right between them; left out in turn, its own knots would have to be guessed."""
    judged = {7: 46.0, 10: 52.0, 20: 72.0, 40: 112.0}
    block = fit_grid(StepBlock, *kernel_steps(judged), judged_batches=judged)
    assert (block.form, block.batch, block.judged_batch) == ("table", tuple(KERNELS_MS), (7, 10, 20, 40))
    assert block.heldout_how == "batch sizes 7, 10, 20, 40, measured only to judge"
    assert block.heldout_error == pytest.approx(0.0, abs=1e-9)
    assert block.heldout_error_linear is not None and block.heldout_error_linear > 0.01
    in_turn = fit_grid(StepBlock, *kernel_steps({}))
    assert in_turn.judged_batch == () and in_turn.heldout_error is not None and in_turn.heldout_error > 0.1
    # Wrong by as much as one likes, they change nothing but the error.
    lied = fit_grid(StepBlock, *kernel_steps({size: 2.0 * ms for size, ms in judged.items()}), judged_batches=judged)
    assert (lied.seconds, lied.coefficients) == (block.seconds, block.coefficients) == (in_turn.seconds, in_turn.coefficients)
    assert lied.heldout_error_table == pytest.approx(0.5, abs=0.01)


def test_judges_at_large_batches_do_not_acquit_a_line_that_is_wrong_at_small_ones() -> None:
    judged = {7: 46.0 * 1.04, 10: 52.0 * 0.96, 20: 72.0 * 1.04, 40: 112.0 * 0.96}
    block = fit_grid(StepBlock, *kernel_steps(judged), judged_batches=judged)
    assert block.heldout_error_table is not None and block.heldout_error_linear is not None
    assert block.heldout_error_table > 0.8 * block.heldout_error_linear, "the judges alone would keep the line"
    assert block.fitted_error_linear is not None and block.fitted_error_linear > 0.1
    assert block.form == "table"


def test_noise_in_the_judges_does_not_acquit_a_line_that_is_wrong_at_one_batch_size() -> None:
    judged = {7: 46.0 * 1.12, 10: 52.0 * 0.88, 20: 72.0 * 1.12, 40: 112.0 * 0.88}
    block = fit_grid(StepBlock, *kernel_steps(judged), judged_batches=judged)
    assert block.heldout_error_table is not None and block.heldout_error_linear is not None
    assert block.fitted_error_linear is not None
    average = max(block.heldout_error_linear, block.fitted_error_linear)
    assert block.heldout_error_table > 0.8 * average, "on the average the line would be kept"
    assert abs(block.coefficients.s_fixed + block.coefficients.s_per_row - 0.025) > 0.1 * 0.025
    assert block.form == "table"


def test_a_reader_can_redo_the_judgement_of_both_forms_on_the_same_cells() -> None:
    judged = {7: 47.0, 10: 51.0, 20: 75.0, 40: 109.0}
    block = fit_grid(StepBlock, *kernel_steps(judged), judged_batches=judged)
    batch, position, seconds = np.array(block.judged_cells).T
    assert batch.size == 12
    for form, error in (("table", block.heldout_error_table), ("linear", block.heldout_error_linear)):
        cost = block.model_copy(update={"form": form}).cost
        assert np.abs(cost.seconds(batch, position) / seconds - 1.0).mean() == pytest.approx(error)


def test_a_linear_device_stays_linear_before_its_judges() -> None:
    known = ~np.isin(BATCH, [2, 16])
    time_s = step_times(LinearSurface(0.004, 1e-4, 2e-6, 1e-6), 0.02)
    block = fit_grid(StepBlock, BATCH, POSITION, time_s, judged_batches=[2, 16])
    assert (block.form, block.judged_batch) == ("linear", (2, 16))
    assert block.coefficients == fit_grid(StepBlock, BATCH[known], POSITION[known], time_s[known]).coefficients


def test_the_first_step_is_a_position_like_others() -> None:
    """It starts from the encoder's output and may take longer than those after it."""
    batch, position = (axis.ravel() for axis in np.meshgrid([1, 2, 4, 8], [0, 1, 8, 63]))
    block = fit_grid(StepBlock, batch, position, np.where(position == 0, 0.009, 0.003) + 0.0001 * batch, notes=("how",))
    assert (block.position, block.notes, block.left_out) == ((0, 1, 8, 63), ("how",), ())
    cost = block.model_copy(update={"form": "table"}).cost
    assert cost.sum_s(2, 0, 8) == pytest.approx(0.0092 + 8 * 0.0032)
    assert cost.outside(2, [0, 63, 64]).tolist() == [False, False, True]


def test_repeats_count_by_their_quantile() -> None:
    time_s = step_times(LinearSurface(0.004, 1e-4, 2e-6, 1e-6))
    block = fit_grid(
        StepBlock, *(np.tile(column, 3) for column in (BATCH, POSITION)), np.concatenate([time_s, 1.1 * time_s, 5 * time_s])
    )
    assert block.repeats == 3
    assert block.coefficients is not None
    assert block.coefficients.s_fixed == pytest.approx(0.0044)


def test_a_batch_that_ran_out_of_memory_halfway_helps_the_line_and_stays_out_of_the_table() -> None:
    time_s = step_times(LinearSurface(0.004, 1e-4, 2e-6, 1e-6))
    known = (BATCH < 64) | (POSITION < 32)
    block = fit_grid(StepBlock, BATCH[known], POSITION[known], time_s[known], left_out=("batch 64 at 32: out of memory",))
    assert (block.form, block.batch[-1], block.seconds) == ("linear", 64, None)
    flat = fit_grid(StepBlock, BATCH[known], POSITION[known], np.maximum(0.004, 0.0002 * BATCH)[known])
    assert (flat.form, flat.batch[-1]) == ("table", 32)
    assert flat.seconds is not None and len(flat.seconds) == 6


@pytest.mark.parametrize("batches", [[4], [1, 4]])
def test_few_batch_sizes_are_judged_on_positions_and_do_not_determine_a_slope(batches: list[int]) -> None:
    batch, position = (axis.ravel() for axis in np.meshgrid(batches, [0, 10, 20, 30]))
    block = fit_grid(StepBlock, batch, position, 0.001 + 1e-5 * position + 0.0001 * batch)
    assert block.heldout_error == pytest.approx(0.0, abs=1e-9)
    assert block.heldout_how is not None and "lengths left out" in block.heldout_how
    assert block.cost.seconds(4, 15) == pytest.approx(0.00155)
    if len(batches) == 1:
        assert block.cost.seconds(8, 15) == pytest.approx(0.00155), "nothing is known of other batches"


def test_one_cell_is_a_cost_without_an_error() -> None:
    block = fit_grid(StepBlock, [2], [5], [0.01])
    assert block.heldout_error is None
    assert block.cost.seconds(2, 5) == pytest.approx(0.01)


def test_the_encoder_is_fitted_alike() -> None:
    block = fit_grid(EncoderBlock, BATCH, POSITION + 1, 0.001 + 1e-5 * BATCH * (POSITION + 1))
    assert fit_grid(EncoderBlock, BATCH, POSITION, 0.001 + 1e-5 * BATCH, judged_batches=[4]).judged_batch == (4,)
    cost = block.cost
    assert cost.seconds(10, 20) == pytest.approx(0.003)
    assert cost.outside([10, 65], [20, 20]).tolist() == [False, True]


def test_a_block_computes_by_its_form() -> None:
    both = {
        "kind": "synthetic",
        "batch": (1, 2),
        "position": (0, 4),
        "seconds": ((1.0, 2.0), (3.0, 4.0)),
        "coefficients": {"s_fixed": 9.0, "s_per_row": 0.0, "s_per_position": 0.0, "s_per_row_position": 0.0},
    }
    assert StepBlock.model_validate(both | {"form": "table"}).cost.seconds(2, 4) == 4.0
    assert StepBlock.model_validate(both | {"form": "linear"}).cost.seconds(2, 4) == 9.0


LENGTHS = np.array([1, 2, 8, 32, 128])


def totals(fixed: float, first: float, per_position: float, tgt_len: np.ndarray) -> np.ndarray:
    """Step after step, as a device takes them."""
    return np.array([fixed + sum(first + per_position * at for at in range(length)) for length in tgt_len.tolist()])


@pytest.mark.parametrize("parts", [(0.002, 0.003, 1e-5), (0.0, 0.003, 1e-5), (0.002, 0.003, 0.0), (0.002, 0.0, 1e-5)])
def test_the_parts_of_a_whole_translation_are_found(parts: tuple[float, float, float]) -> None:
    assert split_totals(LENGTHS, totals(*parts, LENGTHS)) == pytest.approx(parts, rel=1e-9, abs=1e-12)


def test_noise_moves_the_parts_little_and_never_below_nothing() -> None:
    tgt_len = np.repeat(LENGTHS, 20)
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(1.0, 0.03, tgt_len.size)
        fixed, first, per_position = split_totals(tgt_len, totals(0.004, 0.003, 1e-5, tgt_len) * noise)
        assert (fixed, first, per_position) == pytest.approx((0.004, 0.003, 1e-5), rel=0.15)
        assert min(split_totals(tgt_len, totals(0.0, 0.003, 0.0, tgt_len) * noise)) >= 0.0


def test_two_lengths_give_equal_steps() -> None:
    assert split_totals([2, 10], [0.012, 0.036]) == pytest.approx((0.006, 0.003, 0.0))


SIZES = np.array([1, 2, 4, 8, 16, 32, 64, 128])


def test_both_parts_are_found() -> None:
    found = fit_overhead(SIZES, 0.0003 + 2e-5 * SIZES)
    assert (found.s_fixed, found.s_per_sentence) == (pytest.approx(0.0003), pytest.approx(2e-5))
    assert found.error == pytest.approx(0.0, abs=1e-9)


def test_neither_part_is_negative() -> None:
    """A cost that falls with the size is a fixed one, one from the origin grows alone."""
    falling = fit_overhead(SIZES, 0.001 / SIZES**0.1)
    assert falling.s_per_sentence == 0.0 < falling.s_fixed
    steep = fit_overhead(SIZES, 1e-5 * (SIZES - 0.5))
    assert steep.s_fixed == 0.0 < steep.s_per_sentence


def test_small_sizes_count_as_much_as_large_ones() -> None:
    """Noise of 5 % of the largest is four times the smallest: it must not decide over that."""
    noisy = 0.0003 + 2e-5 * SIZES
    noisy[-1] *= 1.05
    assert fit_overhead(SIZES, noisy).s_fixed == pytest.approx(0.0003, rel=0.05)


def test_sizes_that_judge_do_not_fit() -> None:
    straight = 0.0003 + 2e-5 * SIZES
    bent = np.where(SIZES == 8, 2 * straight, straight)
    found = fit_overhead(SIZES, bent, judged=(8,))
    assert found.s_fixed == pytest.approx(0.0003)
    assert (found.error, found.how) == (pytest.approx(0.5), "batch sizes 8, never fitted")


def test_what_drowns_in_the_clocks_noise_costs_nothing() -> None:
    found = fit_overhead([1, 2, 4], [-1e-7, 0.0, 1e-7])
    assert (found.s_fixed, found.s_per_sentence, found.error) == (0.0, 0.0, None)


def test_one_size_alone_does_not_determine_growth() -> None:
    found = fit_overhead([1], [0.0004])
    assert (found.s_fixed, found.s_per_sentence) == (pytest.approx(0.0004), 0.0)
