"""Runs are paired only where both have drawn the same requests, which the names of objects and files do not say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import simnmt

MakeScenario = Callable[..., dict[str, Any]]


def is_paired(first: Any, second: Any) -> set[bool]:
    return set(pd.DataFrame(simnmt.compare(first, second).rows)["paired"])


def test_runs_with_arrays_of_lengths_are_never_paired(make_scenario: MakeScenario) -> None:
    random = np.random.default_rng(1)
    arrays = [random.integers(low, low + 8, (300, 2)) for low in (2, 20)]
    runs = [simnmt.run(make_scenario(workloads={"w": {"lengths": array}}, requests=100)) for array in arrays]
    assert runs[0].scenario == runs[1].scenario
    assert is_paired(*runs) == {False}


def test_a_file_that_changed_between_two_runs_makes_them_unpaired(make_scenario: MakeScenario, tmp_path: Path) -> None:
    text = tmp_path / "text.tsv"
    runs = []
    for name, length in (("a", 5), ("b", 5), ("c", 25)):
        text.write_text(f"{'a ' * length}\t{'b ' * length}\n{'a ' * (length + 3)}\t{'b ' * length}\n" * 200)
        workloads = {"w": {"lengths": {"tsv": str(text), "src_unit": "word", "tgt_unit": "word"}}}
        scenario = make_scenario(workloads=workloads, requests=100)
        runs.append((simnmt.run(scenario), simnmt.run(scenario, out=tmp_path / name)))
    for made in range(2):
        assert is_paired(runs[0][made], runs[1][made]) == {True}
        assert is_paired(runs[0][made], runs[2][made]) == {False}
    assert is_paired(tmp_path / "a", runs[2][0]) == {False}


def test_a_device_profile_that_changed_leaves_the_runs_paired(make_scenario: MakeScenario) -> None:
    fast, slow = (simnmt.run(make_scenario(noise, requests=100)) for noise in (0.1, 0.3))
    assert fast.scenario == slow.scenario and fast.input_digests != slow.input_digests
    assert is_paired(fast, slow) == {True}
