"""Execute the notebooks of the documentation, and store what they show: `python docs/execute_notebooks.py [NAME ...]`.

The site and GitHub show the stored outputs. With `--check`, which needs no browser, nothing is stored: it fails if a cell
fails, or shows another kind of output than the one that is stored. Each notebook runs in an empty folder of its own.

A figure is stored as the data of plotly, which the site draws, and as a small picture for viewers without plotly. Times, paths
and the bars of runs are not stored, so that only a change of simnmt changes a notebook.
"""

from __future__ import annotations

import base64
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "notebooks"
PLOTLY = "application/vnd.plotly.v1+json"
PNG, HTML = "image/png", "text/html"
WIDTH, HEIGHT = 640, 360
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""What is stored of the kernel: its version is the reader's."""


def execute(path: Path) -> Any:
    """Return a notebook after its execution, in a folder that is thrown away.

    The kernel is reached by sockets in that folder: ports would be open to everybody on this machine.
    """
    notebook = nbformat.read(path, as_version=4)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as sockets:
        manager = Config(KernelManager={"transport": "ipc", "connection_file": str(Path(sockets) / "kernel.json")})
        client = NotebookClient(
            notebook, config=manager, timeout=120, record_timing=False, resources={"metadata": {"path": folder}}
        )
        client.execute(env={**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"})
    return notebook


def clean(notebook: Any) -> Any:
    """Return a notebook without what differs between machines and executions: bars, log lines, versions of the kernel."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = list(kept_outputs(cell.outputs))
    return notebook


def kept_outputs(outputs: Sequence[Any]) -> Iterator[Any]:
    """Yield the outputs of a cell that are stored: printed text in one piece, and of a figure its data and layout."""
    text = None
    for output in outputs:
        data = output.get("data", {})
        if output.get("name") == "stderr" or data.get(HTML, "").startswith("<progress"):
            continue
        if output.output_type == "stream" and text is not None:
            text.text += output.text
            continue
        text = output if output.output_type == "stream" else None
        if PLOTLY in data:
            figure = {PLOTLY: {key: data[PLOTLY][key] for key in ("data", "layout")}}
            output.data = figure | {kind: data[kind] for kind in (PNG,) if kind in data}
            output.metadata = {}
        yield output


def shown(notebook: Any) -> list[list[str]]:
    """Return what each cell shows: its tables and texts, and the name of the kind for a figure, whose data has 16 digits."""
    outputs_of_cells = [cell.get("outputs", []) for cell in notebook.cells]
    return [
        [PLOTLY if PLOTLY in output.get("data", {}) else text_of(output) for output in outputs] for outputs in outputs_of_cells
    ]


def text_of(output: Any) -> str:
    """Return an output that is no figure as text, its HTML if it has some."""
    data = output.get("data", {})
    return str(data.get(HTML) or data.get("text/plain") or output.get("text", ""))


def add_pictures(notebook: Any, camera: Any) -> None:
    """Add a picture to each figure."""
    from plotly.graph_objects import Figure

    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if PLOTLY in output.get("data", {}):
                figure = Figure(output["data"][PLOTLY])
                output["data"][PNG] = base64.b64encode(camera.figure(figure, WIDTH, HEIGHT)).decode()


def check(paths: Sequence[Path]) -> int:
    """Execute notebooks, and print which of them show something else than what is stored; returns their number."""
    changed = 0
    for path in paths:
        begin_s = time.perf_counter()
        executed, stored = shown(clean(execute(path))), shown(nbformat.read(path, as_version=4))
        differing = [number for number, (new, old) in enumerate(zip(executed, stored, strict=True)) if new != old]
        changed += bool(differing)
        verdict = (
            f"cells {differing} show something else than is stored (make notebooks)" if differing else "shows what is stored"
        )
        print(f"{path.name}: {verdict}; {time.perf_counter() - begin_s:.1f} s", flush=True)
    return changed


def main() -> None:
    """Execute the notebooks named on the command line, or all; store them, or check them with `--check`."""
    names = [name for name in sys.argv[1:] if name != "--check"]
    paths = [FOLDER / f"{Path(name).stem}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb"))
    if "--check" in sys.argv[1:]:
        sys.exit(check(paths) > 0)
    from pictures import photographer

    for path in paths:
        notebook = clean(execute(path))
        # A browser of playwright and a kernel each have an event loop: the browser starts once the kernel has ended.
        with photographer() as camera:
            add_pictures(notebook, camera)
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
