"""What is said of each box, and that nothing makes it fail."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from simnmt.base.packages import install_command
from simnmt.calibrate import doctor
from simnmt.calibrate.box import BoxDescription, GpuDescription, describe
from simnmt.calibrate.box.system_files import Tree
from simnmt.calibrate.doctor import Finding, examine
from simnmt.nmt.engine import Work
from simnmt.nmt.engines import load_engine
from tests.calibrate.trees import container, laptop, orin, x86_server


def said(findings: Iterable[Finding], topic: str) -> list[tuple[str, str]]:
    return [(finding.status, f"{finding.what} ({finding.remedy})") for finding in findings if finding.topic == topic]


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
    assert [status for status, _ in said(findings, "threads")] == ["can", "warning", "warning"]
    assert "2.5 CPUs" in said(findings, "threads")[2][1]
    assert "1.5 GB free" in said(findings, "memory")[0][1]
    assert said(findings, "load")[0] == (
        "warning",
        "load average 12.00 on 16 CPUs: other programs will disturb the times (wait until it is below 1.6: see top)",
    )
    assert said(findings, "clock")[0][0] == "cannot"
    assert "container (kubepods)" in said(findings, "box")[0][1]
    assert said(findings, "energy")[0][0] == "cannot"


def test_a_jetson_gets_findings_on_its_power_mode_and_its_rails(tmp_path: Path) -> None:
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


def test_a_laptop_gets_findings_on_battery_governor_and_memory(tmp_path: Path) -> None:
    box = describe(laptop(tmp_path))
    clock = said(doctor.clock(box, Tree.at(tmp_path)), "clock")
    assert [status for status, _ in clock] == ["warning", "warning"]
    assert "cpupower frequency-set -g performance" in clock[0][1] and "connect the mains" in clock[1][1]
    assert said(doctor.memory(box), "memory")[0][0] == "warning"
    assert said(doctor.load(box), "load")[0] == ("warning", "whether the box is quiet is unknown (None)")
    watched = [said(doctor.load(box, others), "load")[0][0] for others in (0.01, 3.0)]
    assert watched == ["can", "warning"], "by what others use now, as calibrate judges"


def test_unreadable_energy_gives_a_reason_and_a_remedy(tmp_path: Path) -> None:
    (finding,) = doctor.energy("cpu", x86_server(tmp_path), sleep=lambda seconds: None)
    assert finding.status == "cannot"
    assert "do not move" in finding.what


@pytest.mark.parametrize("boxes", [orin, lambda root: root])
def test_no_box_makes_it_fail(tmp_path: Path, boxes: Callable[[Path], Path]) -> None:
    examination = examine(boxes(tmp_path))
    assert {finding.topic for finding in examination.findings} >= {"threads", "simd", "memory", "clock", "load", "energy"}
    assert all(finding.status in ("can", "cannot", "warning") and "\n" not in str(finding) for finding in examination.findings)


def test_a_disk_is_looked_at_without_being_written_to(tmp_path: Path) -> None:
    assert [finding.topic for finding in doctor.disk(tmp_path)] == ["disk"]
    assert list(tmp_path.iterdir()) == []
    (missing,) = doctor.disk(tmp_path / "nowhere")
    assert (missing.status, missing.what) == ("cannot", f"{tmp_path}/nowhere: no such folder")


GPU = GpuDescription(0, "NVIDIA X", 8 * 10**9, "8.7", "550.1", ("torch", "nvml"))


def box(**known: object) -> BoxDescription:
    return replace(BoxDescription("x86_64", "Linux"), **known)  # type: ignore[arg-type]


def test_a_gpu_that_torch_sees_can_and_one_that_only_the_driver_sees_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(GPU, index=1, seen_by=("nvml",))
    monkeypatch.setattr(doctor, "loaded", lambda name: SimpleNamespace(version=SimpleNamespace(cuda=None)))
    seen, unseen = doctor.gpu_finding(box(gpus=(GPU, other)))
    assert (seen.status, seen.what) == ("can", "cuda:0: NVIDIA X, 8.0 GB, compute capability 8.7, driver 550.1")
    assert unseen.status == "cannot" and "built for CPUs only" in str(unseen)


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({}, f"torch is not installed ({install_command('models')}"),
        ({"torch": "2.9"}, "torch 2.9 is installed, but does not load: x"),
    ],
)
def test_torch_that_is_missing_or_broken(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], message: str) -> None:
    monkeypatch.setattr(doctor, "loaded", lambda name: "x.so: cannot open")
    (finding,) = doctor.torch_finding(box(versions=versions))
    assert message in str(finding)
    (finding,) = doctor.ctranslate2_finding(box())
    assert finding.status == "cannot" and "simnmt[ctranslate2]" in str(finding)


def test_a_device_that_a_backend_cannot_use_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def types(backend: str, device: str) -> list[str]:
        if device == "cuda":
            raise RuntimeError("CUDA driver version is insufficient\nfor this runtime")
        return ["float32", "int8"]

    monkeypatch.setattr(doctor, "loaded", lambda name: SimpleNamespace(get_cuda_device_count=lambda: 1))
    monkeypatch.setattr(doctor, "supported_types", types)
    cpu, cuda = doctor.ctranslate2_finding(box(versions={"ctranslate2": "4.8"}))
    assert cpu.what == "CTranslate2 4.8 on cpu: float32, int8"
    assert (cuda.status, cuda.what) == ("cannot", "CTranslate2 4.8 on cuda: CUDA driver version is insufficient")


@pytest.mark.deep
@pytest.mark.parametrize("backend", ["torch", "ctranslate2"])
def test_every_type_that_it_shows_is_one_that_the_engine_takes(backend: str, tmp_path: Path) -> None:
    tiny = {"kind": "transformer", "encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "heads": 2, "ffn": 16, "vocab": 50}
    (tmp_path / "tiny.json").write_text(json.dumps(tiny))
    findings = {"torch": doctor.torch_finding, "ctranslate2": doctor.ctranslate2_finding}[backend]
    finding = next(iter(findings(describe(libraries=False))))
    assert finding.status == "can"
    types = finding.what.partition(": ")[2].split(", ")
    assert types[0] == "float32"
    for compute_type in types:
        engine = load_engine(str(tmp_path / "tiny.json"), backend=backend, compute_type=compute_type)
        assert engine.account.compute_type.startswith(compute_type), "CTranslate2 adds what it computes the rest with"
        engine.run(Work(3, 2))
        engine.close()
