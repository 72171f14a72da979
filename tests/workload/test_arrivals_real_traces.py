"""The traces and the rate series that lie beside the checkout, where they do: their figures are those of their description."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy import stats

from simnmt.workload.arrivals import ArrivalProcess, Arrivals
from simnmt.workload.arrivals.recording import read_recording

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "arrivals"
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason=f"the recorded arrivals are not in {REAL}")
arrivals: TypeAdapter[Any] = TypeAdapter(Arrivals)


def load(**config: Any) -> ArrivalProcess:
    return arrivals.validate_python(config).process(REAL)


def test_azure_conversations() -> None:
    trace = read_recording(REAL / "azure_llm_conv_2023.csv")
    assert (trace.form, len(trace.time_s), trace.step_s, trace.size_tokens.max()) == ("azure", 19_366, 0.0, 14_050)
    process = load(kind="recorded", file="azure_llm_conv_2023.csv", lengths="rank")
    assert np.array_equal(process.times(19_366, 1, 0, "a"), trace.time_s)
    rank = process.size_ranks(19_366, 1, 0, "a")
    assert stats.spearmanr(rank, trace.size_tokens).statistic > 0.999
    assert stats.kstest(rank, stats.uniform.cdf).pvalue > 0.001


def test_mooncake_conversations_are_spread_over_their_three_seconds() -> None:
    trace = read_recording(REAL / "mooncake_conversation.csv")
    assert (len(trace.time_s), trace.step_s, round(trace.duration_s)) == (12_031, 3.0, 3_540)
    arrival_s = load(kind="recorded", file="mooncake_conversation.csv").times(12_031, 1, 0, "a")
    assert np.all(np.abs(arrival_s - trace.time_s - 1.5) <= 1.51)
    assert len(np.unique(arrival_s)) == 12_031


def test_nasa_s_three_days_keep_their_outage() -> None:
    process = load(kind="recorded", file="nasa_http_3days_persecond.csv")
    arrival_s = process.times(307_145, 1, 0, "a")
    counts = np.loadtxt(REAL / "nasa_http_3days_persecond.csv", delimiter=",", skiprows=1)
    assert counts[:, 1].sum() == 307_145
    seconds = np.bincount((counts[:, 0] - counts[0, 0]).astype(int), counts[:, 1])
    assert np.bincount(arrival_s.astype(int), minlength=len(seconds)).tolist() == seconds.tolist()
    assert 1_325 <= np.diff(arrival_s).max() <= 1_328
    assert process.times(307_146, 1, 0, "a")[-1] == pytest.approx(arrival_s[0] + 259_191, abs=1)


def test_servegen_s_fortnight_of_rates() -> None:
    process = load(kind="varying", series={"csv": "servegen_m-mid_rate.csv"})
    rates = np.loadtxt(REAL / "servegen_m-mid_rate.csv", delimiter=",", skiprows=1)[:, 1]
    assert "2,016 windows, 84 of them zero or missing, taken as without arrivals" in process.account
    assert process.mean_rate_rps == pytest.approx(rates.mean())
    assert load(kind="varying", series={"csv": "servegen_m-mid_rate.csv", "zeros": "hold"}).mean_rate_rps > 1.02 * rates.mean()
    thinned = load(kind="varying", series={"csv": "servegen_m-mid_rate.csv", "rate_rps": 0.5})
    arrival_s = thinned.times(600_000, 1, 0, "a")
    day = 86_400.0
    observed = np.diff(np.searchsorted(arrival_s, np.arange(15) * day))[:13]
    expected = rates.reshape(14, 144).sum(axis=1)[:13] * 600 * 0.5 / rates.mean()
    assert np.all(np.abs(observed - expected) < 4 * np.sqrt(expected))
