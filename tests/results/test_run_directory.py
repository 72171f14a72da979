"""A run directory is written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from simnmt.base.errors import InputError
from simnmt.results import run_directory
from simnmt.results.request_log import RequestLog
from simnmt.results.result import Cell
from simnmt.results.run_directory import (
    RunDirectoryError,
    check_free,
    sha256,
    whole,
    write_json,
    write_requests,
    write_rows,
)
from tests.results.test_request_log import trail_of, truth_of


def test_what_was_filled_appears_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "er" / "run"
    with whole(target) as folder:
        (folder / "a.txt").write_text("a")
        assert not target.exists()
        assert folder.parent == target.parent
    assert [path.name for path in target.parent.iterdir()] == ["run"]
    assert (target / "a.txt").read_text() == "a"


def test_an_empty_folder_may_be_the_target(tmp_path: Path) -> None:
    with whole(tmp_path / "run") as folder:
        (folder / "a.txt").write_text("a")
    empty = tmp_path / "empty"
    empty.mkdir()
    with whole(empty) as folder:
        (folder / "a.txt").write_text("a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "run"]
    assert (empty / "a.txt").read_text() == "a"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("ours"), InputError("theirs"), SystemExit(3)])
@pytest.mark.parametrize("place", ["run", "deep/er/run"])
def test_whatever_goes_wrong_nothing_is_left(tmp_path: Path, place: str, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, whole(tmp_path / place) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "half.txt").write_text("half")
        raise error
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


def test_folders_that_were_there_before_stay(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(RuntimeError), whole(tmp_path / "mine" / "new" / "run"):
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, number: int) -> None:
    target = tmp_path / "deep" / "run"
    with pytest.raises(RunDirectoryError) as caught, whole(target) as folder:
        (folder / "half.txt").write_text("half")
        raise OSError(number, os.strerror(number))
    text = str(caught.value)
    assert text.startswith(f"{target}: cannot write the run: {os.strerror(number)} (")
    assert "\n" not in text
    assert ("free some space" in text) == (number != errno.EIO)
    assert caught.value.exit_status == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("name", ["requests.parquet", "summary.json", "summary.csv"])
def test_so_it_is_whichever_file_finds_the_disk_full(tmp_path: Path, name: str) -> None:
    write: dict[str, Callable[[Path], None]] = {
        "requests.parquet": lambda path: write_requests(path, CELLS),
        "summary.json": lambda path: write_json(path, {"a": 1}),
        "summary.csv": lambda path: write_rows(path, [{"a": 1}]),
    }
    with pytest.raises(RunDirectoryError, match="No space left on device"), whole(tmp_path / "run") as folder:
        (folder / name).symlink_to("/dev/full")
        write[name](folder / name)
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_fills_up_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "run"
    with pytest.raises(RunDirectoryError), whole(target) as folder:
        (folder / "ours.txt").write_text("ours")
        target.mkdir()
        (target / "theirs.txt").write_text("theirs")
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "theirs.txt"]


def refused(target: Path) -> str:
    before = sorted(target.parent.rglob("*")) if target.parent.is_dir() else []
    with pytest.raises(RunDirectoryError) as caught:
        check_free(target)
    with pytest.raises(RunDirectoryError), whole(target):
        raise AssertionError("must not come this far")
    assert (sorted(target.parent.rglob("*")) if target.parent.is_dir() else []) == before
    text = str(caught.value)
    assert "\n" not in text
    assert "give another output folder" in text
    return text


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious.txt").write_text("precious")
    assert "not empty" in refused(tmp_path / "run")
    assert (tmp_path / "run" / "precious.txt").read_text() == "precious"


def test_a_file_is_refused_as_target_and_on_the_way_to_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    assert "no folder" in refused(tmp_path / "file")
    refused(tmp_path / "file" / "run")
    assert (tmp_path / "file").read_text() == "precious"


def test_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert "no folder" in refused(tmp_path / "link")


def test_an_unwritable_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The superuser may write anywhere, so the system's answer is made up."""

    def mkdir(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert "Permission denied" in refused(tmp_path / "new" / "run")
    assert "Permission denied" in refused(tmp_path / "empty")


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert "Permission denied" in refused(tmp_path / "run")
    finally:
        tmp_path.chmod(0o700)


class TestFiles:
    def test_json_is_the_same_bytes_for_the_same_content(self, tmp_path: Path) -> None:
        content = {"b": [1, 2.5, None, "ü"], "a": {"x": 0.1}}
        for name in ("one", "two"):
            write_json(tmp_path / name, content)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
        assert json.loads((tmp_path / "one").read_text(encoding="utf-8")) == content
        assert list(json.loads((tmp_path / "one").read_text(encoding="utf-8"))) == ["b", "a"]

    @pytest.mark.parametrize("number", [float("nan"), float("inf")])
    def test_json_knows_no_nan(self, tmp_path: Path, number: float) -> None:
        with pytest.raises(ValueError, match="JSON"):
            write_json(tmp_path / "one", {"a": number})

    def test_the_table_has_an_empty_cell_where_nothing_is_known(self, tmp_path: Path) -> None:
        rows = [{"policy": 'a,"b"', "x": 0.1 + 0.2, "y": None}, {"policy": "c", "x": 1e-17, "y": 3}]
        write_rows(tmp_path / "t.csv", rows)
        assert (tmp_path / "t.csv").read_bytes() == b'policy,x,y\n"a,""b""",0.30000000000000004,\nc,1e-17,3\n'
        back = pd.read_csv(tmp_path / "t.csv")
        assert back["x"].tolist() == pytest.approx([0.1 + 0.2, 1e-17])
        assert back["y"].isna().tolist() == [True, False]

    def test_sha256(self, tmp_path: Path) -> None:
        (tmp_path / "abc").write_bytes(b"abc")
        assert sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def cell(workload: str, network: str, seed: int, requests: int = 50) -> Cell:
    truth = truth_of(seed, requests)
    trails = {policy: trail_of(seed + number, requests=requests) for number, policy in enumerate(("edge", "cnmt"), 1)}
    trails["edge"] = replace(trails["edge"], tgt_len_by_src_len=np.full(41, np.nan))
    names = SimpleNamespace(name="n", source="s", src_unit="word", tgt_unit="word")
    return Cell(
        workload=workload, network=network, lengths=names, series=None, regression_slope=1.0, regression_offset=0.0,
        devices=(), planes=(), profile_kinds=(), profile_names=(),
        logs={policy: RequestLog.of(truth, trail) for policy, trail in trails.items()},
    )  # type: ignore[arg-type]  # fmt: skip


CELLS = [cell("w1", "cp1", 1), cell("w1", "cp2", 2), cell("w2", "cp1", 3, requests=70)]


@pytest.mark.parametrize("read", [pd.read_parquet, lambda path: pq.read_table(path).to_pandas()], ids=["pandas", "pyarrow"])
@pytest.mark.parametrize(("rows", "groups"), [(131_072, 6), (60, 8)])
def test_requests_are_read_back_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], pd.DataFrame], rows: int, groups: int
) -> None:
    monkeypatch.setattr(run_directory, "ROW_GROUP", rows)
    path = tmp_path / "requests.parquet"
    write_requests(path, CELLS)
    table = read(path)
    assert len(table) == 2 * (50 + 50 + 70)
    for given in CELLS:
        for policy, log in given.logs.items():
            own = table[(table.workload == given.workload) & (table.network == given.network) & (table.policy == policy)]
            assert len(own) == len(log["request_id"])
            for name, column in log.items():
                assert own[name].dtype == column.dtype
                np.testing.assert_array_equal(own[name].to_numpy(), column)
    assert table.policy.dtype == "category"
    assert pq.ParquetFile(path).num_row_groups == groups


