"""What a run directory gives back: the columns of the requests, its batches, and the figures drawn from both."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.report.page import NOT_RECORDED, run_panels
from simnmt.results import run_directory
from simnmt.results.live_log import OUTCOMES
from simnmt.results.requests import RequestLog, drawn_logs
from simnmt.results.run_directory import StoredColumns, write_requests
from tests.results.test_run_directory import CELLS

PLACE = ("w2", "cp1", "cnmt")
"""Of 70 requests of `CELLS`, with row groups of 60."""


@pytest.fixture
def log() -> RequestLog:
    """Of 70 requests, of which every third was refused."""
    whole = CELLS[2].logs["cnmt"]
    outcome = np.where(np.arange(70) % 3 == 0, OUTCOMES.index("refused"), OUTCOMES.index("done")).astype(np.int8)
    return RequestLog.of(whole.columns.truth, whole.columns.trail.with_columns(outcome=outcome))


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: RequestLog) -> dict[tuple[str, str, str], RequestLog]:
    monkeypatch.setattr(run_directory, "ROW_GROUP", 60)
    write_requests(tmp_path / "requests.parquet", [*CELLS[:2], replace(CELLS[2], logs={**CELLS[2].logs, "cnmt": log})])
    places = [(PLACE[0], PLACE[1], policy) for policy in CELLS[2].logs]
    return {place: RequestLog(StoredColumns(tmp_path / "requests.parquet", place)) for place in places}


def test_a_stored_log_has_the_columns_of_the_requests(stored: dict[tuple[str, str, str], RequestLog], log: RequestLog) -> None:
    read = stored[PLACE]
    assert read.requests == log.requests == 70 and read.answered.requests == log.answered.requests == 46
    assert [*read] == [*log] and len(read) == len(log)
    for name, column in log.answered.items():
        np.testing.assert_array_equal(read.answered[name], column)
    with pytest.raises(KeyError):
        read["nothing"]


def test_figures_draw_an_even_sample_of_what_every_policy_answered(stored: dict[tuple[str, str, str], RequestLog]) -> None:
    of_cell = {place[2]: log for place, log in stored.items() if place[:2] == PLACE[:2]}
    whole = stored[PLACE].answered
    sample = drawn_logs(of_cell, 20)[PLACE[2]]
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
    for name in ("latency", "timeline"):
        assert loaded.figure(name).to_dict() == result.figure(name).to_dict()


def test_a_figure_of_a_place_that_the_run_does_not_have_is_refused(batched: tuple[simnmt.Run, Path]) -> None:
    with pytest.raises(simnmt.InputError):
        batched[0].figure("latency", workload="at 8")


@pytest.mark.parametrize("name", NOT_RECORDED)
def test_a_figure_that_needs_more_than_the_directory_is_refused(batched: tuple[simnmt.Run, Path], name: str) -> None:
    with pytest.raises(simnmt.InputError):
        simnmt.load(batched[1]).figure(name)


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


@pytest.mark.parametrize("devices", [None, {"de-en": [{"name": "gateway"}]}, {"fr-en": []}])
def test_a_manifest_with_other_devices_gives_no_figure_but_one_line(small: Path, devices: Any) -> None:
    manifest = json.loads((small / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["devices"]["de-en"][0] == {"name": "gateway", "servers": 1, "workers": 1, "batch": None, "streamed": False}
    (small / "manifest.json").write_text(json.dumps(manifest | {"devices": devices}), encoding="utf-8")
    with pytest.raises(simnmt.InputError):
        simnmt.load(small).figure("latency")
