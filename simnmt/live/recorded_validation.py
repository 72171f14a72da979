"""A recorded validation: its result and its live runs as committed data, and the replay of these runs by today's simulation."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.live.cell_comparison import Cell, Rules, live_figures, reason_void, simulated_figures
from simnmt.live.protocol import Bench, Protocol
from simnmt.live.recorded_runs import RUNS, load_runs
from simnmt.live.validation import VALIDATION, structural_run
from simnmt.results.run_directory import INPUT


def record(out: Path, name: str) -> Path:
    """Copy the result of a validation and its runs to the folder of recorded validations, and return the copy.

    Raises `InputError` if the name is taken or no name of a folder, or if simnmt is not a source checkout.
    """
    folder = check_name(name)
    folder.mkdir(parents=True)
    for file in (VALIDATION, RUNS, INPUT):
        shutil.copyfile(out / file, folder / file)
    for path in sorted(out.glob("*.profile.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        # Without indents, which are half of its size.
        (folder / path.name).write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    return folder


def check_name(name: str) -> Path:
    """Return the folder of a recorded validation, which must be free. Raises `InputError`."""
    validations = shipped_files.folder("validation")
    if not name.replace("-", "").isalnum() or not name.isascii():
        raise InputError(f"--record {name}: not a name", remedy="use letters, digits and hyphens")
    if not (validations.parent / "pyproject.toml").is_file():
        raise InputError(f"--record {name}: simnmt is installed without its sources", remedy="record from a source checkout")
    if (validations / name).exists():
        raise InputError(f"--record {name}: a validation of this name is recorded", remedy="take another name, or remove it")
    return validations / name


@dataclass(frozen=True, slots=True)
class ReplayedCell:
    """Structural errors of a recorded cell, as recorded and by today's simulation."""

    cell: Cell
    recorded_mean: float
    recorded_p95: float
    replayed_mean: float
    replayed_p95: float

    @property
    def growth(self) -> float:
        """By how much an absolute error has grown; negative if both have shrunk."""
        return max(
            abs(self.replayed_mean) - abs(self.recorded_mean),
            abs(self.replayed_p95) - abs(self.recorded_p95),
        )


def replay_recorded(folder: Path) -> list[ReplayedCell]:
    """Simulate the live runs of a recorded validation by their own executions and targets, and return the errors by cell.

    Raises `InputError` for another folder.
    """
    try:
        document: dict[str, Any] = json.loads((folder / VALIDATION).read_text(encoding="utf-8"))
        written = document["protocol"]
        cells = [Cell(one["policy"], one["batching"], one["load"], one["link"]) for one in document["cells"]]
        protocol = Protocol(seed=written["seed"], rules=Rules(**written["rules"]))
        overrides, capacity_rps = written["overrides"], written["capacity_rps"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"not a recorded validation ({error})", path=folder, remedy="record it anew") from None
    requests, runs = load_runs(folder / RUNS, cells)
    with TemporaryDirectory(prefix="simnmt-", ignore_cleanup_errors=True) as scratch:
        bench = Bench(str(folder / INPUT), overrides, protocol, Path(scratch))
        for path in folder.glob("*.profile.json"):
            bench.measured[f"devices.{path.name.removesuffix('.profile.json')}.profile"] = str(path.absolute())
        replayed = []
        for cell, recorded in zip(cells, document["cells"], strict=True):
            unit = bench.unit(cell, cell.load * capacity_rps, len(requests[cell].src_len))
            others = [run for other in cells if other != cell for run in runs[other]]
            kept = [run for run in runs[cell] if not reason_void(run, protocol.rules)] or runs[cell]
            live = [live_figures(run) for run in kept]
            simulated = [
                simulated_figures(structural_run(unit, cell, requests[cell], run, others), run.log.due_s) for run in kept
            ]
            errors = [
                float(np.mean([getattr(one, name) for one in simulated]) / np.mean([getattr(one, name) for one in live]) - 1.0)
                for name in ("mean_s", "p95_s")
            ]
            recorded_errors = recorded["structural_error_mean"], recorded["structural_error_p95"]
            replayed.append(ReplayedCell(cell, *recorded_errors, *errors))
    return replayed
