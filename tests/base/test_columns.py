"""Columns read as arrays do; long ones take no memory, and outlive the names of their files."""

from __future__ import annotations

import copy
import errno
import multiprocessing
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.base import columns, random_streams
from simnmt.base.columns import (
    Column,
    ColumnFile,
    Computed,
    Reordered,
    assemble,
    collect_columns,
    kept_columns,
    mean_of,
    numbers_below,
)
from simnmt.base.random_streams import blocks_of

SMALL, LARGE = 1_000, 300_000
"""Numbers of 8 bytes: in memory, and in a file."""


def numbers(size: int, dtype: str = "f8") -> np.ndarray:
    return (np.random.default_rng(1).random(size) * 100).astype(dtype)


def column_of(folder: Path, values: np.ndarray) -> Column:
    return collect_columns(folder, [{"values": values}])["values"]


@pytest.fixture(params=[SMALL, LARGE])
def size(request: pytest.FixtureRequest) -> int:
    values_read: int = request.param
    return values_read


@pytest.mark.parametrize("dtype", ["f8", "i8", "i4", "i2", "i1"])
def test_a_column_reads_as_the_array_that_was_written(tmp_path: Path, size: int, dtype: str) -> None:
    values = numbers(size, dtype)
    column = column_of(tmp_path, values)
    assert len(column) == size
    picked = np.array([size - 1, 0, 17, 17])
    for rows in (slice(None), slice(3, 9), slice(size - 5, size + 5), slice(4, 4), picked, np.empty(0, np.int64)):
        values_read = column[rows]
        assert values_read.dtype == values.dtype
        np.testing.assert_array_equal(values_read, values[rows])
    np.testing.assert_array_equal(np.asarray(column), values)
    assert np.asarray(column, np.float32).dtype == np.float32


def test_what_is_read_is_ones_own(tmp_path: Path, size: int) -> None:
    column = column_of(tmp_path, numbers(size))
    mine = column[:10]
    mine[:] = -1.0
    assert (column[:10] >= 0.0).all()


def test_blocks_are_joined_in_their_order(tmp_path: Path) -> None:
    blocks = [{"a": np.arange(start, start + 3), "b": np.full(3, start / 2)} for start in range(0, 30, 3)]
    values_read = collect_columns(tmp_path, iter(blocks))
    assert list(values_read) == ["a", "b"]
    assert values_read["a"][:].tolist() == list(range(30))
    assert values_read["b"][:].tolist() == [start / 2 for start in range(0, 30, 3) for _ in range(3)]


def test_what_lies_scattered_in_memory_is_written_in_its_order(tmp_path: Path) -> None:
    table = numbers(600).reshape(200, 3)
    assert column_of(tmp_path, table[:, 1])[:].tolist() == table[:, 1].tolist()
    assert column_of(tmp_path, np.broadcast_to(0.5, (7,)))[:].tolist() == [0.5] * 7


class TestWithoutAName:
    """Files are removed while they are still read: so nothing is left of a run, whatever ends it."""

    @pytest.fixture
    def nameless(self, tmp_path: Path, size: int) -> Column:
        column = column_of(tmp_path / "gone", numbers(size))
        shutil.rmtree(tmp_path / "gone", ignore_errors=True)
        return column

    def test_it_is_still_read(self, nameless: Column, size: int) -> None:
        np.testing.assert_array_equal(nameless[:], numbers(size))

    @pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda column: pickle.loads(pickle.dumps(column))])
    def test_it_is_sent_as_an_array(self, nameless: Column, size: int, duplicate: Callable[[Any], Any]) -> None:
        values_read = duplicate(nameless)
        assert isinstance(values_read, np.ndarray)
        np.testing.assert_array_equal(values_read, numbers(size))


def test_a_column_is_sent_by_the_name_of_its_file(tmp_path: Path) -> None:
    """Another process opens the file; ten million numbers need not pass a pipe."""
    column = column_of(tmp_path, numbers(LARGE))
    sent = pickle.dumps(column)
    assert len(sent) < 1_000
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(len, (column,)) == LARGE
        back = pool.apply(copy.copy, (column,))
    shutil.rmtree(tmp_path)
    assert isinstance(back, Column)
    np.testing.assert_array_equal(back[:], numbers(LARGE))


def resident_bytes() -> int:
    """Memory of this process, files that it has mapped included."""
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(fields["VmRSS"].split()[0])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system has no /proc/self/status")
def test_what_was_read_does_not_stay_in_memory(tmp_path: Path) -> None:
    """80 MB are read block by block; mapped as a whole they would count until the end."""
    column = collect_columns(tmp_path, ({"values": np.full(1_000_000, float(block))} for block in range(10)))["values"]
    before, total = resident_bytes(), 0.0
    for rows in blocks_of(slice(0, len(column))):
        total += column[rows].sum()
    assert total == 45e6
    assert resident_bytes() - before < 20e6


