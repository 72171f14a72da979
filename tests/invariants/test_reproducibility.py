"""Same seed, same bytes: on any number of processes, and when a run directory is run again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import simnmt
from simnmt.results.run_directory import sha256

MakeScenario = Callable[..., dict[str, Any]]
FILES = ("summary.json", "summary.csv", "requests.parquet")


def digests(directory: Path) -> dict[str, str]:
    return {name: sha256(directory / name) for name in FILES}


def test_one_and_two_processes_and_the_run_directory_give_the_same_bytes(tmp_path: Path, make_scenario: MakeScenario) -> None:
    """Two workloads, two networks and two replications: eight units, which two processes finish in any order."""
    scenario = make_scenario(
        workloads={
            "b": {"lengths": "@de-en-news"},
            "a": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 5.0}},
        },
        networks={"z": {"rtt": "@cp1"}, "y": {"rtt": {"constant_ms": 60}}},
        requests=500,
        warm_up_requests=50,
    )
    changed = ["policies.cnmt.len_slope=0.5"]
    one = simnmt.run(scenario, out=tmp_path / "one", jobs=1, overrides=changed)
    two = simnmt.run(scenario, out=tmp_path / "two", jobs=2, overrides=changed)
    simnmt.run(tmp_path / "one", out=tmp_path / "again")
    assert digests(tmp_path / "one") == digests(tmp_path / "two") == digests(tmp_path / "again")
    order = [(row["workload"], row["network"]) for row in one.summary_rows[::5]]
    assert order == [("b", "z"), ("b", "y"), ("a", "z"), ("a", "y")]
    assert [row["policy"] for row in two.summary_rows[:5]] == list(scenario["policies"])


def test_the_same_seed_repeats_and_another_does_not(tmp_path: Path, make_scenario: MakeScenario, paper: simnmt.Run) -> None:
    """Also where nothing is written."""
    for name, seed in (("again", 7), ("other", 8)):
        simnmt.run(make_scenario(seed=seed), out=tmp_path / name)
    assert paper.directory is not None
    one, again, other = (digests(path) for path in (paper.directory, tmp_path / "again", tmp_path / "other"))
    assert one == again
    assert simnmt.run(make_scenario()).document() == paper.document()
    assert all(one[name] != other[name] for name in FILES)


def test_leaving_policies_out_changes_no_other(make_scenario: MakeScenario, paper: simnmt.Run) -> None:
    fewer = simnmt.run(make_scenario(policies={"cloud": {}, "cnmt": {}}))
    for policy, log in fewer.cells[0].logs.items():
        for name, column in log.items():
            np.testing.assert_array_equal(column, paper.cells[0].logs[policy][name])


@pytest.mark.parametrize(
    "other_processor",
    [
        {"OPENBLAS_CORETYPE": "Haswell"},
        {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"},
    ],
)
@pytest.mark.deep
def test_the_vector_instructions_of_the_processor_change_no_byte_of_a_predicted_length(
    tmp_path: Path, other_processor: dict[str, str]
) -> None:
    """BLAS adds in an order that depends on the processor; the fit does not. Exponentials differ by a last bit, no more."""
    features = np._core._multiarray_umath.__cpu_features__  # type: ignore[attr-defined]
    if not features.get("X86_V3"):
        pytest.skip("the processor has no level to leave out")
    if levels := other_processor.get("NPY_DISABLE_CPU_FEATURES"):
        other_processor = {
            **other_processor,
            "NPY_DISABLE_CPU_FEATURES": " ".join(level for level in levels.split() if features.get(level)),
        }
    common = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS_", "NPY_"))}
    for name, environment in (("here", {}), ("there", other_processor)):
        code = "import sys, simnmt; simnmt.run('@open-loop', requests=300, replications=2, out=sys.argv[1])"
        subprocess.run([sys.executable, "-c", code, tmp_path / name], env=common | environment, check=True)
    here, there = (pd.read_parquet(tmp_path / name / "requests.parquet") for name in ("here", "there"))
    assert here["tgt_len_predicted"].notna().any()
    pd.testing.assert_series_equal(here["tgt_len_predicted"], there["tgt_len_predicted"], check_exact=True)
    pd.testing.assert_series_equal(here["latency_s"], there["latency_s"], rtol=1e-9)
