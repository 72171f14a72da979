"""Column sets and their union over a step's clusters (FVP-06)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from simnmt.kernels.columns import ColumnSets
from simnmt.kernels.errors import KernelError
from tests.campaigns.harness import SCALE
from tests.kernels.implementations import each_implementation

pytestmark = each_implementation


def int32(*columns: int) -> Tensor:
    return torch.tensor(columns, dtype=torch.int32)


def sets_of(*sets: list[int], vocab: int) -> ColumnSets:
    starts = torch.tensor([0, *(len(columns) for columns in sets)]).cumsum(0)
    return ColumnSets(starts, int32(*(column for columns in sets for column in columns)), vocab)


EXAMPLE = ([2, 4, 6], [2, 8, 9], [1, 3])


def test_worked_example_of_fvp_06() -> None:
    sets = sets_of(*EXAMPLE, vocab=10)
    union = sets.union(torch.tensor([2, 0, 1, 0]))
    assert union.dtype == torch.int32
    assert union.tolist() == [1, 2, 3, 4, 6, 8, 9]
    assert [int(column in union.tolist()) for column in range(10)] == [0, 1, 1, 1, 1, 0, 1, 0, 1, 1]


@settings(max_examples=round(20 * SCALE))
@given(st.data())
def test_the_union_equals_pythons_and_never_shrinks_when_a_row_is_added(data: st.DataObject) -> None:
    vocab = data.draw(st.integers(1, 200))
    column = st.integers(0, vocab - 1)
    drawn = data.draw(st.lists(st.sets(column, min_size=1).map(sorted), min_size=1, max_size=6))
    sets = sets_of(*drawn, vocab=vocab)
    rows = data.draw(st.lists(st.integers(0, len(drawn) - 1), max_size=12))
    before = 0
    for end in range(len(rows) + 1):
        union = sets.union(torch.tensor(rows[:end], dtype=torch.int64)).tolist()
        assert union == sorted(set().union(*(drawn[row] for row in rows[:end])))
        assert len(union) >= before
        before = len(union)


def test_sets_made_in_inference_mode_work_outside_of_it() -> None:
    """What is made in torch's inference mode cannot be written to elsewhere: the flags of the sets were."""
    with torch.inference_mode():
        sets = sets_of(*EXAMPLE, vocab=10)
    for _ in range(2):
        assert sets.union(torch.tensor([0, 2])).tolist() == [1, 2, 3, 4, 6]


def test_the_union_of_one_set_is_its_slice_without_a_copy() -> None:
    sets = sets_of(*EXAMPLE, vocab=10)
    union = sets.union(torch.tensor([1, 1, 1]))
    assert union.tolist() == sets.of(1).tolist() == [2, 8, 9]
    assert union.data_ptr() == sets.columns[3:].data_ptr()


def test_threads_that_share_sets_get_correct_unions() -> None:
    """The native call lets other threads run: with flags of one for all, some unions held the columns of others."""
    vocab, size = 200_000, 20_000
    drawn = torch.rand(8, vocab).topk(size).indices.sort(1).values
    sets = ColumnSets(torch.arange(9) * size, drawn.flatten().int(), vocab)

    def union(seed: int) -> bool:
        rows = torch.randint(8, (3,), generator=torch.Generator().manual_seed(seed))
        return torch.equal(sets.union(rows), drawn[rows].unique().int())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(union, range(100)))


@pytest.mark.parametrize(
    ("starts", "columns"),
    [
        ([0, 2, 2, 3], int32(1, 2, 3)),
        ([0, 2], int32(-1, 4)),
        ([0, 2], int32(4, 10)),
        ([0, 1, 3], int32(1, 4, 4)),
        ([0, 2], int32(1, 2, 3)),
        ([0, 2], torch.tensor([1, 2])),
    ],
)
def test_invalid_sets_are_refused(starts: list[int], columns: Tensor) -> None:
    with pytest.raises(KernelError):
        ColumnSets(torch.tensor(starts), columns, 10)


def test_sets_that_fall_from_one_to_the_next_are_accepted() -> None:
    assert len(ColumnSets(torch.tensor([0, 2, 3]), int32(5, 7, 1), 10)) == 2
