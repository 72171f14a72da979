"""A box that is left in peace or made of numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simnmt.calibrate import box as box_module
from simnmt.calibrate import calibration as run_module
from simnmt.calibrate.box import BusyWatch
from simnmt.calibrate.calibration import Calibrated, calibrate, measure
from simnmt.calibrate.harness import counted
from simnmt.calibrate.parts import Bench
from simnmt.calibrate.parts import energy as energy_part
from simnmt.calibrate.parts import model_memory as memory_part
from simnmt.calibrate.settings import Settings
from tests.calibrate.engines import BOX, QUICK, FakeEngine


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else computes while these tests run: they are not watched, nor is the clock."""
    monkeypatch.setattr(BusyWatch, "over_span", lambda: 0.0)
    monkeypatch.setattr(BusyWatch, "others_cpus", lambda watch: 0.0)
    monkeypatch.setattr(box_module, "frequency_mhz", lambda: None)


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts another box under the calibration."""

    def put(**facts: Any) -> None:
        monkeypatch.setattr(run_module, "describe", lambda **_: replace(BOX, **facts))

    put()
    monkeypatch.setattr(energy_part, "find_energy_meter", lambda device: (None, "rapl: no counter"))
    load = {"seconds": 0.5, "resident_bytes": 300_000_000}
    monkeypatch.setattr(memory_part, "load_in_fresh_process", lambda *_: load)
    return put


@dataclass
class Measured:
    """The parts of a calibration, measured on a box made of numbers."""

    bench: Bench
    frame: pd.DataFrame
    """Rows that were measured beside the reference work."""

    def rows(self, cell: str) -> pd.DataFrame:
        """Return the rows of executions, steps or encoders that count."""
        return counted(self.frame[self.frame["cell"] == cell])


@pytest.fixture
def parts(box: Any) -> Callable[..., Measured]:
    """Measures the parts of some settings with an engine made of numbers."""

    def run(settings: Settings, engine: FakeEngine | None = None, **options: Any) -> Measured:
        bench = Bench(settings, engine or FakeEngine(**options))
        frame = measure(bench, None)
        assert frame is not None
        return Measured(bench, frame)

    return run


@pytest.fixture
def measured(box: Any, tmp_path: Path) -> Callable[..., Calibrated]:
    """Calibrates that box with an engine made of numbers, to the same file each time."""

    def one(settings: Settings = QUICK, engine: FakeEngine | None = None, **options: Any) -> Calibrated:
        def load(*_: Any, **__: Any) -> FakeEngine:
            return FakeEngine() if engine is None else engine

        return calibrate(settings, tmp_path / "box.json", load=load, **options)

    return one
