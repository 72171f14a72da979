"""A scenario of Table I on made-up devices, as `simnmt reproduce cnmt --measured` takes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from simnmt.base import shipped_files
from simnmt.profile.cost import Plane
from simnmt.profile.device_profile import DeviceProfile, write_profile

GATEWAY = {"bilstm": (0.069, 8.165, 2.3), "gru": (0.037, 2.569, 0.23), "marian": (0.449, 17.49, 7.0)}
"""Milliseconds per source token, per target token and fixed, on one thread of a server processor."""
CLOUD = {"bilstm": (0.025, 2.9, 0.8), "gru": (0.015, 1.0, 0.1), "marian-int8": (0.07, 3.6, 0.4)}
LEVELS_MS = {"cp1": 137, "cp2": 89.4}
"""Mean RTTs at which both devices win requests of some data sets, not of all."""
VOCAB = {"bilstm": 50_000, "gru": 32_000, "marian": 65_001, "marian-int8": 65_001}


def profile(
    name: str, model: str, plane_ms: tuple[float, float, float], kind: str = "measured", **blocks: Any
) -> DeviceProfile:
    """Return a profile of this plane with a grid of samples, 2 % of noise and a decision of 0.4 us; `blocks` replace parts."""
    plane = Plane(*(1e-3 * value for value in plane_ms))
    unit = "subword" if model.startswith("marian") else "word"
    samples = []
    for src_len in (2, 20, 80):
        for tgt_len in (2, 10, 40, 80):
            time_s = float(plane.seconds(src_len, tgt_len))
            quartiles = {"p25_s": 0.9865 * time_s, "median_s": time_s, "p75_s": 1.0135 * time_s, "sd_s": 0.02 * time_s}
            samples.append(
                {"src_len": src_len, "tgt_len": tgt_len, "repeats": 3, "min_s": 0.96 * time_s, "mean_s": time_s, **quartiles}
            )
    content = {
        "schema_version": 2,
        "name": name,
        "device": {"name": "a made-up box"},
        "model": {"name": model, "vocab": VOCAB[model]},
        "length_unit": {"src": unit, "tgt": unit},
        "valid_range": {"src_len": (0, 200), "tgt_len": (0, 200)},
        "execution": {
            "kind": kind,
            "plane": {key: getattr(plane, key) for key in ("s_per_src_token", "s_per_tgt_token", "s_fixed")},
            "residual_relative_sd": 0.02,
            "samples": tuple(samples),
        },
        "overheads": {"decision_s": {"value": 4e-7, "kind": kind}},
        "provenance": {"source": "made up", "date": "2026-01-01", "tool": "a test"},
    }
    return DeviceProfile.model_validate(content | blocks)


def write_stand_ins(folder: Path, kind: str = "measured", **blocks: Any) -> Path:
    """Write the shipped scenario with made-up profiles and levels into `folder`; return the scenario's path."""
    text = shipped_files.find("scenarios", "table1-measured").read_text(encoding="utf-8")
    for prefix, planes in (("cpu1", GATEWAY), ("cpu2", CLOUD)):
        for model, plane_ms in planes.items():
            name = f"{prefix}-{model}"
            write_profile(folder / f"{name}.json", profile(name, model, plane_ms, kind, **blocks))
            text = text.replace(f'"@{name}"', f'"{name}.json"')
    for network, level_ms in LEVELS_MS.items():
        text, count = re.subn(rf'("@{network}", rtt_mean_ms:) [\d.]+', rf"\1 {level_ms}", text)
        assert count == 1
    path = folder / "stand-ins.yaml"
    path.write_text(text, encoding="utf-8")
    return path
