"""The notebooks of the documentation: what is stored in them; deep: the first one executed in a kernel as a reader would.

`make check` executes all of them (`docs/execute_notebooks.py --check`).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
FIRST_RUN = NOTEBOOKS[0]
PLOTLY = "application/vnd.plotly.v1+json"
PATHS = re.compile(r"/(?:home|root|tmp|usr|opt|work|Users|private|var|__w|builds)/|[A-Z]:\\")
MOST_BYTES = 300_000


@pytest.fixture(scope="module")
def script(docs_script: Callable[[str], Any]) -> Any:
    """The script that executes notebooks."""
    return docs_script("execute_notebooks")


@pytest.fixture(scope="module")
def executed(script: Any) -> Any:
    """The first notebook after its execution, with all that a reader sees."""
    return script.execute(FIRST_RUN)


def outputs(executed: Any, kind: str) -> list[Any]:
    """The shown contents of a kind, in the order of the cells."""
    shown = (output.get("data", {}) for cell in executed.cells for output in cell.get("outputs", []))
    return [data[kind] for data in shown if kind in data]


def test_there_are_six_notebooks() -> None:
    assert [path.name[:3] for path in NOTEBOOKS] == [f"{number:02}_" for number in range(1, 7)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_outputs_that_tell_nothing_of_the_machine(path: Path, script: Any) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < MOST_BYTES
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)], "executed once, from top to bottom"
    kinds = {output.output_type for cell in code for output in cell.outputs}
    assert "error" not in kinds and kinds <= {"stream", "execute_result", "display_data"}
    assert PATHS.findall(text) == []
    assert script.clean(copy.deepcopy(notebook)) == notebook, "stored by make notebooks"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_figures_of_a_notebook_are_stored_with_a_picture_for_viewers_without_plotly(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert len(outputs(notebook, PLOTLY)) == len(outputs(notebook, "image/png")) >= 1
    assert not any("plotly" in page for page in outputs(notebook, "text/html")), "no plotly.js in a notebook"


def test_what_differs_between_executions_is_not_stored(script: Any) -> None:
    new = nbformat.v4
    bar = new.new_output("display_data", {"text/html": "<progress max=2></progress>", "text/plain": "1 of 2"})
    figure = new.new_output("display_data", {PLOTLY: {"data": [], "layout": {}, "config": {}}, "text/html": "<script>"})
    lines = [new.new_output("stream", name=name, text=f"{name}\n") for name in ("stdout", "stderr", "stdout")]
    cell = new.new_code_cell("x", outputs=[bar, *lines, figure], metadata={"execution": {"began": "13:00"}})
    notebook = script.clean(new.new_notebook(cells=[cell], metadata={"language_info": {"name": "python", "version": "3.11.7"}}))
    text, kept = notebook.cells[0].outputs
    assert text.text == "stdout\nstdout\n" and kept.data == {PLOTLY: {"data": [], "layout": {}}}
    assert notebook.cells[0].metadata == {} and "version" not in notebook.metadata.language_info
    assert script.shown(notebook) == [["stdout\nstdout\n", PLOTLY]]


def test_a_notebook_that_shows_something_else_than_is_stored_is_reported(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = nbformat.read(FIRST_RUN, as_version=4)
    path = tmp_path / "changed.ipynb"
    nbformat.write(stored, path)
    monkeypatch.setattr(script, "execute", lambda path: copy.deepcopy(stored))
    assert script.check([path]) == 0
    table = next(output for cell in stored.cells for output in cell.get("outputs", []) if "text/html" in output.get("data", {}))
    table.data["text/html"] = table.data["text/html"].replace("1", "2", 1)
    assert script.check([path]) == 1
    assert "make notebooks" in capsys.readouterr().out


def test_the_path_from_import_to_comparison_takes_at_most_ten_lines() -> None:
    notebook = nbformat.read(FIRST_RUN, as_version=4)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert len([line for source in code for line in source.splitlines() if line.strip()]) <= 10
    assert all(any(step in source for source in code) for step in ("import simnmt", ".run(", ".figure(", ".compare("))


@pytest.mark.deep
def test_the_notebook_shows_progress_rows_and_figures(executed: Any) -> None:
    pages = outputs(executed, "text/html")
    bars = [page for page in pages if page.startswith("<progress")]
    assert len(bars) == 2 and all("6 of 6 units" in bar for bar in bars), "both runs show how far they are"
    assert any("deploy cnmt" in page and "<table" in page for page in pages)
    latency, changes = outputs(executed, PLOTLY)
    assert [trace["name"] for trace in latency["data"]] == ["edge", "cloud", "oracle", "naive", "cnmt"]
    assert [trace["name"] for trace in changes["data"]] == ["quickstart (2)"]


@pytest.mark.deep
def test_the_notebook_finds_that_a_faster_network_helps_those_who_use_it(executed: Any) -> None:
    (changes,) = outputs(executed, PLOTLY)[1]["data"]
    by_policy = dict(zip(("edge", "cloud", "oracle", "naive", "cnmt"), changes["x"], strict=True))
    assert by_policy["edge"] == 0.0 and max(value for policy, value in by_policy.items() if policy != "edge") < 0.0
    assert by_policy["cloud"] == min(by_policy.values())
