"""Shipped profiles with changes, and made-up speeds, for the reproductions of faster NMT inference."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from simnmt.base.shipped_files import find
from simnmt.profile.device_profile import DeviceProfile, read_profile, write_profile


@cache
def shipped(name: str) -> DeviceProfile:
    """Read a shipped profile."""
    return read_profile(find("calibration", f"@{name}"))


def profile(name: str, *, beam: int = 1, box: str = "a box", **changed: Any) -> DeviceProfile:
    """Return the shipped profile of a GRU, which knows the costs of refills, with another name, box and beam."""
    plain = shipped("cpu1-gru")
    assert plain.step is not None
    names = {"name": name, "device": plain.device.model_copy(update={"name": box})}
    return plain.model_copy(update=names | {"step": plain.step.model_copy(update={"beam": beam})} | changed)


def written(folder: Path, *profiles: DeviceProfile) -> list[str]:
    """Write profiles into a folder; return their names as the option `--profile` takes them."""
    for number, item in enumerate(profiles):
        write_profile(folder / f"{number}.json", item)
    return [str(folder / f"{number}.json") for number in range(len(profiles))]


def timed(
    totals: Mapping[tuple[int, str, str], float | tuple[float, float]], refills: Mapping[str, int] | None = None
) -> pd.DataFrame:
    """Return speeds by beam, set and run: total times in two seeds, the second 2 % longer unless both are given."""
    rows = []
    for (beam, name, run), total in totals.items():
        by_seed = total if isinstance(total, tuple) else (total, 1.02 * total)
        figures = {"sentences": 1_000, "refills": (refills or {}).get(run, 10)}
        names = {"beam": beam, "set": name, "run": run}
        rows += [names | figures | {"seed": seed, "total_s": 100 * total_s} for seed, total_s in enumerate(by_seed, 1)]
    return pd.DataFrame(rows).set_index(["beam", "set", "run"])
