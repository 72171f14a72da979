"""Counters of energy against known watts."""

from __future__ import annotations

import sys
import time
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


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_an_orin_counts_each_watt_once_for_both_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Its memory rail is fed by the 5 V rail, as NVIDIA's guide says."""
    chips = {
        3: [("VDD_GPU_SOC", 20000, 200), ("VDD_CPU_CV", 20000, 50), ("VIN_SYS_5V0", 5000, 600)],
        4: [("NC", 0, 0), ("VDDQ_VDD2_1V8AO", 5000, 80)],
    }
    plant(tmp_path, {"sys/class/hwmon/hwmon0/name": "tmp102"})
    for chip, channels in chips.items():
        folder = f"sys/class/hwmon/hwmon{chip}"
        plant(tmp_path, {f"{folder}/name": "ina3221", f"{folder}/in7_label": "sum of shunt voltages"})
        for channel, (label, voltage_mv, current_ma) in enumerate(channels, 1):
            plant(tmp_path, {f"{folder}/in{channel}_label": label, f"{folder}/in{channel}_input": voltage_mv})
            plant(tmp_path, {f"{folder}/curr{channel}_input": current_ma})
    monkeypatch.setattr(box, "ROOT", tmp_path)
    begin_s = time.perf_counter()
    meter = find_energy_meter(device)[0]
    assert meter is not None and meter.source == "ina3221"
    assert "(VDD_CPU_CV, VDD_GPU_SOC, VIN_SYS_5V0)" in meter.scope
    while joules(meter) == 0.0:
        time.sleep(energy.SAMPLE_S)
    assert 0.0 < joules(meter) <= (4.0 + 1.0 + 3.0) * (time.perf_counter() - begin_s)
    (tmp_path / "sys/class/hwmon/hwmon3/curr1_input").unlink()
    while meter.read_j() is not None:
        time.sleep(energy.SAMPLE_S)
    meter.close()


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
