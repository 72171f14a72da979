"""What `simnmt run` leaves behind, and what it makes of a run directory given back to it."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from simnmt import api
from simnmt.results import run_directory
from simnmt.scenario.document import read_document
from tests.campaigns.harness import deep
from tests.command_line import filled_folder
from tests.refusals import assert_one_line

SAME = ("requests.parquet", "summary.json", "summary.csv", "scenario.resolved.yaml", "scenario.input.yaml", "report.html")
WHOLE = {*SAME, "manifest.json"}


@pytest.mark.parametrize("jobs", ["1", deep("2")])
def test_a_run_directory_repeats_byte_for_byte_from_another_folder_on_any_number_of_processes(
    folder: Path, simnmt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, jobs: str
) -> None:
    """With overrides, and a corpus that the scenario names relative to itself."""
    with monkeypatch.context() as above:
        above.chdir(folder.parent)
        first = simnmt("run", "here/small.yaml", "--set", "policies.cnmt.len_slope=0.8", "--seed", "9")
    assert (first.status, first.err) == (0, "")
    (directory,) = (folder.parent / "reports").iterdir()
    assert directory.name.startswith("small-")
    assert {path.name for path in directory.iterdir()} == WHOLE
    assert f"run directory: reports/{directory.name}\n" in first.out
    again = simnmt("run", str(directory), "--out", "again", "--jobs", jobs)
    assert (again.status, again.err) == (0, "")
    for name in SAME:
        assert (folder / "again" / name).read_bytes() == (directory / name).read_bytes(), name


def test_what_was_overridden_stands_in_the_resolved_scenario_and_in_the_numbers(
    folder: Path, simnmt: Callable[..., Any]
) -> None:
    for out, slope in (("plain", ()), ("steep", ("--set", "policies.cnmt.len_slope=2.5"))):
        assert (
            simnmt("run", "small.yaml", *slope, "--requests", "50", "--replications", "1", "--seed", "5", "--out", out).status
            == 0
        )
    resolved = Path("steep/scenario.resolved.yaml").read_text()
    assert "len_slope: 2.5\n" in resolved
    assert {"requests: 50", "replications: 1", "seed: 5"} <= set(resolved.splitlines())
    assert str(folder / "news.de") in resolved
    assert Path("steep/scenario.input.yaml").read_bytes() == Path("small.yaml").read_bytes()
    logs = {out: pd.read_parquet(f"{out}/requests.parquet").query("policy == 'cnmt'") for out in ("plain", "steep")}
    assert (logs["steep"].tgt_len_predicted > logs["plain"].tgt_len_predicted).mean() > 0.9
    assert (logs["steep"].tgt_len == logs["plain"].tgt_len).all()


def test_the_manifest_names_every_input_and_output(folder: Path, simnmt: Callable[..., Any], tree: Callable[..., Any]) -> None:
    assert simnmt("run", "small.yaml", "--out", "run").status == 0
    manifest = json.loads(Path("run/manifest.json").read_text())
    digests = tree(folder)
    assert manifest["outputs"] == {name: digests[f"run/{name}"] for name in sorted(SAME)}
    inputs = ("news.de", "news.en", "office.csv", "gateway.json", "cloud.json")
    assert manifest["inputs"] == {str(folder / name): digests[name] for name in inputs}
    assert manifest["argv"] == ["run", "--jobs", "1", "small.yaml", "--out", "run"]


def test_a_run_of_the_same_second_gets_a_folder_with_the_next_number(
    folder: Path, simnmt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    monkeypatch.setattr(run_directory, "datetime", SimpleNamespace(now=lambda zone: moment))
    for _ in range(2):
        assert simnmt("run", "small.yaml", "--requests", "20").status == 0
    assert sorted(path.name for path in Path("reports").iterdir()) == ["small-20260102-030405", "small-20260102-030405-2"]
    assert {tuple(sorted(path.name for path in run.iterdir())) for run in Path("reports").iterdir()} == {tuple(sorted(WHOLE))}


@pytest.mark.deep
def test_runs_that_begin_at_once_each_get_a_folder(folder: Path, start: Callable[..., Any]) -> None:
    started = [start("run", "small.yaml", "--jobs", "1") for _ in range(2)]
    ended = [(*process.communicate(timeout=60), process.returncode) for process in started]
    assert [(err, status) for _, err, status in ended] == [("", 0)] * 2
    assert len(list(Path("reports").iterdir())) == 2
    assert {tuple(sorted(path.name for path in run.iterdir())) for run in Path("reports").iterdir()} == {tuple(sorted(WHOLE))}


def test_a_long_name_in_any_script_names_a_folder(folder: Path, simnmt: Callable[..., Any]) -> None:
    assert simnmt("run", "small.yaml", "--set", "name=" + "語" * 80).status == 0
    (run,) = Path("reports").iterdir()
    assert run.name.startswith("語" * 30)


def test_an_empty_folder_and_a_link_to_one_may_be_the_output(folder: Path, simnmt: Callable[..., Any]) -> None:
    for name in ("empty", "linked"):
        Path(name).mkdir()
    Path("link").symlink_to("linked")
    for out in ("empty", "link"):
        assert simnmt("run", "small.yaml", "--out", out).status == 0
    assert {path.name for path in Path("linked").iterdir()} == {path.name for path in Path("empty").iterdir()} == WHOLE


def test_the_current_folder_is_not_replaced(folder: Path, simnmt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("empty").mkdir()
    monkeypatch.chdir("empty")
    done = simnmt("run", "../small.yaml", "--out", ".")
    assert (done.status, done.out) == (2, "")
    assert done.err == "simnmt: .: the output folder is the current one (name a new folder in it)\n"


@pytest.mark.parametrize("out", ["x" * 300, "deep/" + "x" * 300, "/proc/simnmt"])
def test_a_folder_that_cannot_be_made_is_told_before_the_run(
    folder: Path, simnmt: Callable[..., Any], tree: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    def must_not(*_: Any, **__: Any) -> None:
        raise AssertionError("ran")

    monkeypatch.setattr("simnmt.api.run_plan", must_not)
    before = tree(folder)
    done = simnmt("run", "small.yaml", "--out", out)
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)
    assert done.err.startswith(f"simnmt: {out[:20]}") and ": cannot write the run: " in done.err
    assert tree(folder) == before


@pytest.fixture(scope="module")
def ended(make_profile: Callable[..., Any]) -> Iterator[Path]:
    """A folder after a run, with a copy of it beside it."""
    with filled_folder(make_profile) as place:
        api.run(place / "small.yaml", requests=20, replications=1, jobs=1, out=place / "run")
        shutil.copytree(place, place.parent / "copy")
        yield place


class TestNotWhole:
    """A run directory that is not as it was written, or whose inputs are not, is refused by the first fault's name."""

    @pytest.fixture
    def folder(self, ended: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The folder as the run left it, at the same path for every test, since a manifest names its inputs by their paths."""
        shutil.rmtree(ended)
        shutil.copytree(ended.parent / "copy", ended)
        monkeypatch.chdir(ended)
        return ended

    @pytest.fixture
    def run(self, folder: Path) -> Path:
        return folder / "run"

    @pytest.fixture
    def refused(self, run: Path, folder: Path, simnmt: Callable[..., Any], tree: Callable[..., Any]) -> Callable[..., None]:
        def check(complaint: str) -> None:
            before = tree(folder)
            done = simnmt("run", "run")
            assert (done.status, done.out, tree(folder)) == (2, "", before)
            assert_one_line(done.err)
            assert done.err.replace(f"{folder}/", "{here}/") == f"simnmt: {complaint}\n"

        return check

    @pytest.mark.parametrize("name", SAME)
    def test_an_output_that_is_gone(self, run: Path, refused: Callable[..., None], name: str) -> None:
        (run / name).unlink()
        remedy = "restore it, or run run/scenario.resolved.yaml"
        refused(f"run/{name}: a file of that run cannot be read: No such file or directory ({remedy})")

    @pytest.mark.parametrize("name", SAME)
    def test_an_output_that_changed(self, run: Path, refused: Callable[..., None], name: str) -> None:
        with (run / name).open("ab") as file:
            file.write(b"\n")
        refused(f"run/{name}: a file of that run has changed since (restore it, or run run/scenario.resolved.yaml)")

    def test_no_manifest(self, run: Path, refused: Callable[..., None]) -> None:
        (run / "manifest.json").unlink()
        remedy = "give a folder that simnmt run wrote"
        refused(f"run: no complete run directory: manifest.json is missing ({remedy})")

    @pytest.mark.parametrize(
        "content", [b"", b"{", b"[]", b"{}", b"\xff", b"null", b'{"inputs": {}, "outputs": {}}', b"[" * 5000]
    )
    def test_a_manifest_that_is_none(self, run: Path, refused: Callable[..., None], content: bytes) -> None:
        (run / "manifest.json").write_bytes(content)
        refused("run/manifest.json: no manifest of a run (run run/scenario.resolved.yaml anew)")

    @pytest.mark.parametrize("name", ["../../dev/zero", "a\0b", "pipe"])
    def test_a_manifest_that_leads_elsewhere(self, run: Path, refused: Callable[..., None], name: str) -> None:
        os.mkfifo(run / "pipe")
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["outputs"][name] = "0" * 64
        (run / "manifest.json").write_text(json.dumps(manifest))
        refused("run/manifest.json: no manifest of a run (run run/scenario.resolved.yaml anew)")

    def test_outputs_that_are_a_list(self, run: Path, refused: Callable[..., None]) -> None:
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["outputs"] = list(manifest["outputs"])
        (run / "manifest.json").write_text(json.dumps(manifest))
        refused("run/manifest.json: no manifest of a run (run run/scenario.resolved.yaml anew)")

    @pytest.mark.parametrize("name", SAME)
    def test_an_output_that_became_a_pipe(self, run: Path, refused: Callable[..., None], name: str) -> None:
        (run / name).unlink()
        os.mkfifo(run / name)
        refused(
            f"run/{name}: a file of that run cannot be read: a pipe, not a file (restore it, or run run/scenario.resolved.yaml)"
        )

    def test_an_input_that_is_gone(self, folder: Path, refused: Callable[..., None]) -> None:
        (folder / "news.en").unlink()
        remedy = "restore it, or run run/scenario.resolved.yaml"
        refused(f"{{here}}/news.en: an input of that run cannot be read: No such file or directory ({remedy})")

    def test_an_input_that_changed(self, folder: Path, refused: Callable[..., None]) -> None:
        with (folder / "office.csv").open("a") as file:
            file.write("900,80\n")
        refused("{here}/office.csv: an input of that run has changed since (restore it, or run run/scenario.resolved.yaml)")

    def test_the_remedy_helps(self, run: Path, folder: Path, simnmt: Callable[..., Any]) -> None:
        shutil.copy("news.de", "news.en")
        assert simnmt("run", "run/scenario.resolved.yaml", "--out", "new").status == 0
        assert "requests: 20\n" in Path("new/scenario.resolved.yaml").read_text()

    def test_an_input_that_an_override_takes_out_may_be_gone(self, run: Path, folder: Path, simnmt: Callable[..., Any]) -> None:
        """The override's own path starts at the current folder."""
        (folder / "office.csv").rename("other.csv")
        assert simnmt("run", "run", "--set", "networks.office.rtt=other.csv", "--out", "new").status == 0


def test_a_scenario_from_a_pipe_is_recorded_in_its_own_words(folder: Path, simnmt: Callable[..., Any]) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, (folder / "small.yaml").read_bytes())
    os.close(write_end)
    done = simnmt("run", f"/dev/fd/{read_end}", "--out", "run")
    os.close(read_end)
    assert (done.status, done.err) == (0, "")
    assert read_document("run/scenario.input.yaml").data == read_document("small.yaml").data


