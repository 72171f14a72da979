"""The notebooks of the documentation, executed in a kernel as a reader would."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).parents[1]
FIRST_RUN = ROOT / "docs" / "notebooks" / "first_run.ipynb"
PLOTLY = "application/vnd.plotly.v1+json"


@pytest.fixture(scope="module")
def notebook() -> Any:
    return nbformat.read(FIRST_RUN, as_version=4)


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook after its execution in an empty folder, over sockets in it: ports would be open to everybody."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(FIRST_RUN, as_version=4)
    sockets = Config(KernelManager={"transport": "ipc", "connection_file": str(folder / "kernel.json")})
    client = NotebookClient(notebook, config=sockets, timeout=60, resources={"metadata": {"path": str(folder)}})
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT)})
    return notebook


def outputs(executed: Any, kind: str) -> list[Any]:
    """The shown contents of a kind, in the order of the cells."""
    shown = (output.get("data", {}) for cell in executed.cells for output in cell.get("outputs", []))
    return [data[kind] for data in shown if kind in data]


def test_the_path_from_import_to_comparison_takes_at_most_ten_lines(notebook: Any) -> None:
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert len([line for source in code for line in source.splitlines() if line.strip()]) <= 10
    assert all(any(step in source for source in code) for step in ("import simnmt", ".run(", ".figure(", ".compare("))
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are the reader's"


def test_the_notebook_shows_progress_rows_and_figures(executed: Any) -> None:
    pages = outputs(executed, "text/html")
    bars = [page for page in pages if page.startswith("<progress")]
    assert len(bars) == 2 and all("6 of 6 units" in bar for bar in bars), "both runs show how far they are"
    assert any("deploy cnmt" in page and "<table" in page for page in pages)
    latency, changes = outputs(executed, PLOTLY)
    assert [trace["name"] for trace in latency["data"]] == ["edge", "cloud", "oracle", "naive", "cnmt"]
    assert [trace["name"] for trace in changes["data"]] == ["quickstart (2)"]


def test_the_notebook_finds_that_a_faster_network_helps_those_who_use_it(executed: Any) -> None:
    (changes,) = outputs(executed, PLOTLY)[1]["data"]
    by_policy = dict(zip(("edge", "cloud", "oracle", "naive", "cnmt"), changes["x"], strict=True))
    assert by_policy["edge"] == 0.0 and max(value for policy, value in by_policy.items() if policy != "edge") < 0.0
    assert by_policy["cloud"] == min(by_policy.values())
