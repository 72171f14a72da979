"""What is said of each box, and that nothing makes it fail."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from simnmt.calibrate import doctor_backends, doctor_box
from simnmt.calibrate.box import BoxDescription, GpuDescription, describe
from simnmt.calibrate.box.tree import Tree
from simnmt.calibrate.doctor import examine
from simnmt.calibrate.finding import Finding
from tests.calibrate.trees import container, graviton, laptop, orin, tx2, x86_server


def said(findings: Iterable[Finding], topic: str) -> list[tuple[str, str]]:
    return [(each.verdict, f"{each.what} ({each.remedy})") for each in findings if each.topic == topic]


def quiet_server(root: Path) -> Path:
    """Without its counters, for which the examination would wait."""
    shutil.rmtree(x86_server(root) / "sys/class/powercap")
    return root


def test_a_quiet_server_with_a_held_clock(tmp_path: Path) -> None:
    findings = examine(quiet_server(tmp_path)).findings
    assert said(findings, "clock")[0][0] == "can"
    assert said(findings, "load")[0][0] == "can"
    assert said(findings, "box") == []
    threads = said(findings, "threads")
    assert threads[0][1].startswith("8 threads at once: Intel(R) Xeon(R) Gold 6430, 4 cores")
    assert threads[1] == ("warning", "8 hardware threads share 4 cores (measure with --threads 4 or fewer)")


def test_a_busy_container_with_a_quota(tmp_path: Path) -> None:
    findings = examine(container(tmp_path)).findings
    assert [verdict for verdict, _ in said(findings, "threads")] == ["can", "warning", "warning"]
    assert "2.5 CPUs" in said(findings, "threads")[2][1]
    assert "1.5 GB free" in said(findings, "memory")[0][1]
    assert said(findings, "load")[0] == (
        "warning",
        "load average 12.00 on 16 CPUs: others compute here, and will disturb the times"
        " (wait until it is below 1.6: see uptime and top)",
    )
    assert said(findings, "clock")[0][0] == "cannot"
    assert "container (kubepods)" in said(findings, "box")[0][1]
    assert said(findings, "energy")[0][0] == "cannot"


def test_a_jetson_is_told_of_its_power_mode_and_its_rails(tmp_path: Path) -> None:
    findings = examine(orin(tmp_path)).findings
    clock = said(findings, "clock")
    assert clock[0] == (
        "warning",
        "governor schedutil: the clock follows the load (sudo cpupower frequency-set -g performance)",
    )
    assert "MODE_30W" in clock[1][1] and "jetson_clocks" in clock[1][1]
    assert said(findings, "energy") == [
        ("can", "cpu: ina3221, the sum of the module's rails (VDD_GPU_SOC, VDD_CPU_CV, VIN_SYS_5V0) (None)")
    ]


def test_a_laptop_is_told_of_battery_governor_and_memory(tmp_path: Path) -> None:
    box = describe(laptop(tmp_path))
    clock = said(doctor_box.clock(box, Tree.at(tmp_path)), "clock")
    assert [verdict for verdict, _ in clock] == ["warning", "warning"]
    assert "cpupower frequency-set -g performance" in clock[0][1] and "connect the mains" in clock[1][1]
    assert said(doctor_box.memory(box), "memory")[0][0] == "warning"
    assert said(doctor_box.load(box), "load")[0] == ("warning", "whether the box is quiet cannot be told (None)")


def test_energy_that_cannot_be_read_says_why_and_what_to_do(tmp_path: Path) -> None:
    (finding,) = doctor_box.energy("cpu", x86_server(tmp_path), sleep=lambda seconds: None)
    assert finding.verdict == "cannot"
    assert "stand still" in finding.what


@pytest.mark.parametrize("boxes", [graviton, tx2, lambda root: root])
def test_no_box_makes_it_fail(tmp_path: Path, boxes: Callable[[Path], Path]) -> None:
    examination = examine(boxes(tmp_path))
    assert {each.topic for each in examination.findings} >= {"threads", "simd", "memory", "clock", "load", "energy"}
    assert all(each.verdict in ("can", "cannot", "warning") and "\n" not in str(each) for each in examination.findings)


def test_a_disk_is_looked_at_without_being_written_to(tmp_path: Path) -> None:
    assert [each.topic for each in doctor_box.disk(tmp_path)] == ["disk"]
    assert list(tmp_path.iterdir()) == []
    (missing,) = doctor_box.disk(tmp_path / "nowhere")
    assert (missing.verdict, missing.what) == ("cannot", f"{tmp_path}/nowhere: no such folder")


GPU = GpuDescription(0, "NVIDIA X", 8 * 10**9, "8.7", "550.1", ("torch", "nvml"))


def box(**known: object) -> BoxDescription:
    return replace(BoxDescription("x86_64", "Linux"), **known)  # type: ignore[arg-type]


def test_a_gpu_that_torch_sees_can_and_one_that_only_the_driver_sees_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(GPU, index=1, seen_by=("nvml",))
    monkeypatch.setattr(doctor_backends, "loaded", lambda name: SimpleNamespace(version=SimpleNamespace(cuda=None)))
    seen, unseen = doctor_backends.gpu_finding(box(gpus=(GPU, other)))
    assert (seen.verdict, seen.what) == ("can", "cuda:0: NVIDIA X, 8.0 GB, compute capability 8.7, driver 550.1")
    assert unseen.verdict == "cannot" and "built for CPUs alone" in str(unseen)


def test_a_jetson_whose_torch_was_replaced_is_led_to_the_documentation(tmp_path: Path) -> None:
    (finding,) = doctor_backends.gpu_finding(describe(orin(tmp_path)))
    assert finding.verdict == "cannot" and "docs/boxes.md" in str(finding)


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({}, "torch is not installed (pip install 'simnmt[models]'"),
        ({"torch": "2.9"}, "torch 2.9 is installed, but does not load: x"),
    ],
)
def test_torch_that_is_missing_or_broken(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], told: str) -> None:
    monkeypatch.setattr(doctor_backends, "loaded", lambda name: "x.so: cannot open")
    (finding,) = doctor_backends.torch_finding(box(versions=versions))
    assert told in str(finding)
    (finding,) = doctor_backends.ctranslate2_finding(box())
    assert finding.verdict == "cannot" and "simnmt[ctranslate2]" in str(finding)


def test_ctranslate2_says_itself_what_it_computes_with(monkeypatch: pytest.MonkeyPatch) -> None:
    def types(device: str) -> set[str]:
        if device == "cuda":
            raise RuntimeError("CUDA driver version is insufficient\nfor this runtime")
        return {"int8", "float32"}

    library = SimpleNamespace(get_cuda_device_count=lambda: 1, get_supported_compute_types=types)
    monkeypatch.setattr(doctor_backends, "loaded", lambda name: library)
    cpu, cuda = doctor_backends.ctranslate2_finding(box(versions={"ctranslate2": "4.8"}))
    assert cpu.what == "CTranslate2 4.8 on cpu: float32, int8"
    assert (cuda.verdict, cuda.what) == ("cannot", "CTranslate2 4.8 on cuda: CUDA driver version is insufficient")


def test_compute_types_of_torch_are_tried_on_the_device() -> None:
    pytest.importorskip("torch")
    findings = list(doctor_backends.torch_finding(describe(libraries=False)))
    assert findings[0].verdict == "can"
    assert "on cpu: float32" in findings[0].what
