"""Live runs survive being recorded, and the recorded validations replay to the errors that they had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.live.cell_comparison import Cell, live_figures
from simnmt.live.deployment import ReplayedRequests
from simnmt.live.recorded_runs import load_runs, save_runs
from simnmt.live.recorded_validation import check_name, replay_recorded
from tests.live.made_runs import live_run

TOLERANCE = 0.005
"""By how much a structural error may grow: a twentieth of a millisecond of a latency of 10 ms."""
RECORDED = sorted(path.parent for path in shipped_files.folder("validation").glob("*/validation.json"))


def requests_of(count: int) -> ReplayedRequests:
    lengths = np.arange(1, count + 1)
    return ReplayedRequests(np.arange(count) * 0.1, lengths, 2 * lengths, [""] * count, np.zeros(count, np.int32), None)


def test_runs_are_read_as_they_were_written(tmp_path: Path) -> None:
    cells = [Cell("edge", "alone", 0.2, "x"), Cell("cloud", "alone", 0.2, "x"), Cell("edge", "alone", 0.2, "y")]
    runs = {
        cells[0]: [live_run(0.1), live_run(0.11, others_cpus=None, refused=2)],
        cells[1]: [live_run(0.2, offloaded=1.0, reference_s=np.full(3, 0.02))],
        cells[2]: [live_run(0.3, identical=False, requests=25)],
    }
    requests = {cells[0]: requests_of(40), cells[1]: requests_of(40), cells[2]: requests_of(25)}
    save_runs(tmp_path / "runs.npz", cells, requests, runs)
    read_requests, read = load_runs(tmp_path / "runs.npz", cells)
    assert [len(read[cell]) for cell in cells] == [2, 1, 1]
    assert read_requests[cells[2]].tgt_len.tolist() == requests[cells[2]].tgt_len.tolist()
    for cell in cells:
        for before, after in zip(runs[cell], read[cell], strict=True):
            assert after.valid.tolist() == before.valid.tolist()
            assert after.others_cpus == before.others_cpus
            assert after.decisions_identical == before.decisions_identical
            np.testing.assert_allclose(after.transfer_s, before.transfer_s, atol=1e-6)
            assert after.begun_s == before.begun_s
            for name in ("begin_s", "busy_s", "execution_s"):
                read_column, column = (getattr(one.references["gateway"], name) for one in (after, before))
                np.testing.assert_allclose(read_column, column, atol=1e-6)
            figures, expected = live_figures(after), live_figures(before)
            assert figures.document() == pytest.approx(expected.document(), abs=1e-5)


def test_a_file_that_holds_no_runs_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs.npz").write_text("nothing")
    with pytest.raises(InputError, match="not the runs of a validation"):
        load_runs(tmp_path / "runs.npz", [])
    with pytest.raises(InputError, match="not a recorded validation"):
        replay_recorded(tmp_path)


def test_names_of_recordings_are_names() -> None:
    for name in ("../x", "", "a/b"):
        with pytest.raises(InputError, match="not a name"):
            check_name(name)


@pytest.mark.deep
@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_recorded_live_runs_are_simulated_as_well_as_when_they_were_recorded(folder: Path) -> None:
    replayed = replay_recorded(folder)
    assert replayed
    assert {cell.cell: cell.growth for cell in replayed if cell.growth > TOLERANCE} == {}
