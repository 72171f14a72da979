"""Counters against known watts; what cannot be read is None."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simnmt.calibrate.box.system_files import Tree
from simnmt.calibrate.energy_counters import CounterMeter, find_energy_meter, open_ina3221, open_nvml
from simnmt.calibrate.energy_meter import Obstacle, PowerIntegral, SampledMeter
from tests.calibrate.trees import container, orin, x86_server

RANGE_UJ = 262143328850


def no_sleep(seconds: float) -> None:
    pass


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return x86_server(tmp_path)


def counter(root: Path, package: int) -> Path:
    return root / f"sys/class/powercap/intel-rapl:{package}/energy_uj"


def advance(root: Path, *steps_uj: int) -> None:
    for package, step_uj in enumerate(steps_uj):
        path = counter(root, package)
        path.write_text(f"{(int(path.read_text()) + step_uj) % (RANGE_UJ + 1)}\n")


def opened(root: Path) -> CounterMeter:
    """With counters that move while it looks whether they do."""
    meter = find_energy_meter("cpu", root, sleep=lambda seconds: advance(root, 1, 0)).meter
    assert isinstance(meter, CounterMeter)
    return meter


def test_rapl_adds_up_the_packages_alone(server: Path) -> None:
    meter = opened(server)
    assert (meter.source, meter.domains) == ("rapl", ("package-0", "package-1"))
    before = meter.read_j()
    advance(server, 5_000_000, 2_500_000)
    after = meter.read_j()
    assert before is not None and after is not None
    assert after - before == pytest.approx(7.5)


def test_rapl_counts_on_where_its_counter_begins_anew(server: Path) -> None:
    counter(server, 0).write_text(str(RANGE_UJ - 1_000_000))
    meter = opened(server)
    before = meter.read_j()
    advance(server, 3_000_000, 0)
    assert int(counter(server, 0).read_text()) < 3_000_000
    assert meter.read_j() - before == pytest.approx(3.0)


def test_a_counter_that_does_not_move_is_not_used(server: Path) -> None:
    search = find_energy_meter("cpu", server, sleep=no_sleep)
    assert search.meter is None
    (obstacle,) = search.obstacles  # that it is no Jetson either explains nothing
    assert "do not move" in str(obstacle)


def test_a_counter_that_only_root_may_read_is_explained_with_the_remedy(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter(server, 0).chmod(0)
    if os.access(counter(server, 0), os.R_OK):  # we are root ourselves
        _refuse(monkeypatch, counter(server, 0))
    search = find_energy_meter("cpu", server, sleep=no_sleep)
    counter(server, 0).chmod(stat.S_IRUSR | stat.S_IWUSR)
    assert search.meter is None
    assert "CVE-2020-8694" in search.obstacles[0].why
    assert search.obstacles[0].remedy is not None and "chmod a+r" in search.obstacles[0].remedy


def _refuse(monkeypatch: pytest.MonkeyPatch, closed: Path) -> None:
    read_text = Path.read_text

    def refusing(path: Path, *args: Any, **kwargs: Any) -> str:
        if path == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", refusing)


@pytest.mark.parametrize(
    ("boxes", "why"),
    [
        (container, "virtual machine or container"),
        (lambda root: root, "read from Linux's /sys"),
    ],
)
def test_a_box_without_rapl_gives_the_reason(tmp_path: Path, boxes: Callable[[Path], Path], why: str) -> None:
    search = find_energy_meter("cpu", boxes(tmp_path), sleep=no_sleep)
    assert search.meter is None
    assert why in search.obstacles[0].why


def test_the_area_under_a_line_is_exact_and_under_a_parabola_nearly() -> None:
    line, parabola = PowerIntegral(), PowerIntegral()
    for at_s in (0.0, 0.5, 0.6, 2.0):
        line.add(at_s, 3.0 + 2.0 * at_s)
    for tick in range(1001):
        parabola.add(tick / 1000, (tick / 1000) ** 2)
    assert line.joules == pytest.approx(3.0 * 2.0 + 2.0**2)
    assert parabola.joules == pytest.approx(1 / 3, rel=1e-5)


def clock(*times: float) -> Callable[[], float]:
    ticks: Iterator[float] = iter(times)
    return lambda: next(ticks)


def test_a_sampled_meter_counts_up_to_the_moment_it_is_asked() -> None:
    watts = iter([10.0, 10.0, 30.0])
    meter = SampledMeter("x", "", (), lambda: next(watts), 1.0, now=clock(0.0, 2.0, 3.0), in_thread=False)
    assert meter.read_j() == pytest.approx(20.0)
    assert meter.read_j() == pytest.approx(20.0 + 20.0)
    assert meter.read_j() is None  # no more samples: unknown, and stays so
    assert meter.read_j() is None


def test_the_sampling_thread_samples_and_ends() -> None:
    taken = []
    closed = []
    meter = SampledMeter("x", "", (), lambda: float(taken.append(1) or 5), 1e-4, closing=lambda: closed.append(1))
    while len(taken) < 20:
        pass
    meter.close()
    meter.close()
    count = len(taken)
    assert not meter._thread.is_alive()
    assert (meter.read_j() or 0) > 0.0
    assert (len(taken), closed) == (count, [1])


def test_an_orin_counts_each_watt_once(tmp_path: Path) -> None:
    """Its memory rail is fed by the 5 V rail, as NVIDIA's guide says."""
    meter = open_ina3221(Tree.at(orin(tmp_path)), in_thread=False)
    assert isinstance(meter, SampledMeter)
    assert meter.domains == ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
    assert meter.read_w() == pytest.approx(4.0 + 1.0 + 3.0)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_both_devices_of_a_jetson_are_on_the_same_rails(tmp_path: Path, device: str) -> None:
    search = find_energy_meter(device, orin(tmp_path), sleep=no_sleep)
    assert search.meter is not None
    first = search.meter.read_j()
    second = search.meter.read_j()
    search.meter.close()
    assert first is not None and second is not None and second > first > 0.0
    assert search.meter.source == "ina3221"