def test_requests_are_the_same_bytes_for_the_same_logs_and_others_for_others(tmp_path: Path) -> None:
    def digest(name: str, cells: list[Cell]) -> str:
        write_requests(tmp_path / name, iter(cells))
        return sha256(tmp_path / name)

    assert digest("one", CELLS) == digest("two", CELLS)
    log = CELLS[2].logs["cnmt"]
    queue_s = log.columns.trail.queue_s.copy()
    queue_s[-1] = np.nextafter(queue_s[-1], 1.0)
    changed = {**CELLS[2].logs, "cnmt": RequestLog.of(log.columns.truth, log.columns.trail.with_columns(queue_s=queue_s))}
    assert digest("three", [*CELLS[:2], replace(CELLS[2], logs=changed)]) != digest("one", CELLS)


def test_an_error_in_the_middle_of_the_table_is_not_swallowed(tmp_path: Path) -> None:
    log = CELLS[1].logs["edge"]
    broken = {"edge": RequestLog.of(log.columns.truth, log.columns.trail.with_columns(queue_s=np.zeros(3)))}
    with pytest.raises(ValueError, match="broadcast"):
        write_requests(tmp_path / "requests.parquet", [CELLS[0], replace(CELLS[1], logs=broken)])


def test_a_reproduction_is_replaced_where_that_is_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "page"
    for text in ("first", "second"):
        with run_directory.whole(target, replace=text == "second") as folder:
            (folder / run_directory.REPRODUCTION).write_text(text)
            (folder / run_directory.PAGE).write_text(text)
    assert (target / run_directory.REPRODUCTION).read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["page"]
    with pytest.raises(run_directory.RunDirectoryError, match=r"a run is there .*--force"):
        run_directory.check_free(target, replace=False)
    with pytest.raises(run_directory.RunDirectoryError, match=r"not empty .*or empty it"):
        run_directory.check_free(target)


def test_a_run_directory_keeps_its_name_if_the_new_one_cannot_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "page"
    with run_directory.whole(target) as folder:
        (folder / run_directory.REPRODUCTION).write_text("first")
    rename = Path.rename

    def failing(path: Path, other: Path) -> Path:
        if Path(other) == target and (path / run_directory.REPRODUCTION).read_text() == "second":
            raise OSError(13, "no")
        return rename(path, other)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(run_directory.RunDirectoryError), run_directory.whole(target, replace=True) as folder:
        (folder / run_directory.REPRODUCTION).write_text("second")
    assert (target / run_directory.REPRODUCTION).read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["page"]
