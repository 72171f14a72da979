"""A run directory is written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from simnmt.base.errors import InputError
from simnmt.results import run_directory
from simnmt.results.requests import RequestLog
from simnmt.results.run import Cell
from simnmt.results.run_directory import (
    INPUT,
    MANIFEST,
    RESOLVED,
    RunDirectoryError,
    check_free,
    check_unchanged,
    read_manifest,
    sha256,
    whole,
    write_json,
    write_requests,
    write_rows,
)
from tests.results.test_request_log import trail_of, truth_of


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "er" / "run"
    with whole(target) as folder:
        (folder / "a.txt").write_text("a")
        assert not target.exists()
        assert folder.parent == target.parent
    assert [path.name for path in target.parent.iterdir()] == ["run"]
    assert (target / "a.txt").read_text() == "a"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), InputError("theirs")])
def test_an_error_leaves_no_files_and_no_new_folders(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, whole(tmp_path / "deep" / "er" / "run") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "half.txt").write_text("half")
        raise error
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "run"
    with pytest.raises(RunDirectoryError) as caught, whole(target) as folder:
        (folder / "half.txt").write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.path == str(target) and "\n" not in str(caught.value)
    assert caught.value.exit_status == 2
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_fills_up_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "run"
    with pytest.raises(RunDirectoryError), whole(target) as folder:
        (folder / "ours.txt").write_text("ours")
        target.mkdir()
        (target / "theirs.txt").write_text("theirs")
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "theirs.txt"]


def assert_refused(target: Path) -> None:
    before = sorted(target.parent.rglob("*")) if target.parent.is_dir() else []
    with pytest.raises(RunDirectoryError):
        check_free(target)
    with pytest.raises(RunDirectoryError), whole(target):
        raise AssertionError("must not come this far")
    assert (sorted(target.parent.rglob("*")) if target.parent.is_dir() else []) == before


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious.txt").write_text("precious")
    assert_refused(tmp_path / "run")
    assert (tmp_path / "run" / "precious.txt").read_text() == "precious"


def test_a_file_is_refused_as_target_and_on_the_way_to_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    assert_refused(tmp_path / "file")
    assert_refused(tmp_path / "file" / "run")
    assert (tmp_path / "file").read_text() == "precious"


class TestFiles:
    def test_json_holds_no_nan(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="JSON"):
            write_json(tmp_path / "one", {"a": float("nan")})

    def test_the_table_has_an_empty_cell_where_nothing_is_known(self, tmp_path: Path) -> None:
        rows = [{"policy": 'a,"b"', "x": 0.1 + 0.2, "y": None}, {"policy": "c", "x": 1e-17, "y": 3}]
        write_rows(tmp_path / "t.csv", rows)
        assert (tmp_path / "t.csv").read_bytes() == b'policy,x,y\n"a,""b""",0.30000000000000004,\nc,1e-17,3\n'
        back = pd.read_csv(tmp_path / "t.csv")
        assert back["x"].tolist() == pytest.approx([0.1 + 0.2, 1e-17])
        assert back["y"].isna().tolist() == [True, False]


def cell(workload: str, network: str, seed: int, requests: int = 50) -> Cell:
    truth = truth_of(seed, requests)
    trails = {policy: trail_of(seed + number, requests=requests) for number, policy in enumerate(("edge", "cnmt"), 1)}
    trails["edge"] = replace(trails["edge"], tgt_len_by_src_len=np.full(41, np.nan))
    return Cell(workload, network, (), {policy: RequestLog.of(truth, trail) for policy, trail in trails.items()})


CELLS = [cell("w1", "cp1", 1), cell("w1", "cp2", 2), cell("w2", "cp1", 3, requests=70)]


@pytest.mark.parametrize(("rows", "groups"), [(131_072, 6), (60, 8)])
def test_requests_are_read_back_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, groups: int) -> None:
    monkeypatch.setattr(run_directory, "ROW_GROUP", rows)
    path = tmp_path / "requests.parquet"
    write_requests(path, CELLS)
    table = pd.read_parquet(path)
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