class Nvml(SimpleNamespace):
    """Stands in for NVIDIA's library; knows one GPU."""

    def nvmlInit(self) -> None:
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index:
            raise RuntimeError("Invalid Argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return {"GPU-one": 0}[uuid]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if self.energy_mj is None:
            raise RuntimeError("Not Supported")
        self.energy_mj += self.step_mj
        return self.energy_mj

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if self.power_mw is None:
            raise RuntimeError("Not Supported")
        return self.power_mw


def test_a_gpu_with_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml = Nvml(energy_mj=10**9, step_mj=1500, power_mw=None)
    meter = open_nvml(0, no_sleep, nvml)
    assert isinstance(meter, CounterMeter)
    assert meter.read_j() == pytest.approx(1.5)
    nvml.energy_mj = 0  # the driver was loaded anew
    assert meter.read_j() is None
    meter.close()
    assert not nvml.open


def test_an_older_gpu_is_sampled() -> None:
    nvml = Nvml(energy_mj=None, step_mj=0, power_mw=250_000)
    meter = open_nvml(0, no_sleep, nvml, in_thread=False)
    assert isinstance(meter, SampledMeter)
    assert meter.read_w() == pytest.approx(250.0)
    meter.close()
    assert not nvml.open


@pytest.mark.parametrize("visible", ["GPU-one", "GPU-one,GPU-other", "0"])
def test_cuda_counts_only_the_gpus_that_it_may_see(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nvml = Nvml(energy_mj=0, step_mj=1, power_mw=None)
    assert isinstance(open_nvml(0, no_sleep, nvml), CounterMeter)
    assert isinstance(open_nvml(5, no_sleep, nvml), Obstacle)
