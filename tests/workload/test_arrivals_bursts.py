"""On/off arrivals against the closed forms of the Markov-modulated Poisson process."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy import stats

from simnmt.workload.arrivals import Arrivals
from simnmt.workload.arrivals.stationary_arrivals import OnOff

arrivals: TypeAdapter[Any] = TypeAdapter(Arrivals)

CASES = [(20.0, 0.0, 1.0, 9.0), (20.0, 5.0, 2.0, 2.0), (3.0, 0.5, 0.5, 0.1), (1.0, 0.0, 0.05, 0.05)]
"""On and off rates, mean on and off times: rare bursts, two levels, short pauses, phases that mostly hold nothing."""


def on_off(on_rps: float, off_rps: float, on_s: float, off_s: float) -> OnOff:
    return OnOff(kind="on_off", on_rate_rps=on_rps, off_rate_rps=off_rps, mean_on_s=on_s, mean_off_s=off_s)


def dispersion_by(on_rps: float, off_rps: float, on_s: float, off_s: float, window_s: float) -> float:
    """Variance over mean of the counts in windows of that length, in steady state."""
    share, changes = on_s / (on_s + off_s), 1 / on_s + 1 / off_s
    mean_rps = share * on_rps + (1 - share) * off_rps
    variance = share * (1 - share) * (on_rps - off_rps) ** 2
    return 1 + 2 * variance / (mean_rps * changes) * (1 - -math.expm1(-changes * window_s) / (changes * window_s))


@pytest.mark.parametrize("case", CASES)
def test_rate_and_dispersion_are_the_closed_forms(case: tuple[float, float, float, float]) -> None:
    process = on_off(*case)
    arrival_s = process.times(400_000, 1, 0, "a")
    mean_rps = (case[0] * case[2] + case[1] * case[3]) / (case[2] + case[3])
    assert process.mean_rate_rps == pytest.approx(mean_rps)
    for cycles in (0.5, 4.0):
        window_s = cycles * (case[2] + case[3])
        windows = int(arrival_s[-1] // window_s)
        counts = np.bincount((arrival_s // window_s).astype(int), minlength=windows)[:windows]
        dispersion = dispersion_by(*case, window_s)
        assert counts.mean() / window_s == pytest.approx(mean_rps, rel=5 * math.sqrt(process.dispersion / 400_000))
        assert counts.var() / counts.mean() == pytest.approx(dispersion, rel=0.08)
    assert process.dispersion == pytest.approx(dispersion_by(*case, 1e9), rel=1e-6)


def test_within_a_burst_requests_are_poisson_and_bursts_are_exponential() -> None:
    """Far apart and dense, so that each burst can be told from its gaps alone."""
    process = on_off(1_000.0, 0.0, 1.0, 1_000.0)
    gap_s = np.diff(process.times(400_000, 2, 0, "a"))
    begins = np.flatnonzero(gap_s > 1.0)
    assert stats.kstest(gap_s[gap_s <= 1.0][:20_000], stats.expon(scale=1e-3).cdf).pvalue > 0.001
    assert stats.kstest(gap_s[begins], stats.expon(scale=1_000.0).cdf).pvalue > 0.001
    # A burst of exponential length holds a geometric number: mean 1000, those of none at all aside.
    held = np.diff(begins)
    assert held.mean() == pytest.approx(1_001, rel=5 / math.sqrt(len(held)))
    assert held.std() == pytest.approx(1_001, rel=0.2)


def test_the_start_is_the_steady_state() -> None:
    """Over many replications as many come in the first second as in any: no burst is waited for, none begins with the run."""
    process = on_off(50.0, 0.0, 1.0, 3.0)
    runs = [process.times(200, 1, replication, "a") for replication in range(400)]
    counts = [np.searchsorted(arrival_s, 1.0) for arrival_s in runs]
    dispersion = dispersion_by(50.0, 0.0, 1.0, 3.0, 1.0)
    assert np.mean(counts) == pytest.approx(12.5, abs=4 * math.sqrt(12.5 * dispersion / 400))
    at_once = np.mean([arrival_s[0] < 0.2 for arrival_s in runs])
    assert at_once == pytest.approx(0.25 + 0.75 * (1 - math.exp(-0.2 / 3)), abs=4 * math.sqrt(0.25 / 400))


def test_the_description_has_rate_and_dispersion() -> None:
    config = {"kind": "on_off", "on_rate_rps": 20, "mean_on_s": 1, "mean_off_s": 9}
    account = arrivals.validate_python(config).process(Path()).account
    assert account.startswith("assumed bursts: 20 requests/s for 1 s, then 0 for 9 s")
    assert "2 requests/s on average" in account and "in a long time 33.4, where Poisson has 1" in account