def test_a_pipe_among_the_inputs_is_refused_without_waiting_for_it(folder: Path, simnmt: Callable[..., Any]) -> None:
    """A run reads its inputs and takes their digests, and a pipe has nothing to read the second time."""
    read_end, write_end = os.pipe()
    os.write(write_end, b"ein Haus\ta house\n" * 50)
    os.close(write_end)
    text = f"workloads.news.lengths={{tsv: /dev/fd/{read_end}, src_unit: word, tgt_unit: word}}"
    done = simnmt("run", "small.yaml", "--set", text, "--out", "run")
    os.close(read_end)
    assert done.status == 2 and not Path("run").exists()
    assert done.err == f"simnmt: /dev/fd/{read_end}: a pipe can be read only once (write its content to a file first)\n"


def test_a_fit_tells_its_own_troubles_from_those_of_the_folder(
    folder: Path, simnmt: Callable[..., Any], tree: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def short_of_processes(**_: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    before = tree(folder)
    monkeypatch.setattr("simnmt.papers.cnmt.inferred_profiles.fit_table_one", short_of_processes)
    fit = ("reproduce", "cnmt", "--fit", "--jobs", "1")
    done = simnmt(*fit, "--out", "deep/fit")
    assert (done.status, done.out, done.err) == (1, "", f"simnmt: {os.strerror(errno.EAGAIN)}\n")
    taken = simnmt(*fit, "--out", "small.yaml")
    assert (taken.status, taken.err) == (2, "simnmt: small.yaml: the output is no folder (give another output folder)\n")
    assert tree(folder) == before
