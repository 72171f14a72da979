"""A run directory is written whole or not at all, and gives back requests and the figures drawn from them."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.report.page import NOT_RECORDED, run_panels
from simnmt.results import run_directory
from simnmt.results.live_log import OUTCOMES
from simnmt.results.places import ALL, Place
from simnmt.results.requests import RequestLog, drawn_logs
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
    stored_log,
    whole,
    write_json,
    write_requests,
    write_rows,
)
from tests.results.test_requests import made_up


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "er" / "run"
    with whole(target) as folder:
        (folder / "a.txt").write_text("a")
        assert not target.exists()
        assert folder.parent == target.parent
    assert [path.name for path in target.parent.iterdir()] == ["run"]
    assert (target / "a.txt").read_text() == "a"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (InputError("theirs"), InputError),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), RunDirectoryError),
    ],
    ids=["interrupt", "input", "full disk"],
)
def test_an_error_leaves_no_files_and_no_new_folders(tmp_path: Path, error: BaseException, expected: type[Exception]) -> None:
    target = tmp_path / "deep" / "er" / "run"
    with pytest.raises(expected) as caught, whole(target) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "half.txt").write_text("half")
        raise error
    assert caught.value is error or (caught.value.path, caught.value.exit_status) == (str(target), 2)
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


def test_a_folder_that_holds_something_and_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious.txt").write_text("precious")
    for target in ("run", "run/precious.txt", "run/precious.txt/run"):
        assert_refused(tmp_path / target)
    assert (tmp_path / "run" / "precious.txt").read_text() == "precious"


def test_json_holds_no_nan_and_the_table_an_empty_cell_where_nothing_is_known(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "one", {"a": float("nan")})
    write_rows(tmp_path / "t.csv", [{"policy": 'a,"b"', "x": 0.1 + 0.2, "y": None}, {"policy": "c", "y": 3, "z": 1e-17}])
    assert (tmp_path / "t.csv").read_bytes() == b'policy,x,y,z\n"a,""b""",0.30000000000000004,,\nc,,3,1e-17\n'