def test_a_reproduction_is_replaced_where_that_is_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "page"
    for text in ("first", "second"):
        with run_directory.whole(target, replace=text == "second") as folder:
            (folder / run_directory.REPRODUCTION).write_text(text)
            (folder / run_directory.PAGE).write_text(text)
    assert (target / run_directory.REPRODUCTION).read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["page"]
    for replaces in ({"replace": False}, {}):
        with pytest.raises(run_directory.RunDirectoryError):
            run_directory.check_free(target, **replaces)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
@pytest.mark.parametrize("times", [1, 2])
def test_the_old_run_survives_a_failure_while_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, times: int
) -> None:
    """`times`: how many renames fail, after the one that moves the old run aside; the second would move it back."""
    target = tmp_path / "page"
    with whole(target) as folder:
        (folder / run_directory.REPRODUCTION).write_text("first")
    rename, failures = Path.rename, iter([None] + [error] * times)

    def fails(path: Path, name: Path) -> Path:
        if (failure := next(failures, None)) is not None:
            raise failure
        return rename(path, name)

    expected = RunDirectoryError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught, whole(target, replace=True) as folder:
        (folder / run_directory.REPRODUCTION).write_text("second")
        monkeypatch.setattr(Path, "rename", fails)
    (old,) = tmp_path.iterdir()
    assert (old / run_directory.REPRODUCTION).read_text() == "first"
    assert (old == target) == (times == 1)
    assert times == 1 or expected is KeyboardInterrupt or old.name in str(caught.value)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The least that counts as a run directory."""
    for name in (INPUT, RESOLVED):
        (tmp_path / name).write_text("version: 1\n")
    outputs = {name: sha256(tmp_path / name) for name in (INPUT, RESOLVED)}
    (tmp_path / MANIFEST).write_text(json.dumps({"inputs": {}, "outputs": outputs, "replications": []}))
    return tmp_path


def test_a_run_directory_without_a_manifest_is_refused(directory: Path) -> None:
    (directory / MANIFEST).unlink()
    with pytest.raises(RunDirectoryError) as caught:
        read_manifest(directory)
    assert caught.value.path == str(directory)


BAD_MANIFESTS = [
    b"",
    b"[]",
    b'{"inputs": {}}',
    b'{"inputs": 1, "replications": [], "outputs": {}}',
    b'{"inputs": {}, "replications": [], "outputs": []}',
    json.dumps({"inputs": {}, "replications": [], "outputs": {INPUT: "", RESOLVED: "", "../../dev/zero": ""}}).encode(),
    b"\xff\xfe",
]


@pytest.mark.parametrize("content", BAD_MANIFESTS, ids=range(len(BAD_MANIFESTS)))
def test_a_malformed_manifest_is_refused(directory: Path, content: bytes) -> None:
    (directory / MANIFEST).write_bytes(content)
    with pytest.raises(RunDirectoryError) as caught:
        read_manifest(directory)
    assert caught.value.path == str(directory / MANIFEST)


def test_files_that_changed_since_are_named(directory: Path) -> None:
    manifest = read_manifest(directory)
    assert set(manifest) == {"inputs", "outputs", "replications"}
    recorded = manifest["outputs"]
    check_unchanged(recorded, "a file", directory.joinpath, "restore it")
    (directory / RESOLVED).write_text("version: 2\n")
    with pytest.raises(RunDirectoryError) as caught:
        check_unchanged(recorded, "a file", directory.joinpath, "restore it")
    assert caught.value.path == str(directory / RESOLVED)
    (directory / RESOLVED).unlink()
    with pytest.raises(RunDirectoryError) as caught:
        check_unchanged(recorded, "a file", directory.joinpath, "restore it")
    assert caught.value.path == str(directory / RESOLVED)
