"""Gaps and think times of any positive law, and bursts, held against scipy's distribution functions and closed forms."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from simnmt.workload.arrivals import Arrivals, RandomStream
from simnmt.workload.arrivals.varying import OnOff

arrivals: TypeAdapter[Any] = TypeAdapter(Arrivals)

LAWS: dict[str, dict[str, float]] = {
    "betaprime": {"a": 5.0, "b": 6.0}, "burr12": {"c": 10.0, "d": 4.0}, "erlang": {"a": 3.0}, "expon": {},
    "exponweib": {"a": 2.9, "c": 1.95}, "f": {"dfn": 29.0, "dfd": 18.0}, "gamma": {"a": 0.25}, "halfnorm": {},
    "invgauss": {"mu": 0.15}, "lognorm": {"s": 0.95}, "pareto": {"b": 6.0}, "truncnorm": {"a": 0.1, "b": 2.0}, "uniform": {},
    "weibull_min": {"c": 1.79},
}  # fmt: skip
"""All of these have a fourth moment, so that a sample's spread tells something; betaprime and f draw two columns."""


def rng(seed: int = 1, replication: int = 0) -> RandomStream:
    return RandomStream(seed, replication, "a")


def gaps(distribution: str, parameters: dict[str, float], size: int, rate_rps: float, seed: int = 3) -> np.ndarray:
    config = {"kind": "renewal", "distribution": distribution, "parameters": parameters, "rate_rps": rate_rps}
    return np.diff(arrivals.validate_python(config).process(Path()).times(size, rng(seed)), prepend=0.0)


@pytest.mark.parametrize("name", LAWS)
def test_gaps_follow_the_law_scaled_to_the_rate(name: str) -> None:
    gap_s = gaps(name, LAWS[name], 20_000, rate_rps=5.0)
    frozen = getattr(stats, name)(**LAWS[name])
    cv = frozen.std() / frozen.mean()
    assert gap_s.mean() == pytest.approx(0.2, rel=5 * cv / math.sqrt(20_000))
    assert gap_s.std() / gap_s.mean() == pytest.approx(cv, rel=0.1)
    assert stats.kstest(gap_s[:3_000] / 0.2 * frozen.mean(), frozen.cdf).pvalue > 1e-4
    assert abs(np.corrcoef(gap_s[1:], gap_s[:-1])[0, 1]) < 5 / math.sqrt(20_000)


def test_exponential_gaps_are_poisson_arrivals() -> None:
    """Drawn from the same numbers, so that a sweep over the law has Poisson for its middle."""
    poisson = arrivals.validate_python({"kind": "poisson", "rate_rps": 3.0}).process(Path())
    assert np.allclose(np.cumsum(gaps("expon", {}, 70_000, rate_rps=3.0)), poisson.times(70_000, rng(3)), rtol=1e-12)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"distribution": "gama", "parameters": {"a": 1}}, r"no continuous distribution gama \(did you mean gamma\?\)"),
        ({"distribution": "expon", "parameters": {"lam": 3}}, "expon has no shape parameter"),
        ({"distribution": "kappa3", "parameters": {"a": 0.5}}, r"kappa3 \(a = 0.5\) has no finite mean \(choose"),
        ({"distribution": "gamma", "parameters": {"a": "1"}}, "valid number"),
        ({"distribution": "gamma", "parameters": {"a": -1}}, r"gamma \(a = -1\) does not exist"),
        ({"distribution": "gamma"}, r"gamma needs \{a: NUMBER\}"),
        ({"distribution": "norm"}, "negative values"),
        ({"distribution": "pareto", "parameters": {"b": 1.03}}, r"one in a million \(change b "),
    ],
)
def test_what_is_no_law_of_durations_is_refused_with_a_remedy(value: dict[str, Any], message: str) -> None:
    """For think times as for gaps."""
    for config in (
        {"kind": "renewal", "rate_rps": 1.0} | value,
        {"kind": "clients", "clients": 2, "think_time": {"mean_s": 1.0} | value},
    ):
        with pytest.raises(ValidationError, match=message) as caught:
            arrivals.validate_python(config)
        assert caught.value.error_count() == 1


# --- clients ---