def cell(workload: str, network: str, seed: int, requests: int = 50) -> Cell:
    truth = made_up(requests, seed=seed)[0]
    trails = {policy: made_up(requests, seed=seed + number)[1] for number, policy in enumerate(("edge", "cnmt"), 1)}
    trails["edge"] = replace(trails["edge"], tgt_len_by_src_len=np.full((1, 41), np.nan))
    return Cell(ALL, workload, network, (), {policy: RequestLog.of(truth, trail) for policy, trail in trails.items()})


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
            stored = stored_log(path, Place(*given.name, policy))
            assert [*stored] == [*log] and stored.requests == log.requests
            for name, column in log.items():
                assert stored[name].dtype == column.dtype
                np.testing.assert_array_equal(stored[name], column)
            with pytest.raises(KeyError):
                stored["nothing"]
    assert table.policy.dtype == "category"
    assert pq.ParquetFile(path).num_row_groups == groups


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
def test_the_old_run_survives_a_failure_while_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    target = tmp_path / "page"
    with whole(target) as folder:
        (folder / run_directory.REPRODUCTION).write_text("first")
    rename, failures = Path.rename, iter([None, error])

    def fails(path: Path, name: Path) -> Path:
        if (failure := next(failures, None)) is not None:
            raise failure
        return rename(path, name)

    expected = RunDirectoryError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected), whole(target, replace=True) as folder:
        (folder / run_directory.REPRODUCTION).write_text("second")
        monkeypatch.setattr(Path, "rename", fails)
    assert [*tmp_path.iterdir()] == [target] and (target / run_directory.REPRODUCTION).read_text() == "first"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The least that counts as a run directory."""
    for name in (INPUT, RESOLVED):
        (tmp_path / name).write_text("version: 1\n")
    outputs = {name: sha256(tmp_path / name) for name in (INPUT, RESOLVED)}
    (tmp_path / MANIFEST).write_text(json.dumps({"inputs": {}, "outputs": outputs, "replications": []}))
    return tmp_path


BAD_MANIFESTS = [
    None,
    b"",
    b"[]",
    b'{"inputs": {}}',
    b'{"inputs": 1, "replications": [], "outputs": {}}',
    b'{"inputs": {}, "replications": [], "outputs": []}',
    json.dumps({"inputs": {}, "replications": [], "outputs": {INPUT: "", RESOLVED: "", "../../dev/zero": ""}}).encode(),
    b"\xff\xfe",
]


@pytest.mark.parametrize("content", BAD_MANIFESTS, ids=range(len(BAD_MANIFESTS)))
def test_a_missing_or_malformed_manifest_is_refused(directory: Path, content: bytes | None) -> None:
    (directory / MANIFEST).unlink() if content is None else (directory / MANIFEST).write_bytes(content)
    with pytest.raises(RunDirectoryError) as caught:
        read_manifest(directory)
    assert caught.value.path == str(directory if content is None else directory / MANIFEST)


def test_files_that_changed_since_are_named(directory: Path) -> None:
    recorded = read_manifest(directory)["outputs"]
    check_unchanged(recorded, "a file", directory.joinpath, "restore it")
    for change in (lambda path: path.write_text("version: 2\n"), Path.unlink):
        change(directory / RESOLVED)
        with pytest.raises(RunDirectoryError) as caught:
            check_unchanged(recorded, "a file", directory.joinpath, "restore it")
        assert caught.value.path == str(directory / RESOLVED)


def test_figures_draw_an_even_sample_of_what_every_policy_answered() -> None:
    """Of 70 requests, of which one policy refused every third."""
    truth, trail = made_up(70, seed=3)[0], made_up(70, seed=5)[1]
    outcome = np.where(np.arange(70) % 3 == 0, OUTCOMES.index("refused"), OUTCOMES.index("done")).astype(np.int8)
    logs = {**CELLS[2].logs, "cnmt": RequestLog.of(truth, trail.with_columns(outcome=outcome))}
    whole, sample = logs["cnmt"].answered, drawn_logs(logs, 20)["cnmt"]
    assert sample["src_len"].tolist() == whole["src_len"][::3].tolist()
    assert sample.requests == 46 and sample.whole["src_len"].tolist() == whole["src_len"].tolist()


@pytest.fixture(scope="module")
def batched(tmp_path_factory: pytest.TempPathFactory) -> tuple[simnmt.Run, Path]:
    """A run with queues, batches and a gap analysis, and its directory."""
    out = tmp_path_factory.mktemp("loaded") / "run"
    return simnmt.run("@batched-cloud", requests=150, replications=2, overrides=["gap_analysis=true"], out=out), out


def test_a_loaded_run_draws_the_figures_of_its_directory_as_the_run_itself_did(batched: tuple[simnmt.Run, Path]) -> None:
    result, out = batched
    loaded = simnmt.load(out)
    for fresh, stored in zip(result.drawn_cells, loaded.drawn_cells, strict=True):
        drawn = {panel.name: panel for panel in run_panels(result, fresh)}
        read = {panel.name: panel for panel in run_panels(loaded, stored)}
        assert {"latency", "parts", "timeline"} == set(read) == set(drawn) - {*NOT_RECORDED}
        for name, panel in read.items():
            assert {options: chart.figure() for options, chart in panel.charts.items()} == {
                options: chart.figure() for options, chart in drawn[name].charts.items()
            }
    assert loaded.figure("latency").to_dict() == result.figure("latency").to_dict()
    for name in NOT_RECORDED:
        with pytest.raises(simnmt.InputError):
            loaded.figure(name)


@pytest.fixture
def small(small_run: simnmt.Run, tmp_path: Path) -> Path:
    assert small_run.directory is not None
    return Path(shutil.copytree(small_run.directory, tmp_path / "run"))


@pytest.mark.parametrize("content", [None, b"PAR1 and no more"], ids=["missing", "cut"])
def test_a_run_without_whole_requests_still_has_rows_and_names_the_file(small: Path, content: bytes | None) -> None:
    (small / "requests.parquet").unlink()
    if content is not None:
        (small / "requests.parquet").write_bytes(content)
    loaded = simnmt.load(small)
    assert len(loaded.rows) == 5 and loaded.best()["policy"]
    for read in (lambda: loaded.requests, lambda: loaded.figure("latency")):
        with pytest.raises(simnmt.InputError, match=r"requests\.parquet"):
            read()


@pytest.mark.parametrize(
    "damage",
    [
        *({"devices": devices} for devices in (None, {"de-en": [{"name": "gateway"}]}, {"fr-en": []})),
        {"replications": [5]},
        {"engines": None},
    ],
)
def test_a_damaged_manifest_is_named(small: Path, damage: dict[str, Any]) -> None:
    manifest = json.loads((small / "manifest.json").read_text(encoding="utf-8"))
    (small / "manifest.json").write_text(json.dumps(manifest | damage), encoding="utf-8")
    with pytest.raises(simnmt.InputError, match=r"manifest\.json"):
        simnmt.load(small)


@pytest.mark.parametrize("damage", ["nested", {"rows": []}, {"recommendations": 5}, {"name": 5}])
def test_a_damaged_summary_is_named(small: Path, damage: Any) -> None:
    summary = json.loads((small / "summary.json").read_text(encoding="utf-8"))
    content = "[" * 100_000 if damage == "nested" else json.dumps(summary | damage)
    manifest = json.loads((small / "manifest.json").read_text(encoding="utf-8"))
    (small / "summary.json").write_text(content, encoding="utf-8")
    manifest["outputs"]["summary.json"] = sha256(small / "summary.json")
    (small / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(simnmt.InputError, match=r"summary\.json: cannot be read"):
        simnmt.load(small)
