"""Counters of energy against known watts."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from simnmt.calibrate import box, energy
from simnmt.calibrate.energy import EnergyMeter, find_energy_meter
from tests.calibrate.test_box import plant

RANGE_UJ = 262143328850


def counter(root: Path, package: int) -> Path:
    return root / f"sys/class/powercap/intel-rapl:{package}/energy_uj"


def advance(root: Path, *steps_uj: int) -> None:
    for package, step_uj in enumerate(steps_uj):
        path = counter(root, package)
        path.write_text(f"{(int(path.read_text()) + step_uj) % (RANGE_UJ + 1)}\n")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A server with two packages, whose counters move while time passes."""
    files: dict[str, object] = {}
    for package in (0, 1):
        zone = f"sys/class/powercap/intel-rapl:{package}"
        files |= {f"{zone}/name": f"package-{package}", f"{zone}/max_energy_range_uj": RANGE_UJ, f"{zone}/energy_uj": 1000}
        files |= {f"{zone}:0/name": "dram", f"{zone}:0/energy_uj": 77}
    plant(tmp_path, files)
    monkeypatch.setattr(box, "ROOT", tmp_path)
    monkeypatch.setattr(energy.time, "sleep", lambda seconds: advance(tmp_path, 1, 0))
    return tmp_path


def joules(meter: EnergyMeter | None) -> float:
    assert meter is not None
    read_j = meter.read_j()
    assert read_j is not None
    return read_j


def test_rapl_adds_up_the_packages_alone_and_counts_on_where_a_counter_begins_anew(root: Path) -> None:
    counter(root, 0).write_text(str(RANGE_UJ - 1_000_000))
    meter = find_energy_meter("cpu")[0]
    assert meter is not None and meter.source == "rapl" and "(package-0, package-1)" in meter.scope
    before = joules(meter)
    advance(root, 5_000_000, 2_500_000)
    assert int(counter(root, 0).read_text()) < 5_000_000
    assert joules(meter) - before == pytest.approx(7.5)


def test_a_counter_that_cannot_be_read_or_does_not_move_is_an_obstacle(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", "energy_uj")

    with monkeypatch.context() as closed:
        closed.setattr(energy, "joules_since", refuse)
        assert "only root may read energy_uj" in find_energy_meter("cpu")[1]
    monkeypatch.setattr(energy.time, "sleep", lambda seconds: None)
    meter, obstacle = find_energy_meter("cpu")
    assert meter is None and obstacle.startswith("rapl: ")
    counter(root, 0).write_text("x")
    assert find_energy_meter("cpu")[0] is None
    monkeypatch.setattr(box, "ROOT", root / "empty")
    assert find_energy_meter("cpu")[1].startswith("rapl: no counters")


class Nvml(SimpleNamespace):
    """Stands in for NVIDIA's library; knows one GPU."""

    def nvmlInit(self) -> None:
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        self.energy_mj += self.step_mj
        return self.energy_mj


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    library = Nvml(energy_mj=10**9, step_mj=1500)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


def test_a_gpu_with_a_counter(nvml: Nvml) -> None:
    meter = find_energy_meter("cuda:0")[0]
    assert meter is not None and meter.source == "nvml"
    before_j = joules(meter)
    assert joules(meter) - before_j == pytest.approx(1.5)
    nvml.energy_mj = 0  # the driver was loaded anew
    assert meter.read_j() is None
    meter.close()
    assert not nvml.open
