"""Findings on each kind of box, and that nothing makes the examination fail."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from simnmt.calibrate import doctor
from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.doctor import engine_finding, examine, hardware_findings
from simnmt.nmt.engine import Work, load_engine

SERVER = BoxDescription(
    *("x86_64", "Linux 6.8"),
    cpu_model="Intel(R) Xeon(R) Gold 6430",
    logical_cores=8,
    allowed_cpus=tuple(range(8)),
    allowed_cores=4,
    simd=("avx2", "avx512_vnni"),
    memory_available_bytes=120 * 10**9,
    governor="performance",
)


def statuses(described: BoxDescription, topic: str) -> list[str]:
    return [finding.status for finding in hardware_findings(described, 0.0) if finding.topic == topic]


@pytest.mark.parametrize(
    ("facts", "topic", "expected"),
    [
        ({}, "clock", ["can"]),
        ({}, "simd", ["can"]),
        ({}, "box", []),
        ({}, "threads", ["can"]),
        ({"allowed_cpus": (0, 1, 2), "cpu_quota": 2.5}, "threads", ["can", "warning", "warning"]),
        ({"memory_available_bytes": 1_500_000_000}, "memory", ["warning"]),
        ({"simd": ()}, "simd", ["warning"]),
        ({"governor": None}, "clock", ["cannot"]),
        ({"governor": "powersave"}, "clock", ["warning"]),
        ({"jetson": "L4T 36.4.3, power mode MAXN"}, "clock", ["can", "warning"]),
        ({"virtualisation": "container (kubepods)"}, "box", ["warning"]),
    ],
)
def test_hardware_is_fit_or_warned_of(facts: dict[str, object], topic: str, expected: list[str]) -> None:
    assert statuses(replace(SERVER, **facts), topic) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(("others", "status"), [(None, "warning"), (0.0, "can"), (7.0, "warning")])
def test_the_load_is_quiet_only_where_it_is_known(others: float | None, status: str) -> None:
    assert [finding.status for finding in hardware_findings(SERVER, others) if finding.topic == "load"] == [status]


def test_the_box_at_hand_gets_all_findings_in_single_lines_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    _, findings = examine(tmp_path)
    topics = {"threads", "simd", "memory", "clock", "load", "torch", "ctranslate2", "gpu", "energy", "disk"}
    assert {finding.topic for finding in findings} >= topics
    assert not any("\n" in str(finding) for finding in findings)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing_cannot_be_measured(tmp_path: Path) -> None:
    missing = doctor.disk_finding(tmp_path / "nowhere")
    assert (missing.status, missing.what) == ("cannot", f"{tmp_path}/nowhere: no such folder")


@pytest.mark.deep
@pytest.mark.parametrize("backend", ["torch", "ctranslate2"])
def test_every_type_that_it_shows_is_one_that_the_engine_takes(backend: str, tmp_path: Path) -> None:
    tiny = {"kind": "transformer", "encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "heads": 2, "ffn": 16, "vocab": 50}
    (tmp_path / "tiny.json").write_text(json.dumps(tiny))
    finding = engine_finding(backend, backend, "cpu")
    assert finding.status == "can"
    types = finding.what.partition(": ")[2].split(", ")
    assert types[0] == "float32"
    for compute_type in types:
        engine = load_engine(str(tmp_path / "tiny.json"), backend=backend, compute_type=compute_type)
        assert engine.account.compute_type.startswith(compute_type), "CTranslate2 adds what it computes the rest with"
        engine.run(Work(3, 2))
        engine.close()