def test_a_full_disk_raises_its_error(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("the system has no /dev/full")
    (tmp_path / "values").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        column_of(tmp_path, numbers(LARGE))


def test_short_columns_leave_no_files(tmp_path: Path) -> None:
    blocks = ({"short": np.zeros(SMALL, "i1"), "long": numbers(SMALL)} for _ in range(100))
    written = collect_columns(tmp_path / "new", blocks)
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["long"]
    assert written["short"][:].tolist() == [0] * 100 * SMALL
    np.testing.assert_array_equal(written["long"][:], np.tile(numbers(SMALL), 100))


@given(st.data())
def test_a_reordered_column_is_the_column_at_that_order(data: st.DataObject) -> None:
    values = np.arange(40) * 1.5
    order = np.array(data.draw(st.permutations(range(40))))
    start, stop = sorted((data.draw(st.integers(0, 40)), data.draw(st.integers(0, 40))))
    reordered = Reordered(values, order)
    assert len(reordered) == 40
    assert reordered[start:stop].tolist() == values[order][start:stop].tolist()
    twice = Reordered(reordered, order)
    assert twice[start:stop].tolist() == values[order][order][start:stop].tolist()


@pytest.mark.parametrize("block", [1, 3, 100])
@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 10), (4, 5), (7, 20)])
def test_assembled_is_what_the_parts_are_together(monkeypatch: pytest.MonkeyPatch, block: int, start: int, stop: int) -> None:
    monkeypatch.setattr(random_streams, "BLOCK", block)
    asked: list[int] = []

    def part(rows: slice) -> np.ndarray:
        asked.append(rows.stop - rows.start)
        return np.arange(rows.start, rows.stop, dtype=np.int16)

    values = assemble(part, slice(start, stop))
    assert values.tolist() == list(range(start, stop))
    assert values.dtype == np.int16 or start == stop
    assert max(asked, default=0) <= block


@given(st.lists(st.integers(0, 20), max_size=60), st.lists(st.floats(-1.0, 21.0), max_size=9), st.sampled_from([1, 7, 100]))
def test_numbers_below_are_those_of_a_count(values: list[int], limits: list[float], block: int) -> None:
    ascending = np.array(sorted(values), float)
    counted = [sum(value < limit for value in values) for limit in limits]
    assert numbers_below(ascending, np.array(limits)).tolist() == counted
    with tempfile.TemporaryDirectory() as folder:
        parts = ({"values": ascending[start : start + block]} for start in range(0, max(len(values), 1), block))
        assert numbers_below(collect_columns(Path(folder), parts)["values"], np.array(limits)).tolist() == counted


def test_a_computed_column_reads_as_the_array_of_its_numbers() -> None:
    column = Computed(40, lambda rows: rows * 0.5)
    assert len(column) == 40
    for rows in (slice(None), slice(3, 9), slice(1, 40, 7), np.array([39, 0, 4])):
        np.testing.assert_array_equal(column[rows], (np.arange(40) * 0.5)[rows])


def test_the_mean_of_a_column_in_a_file_is_that_of_its_numbers(tmp_path: Path, size: int) -> None:
    assert mean_of(column_of(tmp_path, numbers(size))) == pytest.approx(numbers(size).mean(), rel=1e-14)


@pytest.mark.parametrize("value", [0, -1])
def test_a_column_that_is_written_in_place_reads_as_it_was_left(tmp_path: Path, size: int, value: int) -> None:
    file = ColumnFile(tmp_path / "written", np.int8, size, value)
    file.array[3:9] = 1
    file.release()
    column = file.column()
    expected = np.full(size, value, np.int8)
    expected[3:9] = 1
    np.testing.assert_array_equal(column[:], expected)
    np.testing.assert_array_equal(file.column(np.bool_)[:], expected.view(np.bool_))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system has no /proc/self/status")
def test_what_was_written_in_place_does_not_stay_in_memory(tmp_path: Path) -> None:
    """80 MB are written block by block."""
    before = resident_bytes()
    file = ColumnFile(tmp_path / "written", np.float64, 10_000_000, 0.5)
    assert resident_bytes() - before < 20e6, "filled block by block too"
    for rows in blocks_of(slice(0, 10_000_000)):
        file.array[rows] = 1.0
        file.release()
    assert resident_bytes() - before < 20e6
    assert mean_of(file.column()) == 1.0


def test_a_column_without_room_on_its_disk_is_refused_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(file: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert (ColumnFile(tmp_path / "whole", np.float64, 1_000_000), (tmp_path / "whole").stat().st_blocks)[1] * 512 >= 8_000_000
    monkeypatch.setattr(os, "posix_fallocate", is_full)
    with pytest.raises(OSError, match="No space left on device"):
        ColumnFile(tmp_path / "written", np.float64, 1_000)


@pytest.mark.parametrize("size", [0, 5, 30])
def test_kept_columns_are_arrays_until_they_are_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int) -> None:
    monkeypatch.setattr(columns, "FILES_FROM_ROWS", 30)
    monkeypatch.setattr(random_streams, "BLOCK", 7)
    kept = kept_columns(tmp_path, size, lambda rows: {"a": np.arange(rows.start, rows.stop)})["a"]
    assert isinstance(kept, Column) == (size >= 30)
    assert kept[:].tolist() == list(range(size))