@pytest.mark.parametrize(
    ("think_time", "cdf"),
    [
        ({"distribution": "gamma", "parameters": {"a": 2}, "mean_s": 3}, stats.gamma(2, scale=1.5).cdf),
        ({"mean_s": 2.0}, stats.expon(scale=2.0).cdf),
    ],
)
def test_think_times_of_clients_have_their_mean_and_law(think_time: dict[str, Any], cdf: Any) -> None:
    process = arrivals.validate_python({"kind": "clients", "clients": 50, "think_time": think_time}).process(Path())
    think_s = process.think_times(50_000, rng())
    assert stats.kstest(think_s, cdf).pvalue > 0.001
    assert len(think_s) == 50_050 and np.array_equal(process.think_times(700, rng()), think_s[:750])
    assert not np.array_equal(process.think_times(700, rng(replication=1)), think_s[:750])
    assert (process.discipline, process.mean_rate_rps, process.size_ranks(5, rng())) == ("closed", None, None)


@pytest.mark.parametrize("seconds", [0, 1.5])
def test_a_constant_think_time_is_constant(seconds: float) -> None:
    config = {"kind": "clients", "clients": 1, "think_time": {"constant_s": seconds}}
    process = arrivals.validate_python(config).process(Path())
    assert process.think_times(4, rng()).tolist() == [seconds] * 5
    assert f"1 client, think time always {seconds:g} s" in process.account


# --- bursts ---

CASES = [(20.0, 0.0, 1.0, 9.0), (20.0, 5.0, 2.0, 2.0), (3.0, 0.5, 0.5, 0.1), (1.0, 0.0, 0.05, 0.05)]
"""On and off rates, mean on and off times: rare bursts, two levels, short pauses, phases that mostly hold nothing."""


def on_off(on_rps: float, off_rps: float, on_s: float, off_s: float) -> OnOff:
    return OnOff(kind="on_off", on_rate_rps=on_rps, off_rate_rps=off_rps, mean_on_s=on_s, mean_off_s=off_s)


def dispersion_by(on_rps: float, off_rps: float, on_s: float, off_s: float, window_s: float) -> float:
    """Variance over mean of the counts in windows of that length, in steady state.

    Source: Fischer and Meier-Hellstern 1993, the Markov-modulated Poisson process cookbook, for two states.
    """
    share, changes = on_s / (on_s + off_s), 1 / on_s + 1 / off_s
    mean_rps = share * on_rps + (1 - share) * off_rps
    variance = share * (1 - share) * (on_rps - off_rps) ** 2
    return 1 + 2 * variance / (mean_rps * changes) * (1 - -math.expm1(-changes * window_s) / (changes * window_s))


@pytest.mark.parametrize("case", CASES)
def test_rate_and_dispersion_are_the_closed_forms(case: tuple[float, float, float, float]) -> None:
    process, requests = on_off(*case), 400_000 if case[0] > 1.0 else 100_000
    arrival_s = process.times(requests, rng())
    mean_rps = (case[0] * case[2] + case[1] * case[3]) / (case[2] + case[3])
    assert process.mean_rate_rps == pytest.approx(mean_rps)
    for cycles in (0.5, 4.0):
        window_s = cycles * (case[2] + case[3])
        windows = int(arrival_s[-1] // window_s)
        counts = np.bincount((arrival_s // window_s).astype(int), minlength=windows)[:windows]
        dispersion = dispersion_by(*case, window_s)
        assert counts.mean() / window_s == pytest.approx(mean_rps, rel=5 * math.sqrt(dispersion_by(*case, 1e9) / requests))
        assert counts.var() / counts.mean() == pytest.approx(dispersion, rel=0.08)


def test_within_a_burst_requests_are_poisson_and_bursts_are_exponential() -> None:
    """Far apart and dense, so that each burst can be told from its gaps alone."""
    process = on_off(1_000.0, 0.0, 1.0, 1_000.0)
    gap_s = np.diff(process.times(400_000, rng(2)))
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
    runs = [process.times(200, rng(1, replication)) for replication in range(400)]
    counts = [np.searchsorted(arrival_s, 1.0) for arrival_s in runs]
    dispersion = dispersion_by(50.0, 0.0, 1.0, 3.0, 1.0)
    assert np.mean(counts) == pytest.approx(12.5, abs=4 * math.sqrt(12.5 * dispersion / 400))
    at_once = np.mean([arrival_s[0] < 0.2 for arrival_s in runs])
    assert at_once == pytest.approx(0.25 + 0.75 * (1 - math.exp(-0.2 / 3)), abs=4 * math.sqrt(0.25 / 400))
