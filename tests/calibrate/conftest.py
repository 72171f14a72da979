"""A box that is left in peace or made of numbers, and journals closed when the test ends, as when a process dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate import box as box_module
from simnmt.calibrate import calibration as run_module
from simnmt.calibrate import parts as parts_module
from simnmt.calibrate import processor_use
from simnmt.calibrate.calibration import Calibrated, calibrate
from simnmt.calibrate.energy import FoundMeter
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.settings import Settings
from tests.calibrate.engines import BOX, QUICK, FakeEngine, disk_samples


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else computes while these tests run: they are not watched, nor is the clock."""
    monkeypatch.setattr(processor_use, "others_cpus", lambda: 0.0)
    monkeypatch.setattr(box_module, "frequency_mhz", lambda: None)


@pytest.fixture
def open_journal(tmp_path: Path) -> Iterator[Callable[..., Journal]]:
    """Opens a journal, the same file each time unless named otherwise."""
    opened: list[Journal] = []

    def open_one(path: Path | str = "j.jsonl", header: Mapping[str, Any] = {"settings": {"model": "gru"}}) -> Journal:
        opened.append(Journal(tmp_path / path, header))
        return opened[-1]

    yield open_one
    for journal in opened:
        journal.close()


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts another box under the calibration."""

    def put(**facts: Any) -> None:
        monkeypatch.setattr(run_module, "describe", lambda **_: replace(BOX, **facts))

    put()
    monkeypatch.setattr(parts_module, "measure_disk", disk_samples)
    monkeypatch.setattr(parts_module, "find_energy_meter", lambda device: FoundMeter(None, ("rapl: no counter",)))
    return put


@pytest.fixture
def measured(box: Any, tmp_path: Path) -> Callable[..., Calibrated]:
    """Calibrates that box with an engine made of numbers, to the same file each time."""

    def one(settings: Settings = QUICK, engine: FakeEngine | None = None, **options: Any) -> Calibrated:
        def load(*_: Any, **__: Any) -> FakeEngine:
            return FakeEngine() if engine is None else engine

        return calibrate(settings, tmp_path / "box.json", load=load, **options)

    return one


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For torch, which else takes every core for models of a few numbers."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
