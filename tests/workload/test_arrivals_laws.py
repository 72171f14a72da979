"""Gaps and think times of any positive law, held against scipy's own distribution functions and closed forms."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from scipy import special, stats

from simnmt.workload.arrivals import Arrivals

arrivals: TypeAdapter[Any] = TypeAdapter(Arrivals)

LAWS: dict[str, dict[str, float]] = {
    "argus": {"chi": 1.0},
    "beta": {"a": 2.0, "b": 3.0},
    "betaprime": {"a": 5.0, "b": 6.0},
    "bradford": {"c": 0.3},
    "burr": {"c": 10.5, "d": 4.3},
    "burr12": {"c": 10.0, "d": 4.0},
    "chi2": {"df": 5.0},
    "erlang": {"a": 3.0},
    "expon": {},
    "exponweib": {"a": 2.9, "c": 1.95},
    "f": {"dfn": 29.0, "dfd": 18.0},
    "fatiguelife": {"c": 0.5},
    "fisk": {"c": 6.0},
    "foldnorm": {"c": 1.95},
    "gamma": {"a": 0.25},
    "gengamma": {"a": 4.4, "c": 3.1},
    "genpareto": {"c": 0.1},
    "gompertz": {"c": 0.95},
    "halfnorm": {},
    "invgamma": {"a": 5.0},
    "invgauss": {"mu": 0.15},
    "kstwobign": {},
    "loglaplace": {"c": 5.0},
    "lognorm": {"s": 0.95},
    "loguniform": {"a": 0.01, "b": 1.25},
    "lomax": {"c": 6.0},
    "maxwell": {},
    "nakagami": {"nu": 4.97},
    "pareto": {"b": 6.0},
    "powerlaw": {"a": 1.66},
    "rayleigh": {},
    "rice": {"b": 0.77},
    "triang": {"c": 0.16},
    "truncnorm": {"a": 0.1, "b": 2.0},
    "truncpareto": {"b": 2.0, "c": 5.3},
    "uniform": {},
    "wald": {},
    "weibull_min": {"c": 1.79},
}
"""All of these have a fourth moment, so that a sample's spread tells something."""


def gaps(distribution: str, parameters: dict[str, float], size: int, seed: int = 3, **measure: float) -> np.ndarray:
    config = {"kind": "renewal", "distribution": distribution, "parameters": parameters, **measure}
    return np.diff(arrivals.validate_python(config).process(Path()).times(size, seed, 0, "a"), prepend=0.0)


@pytest.mark.parametrize("name", LAWS)
def test_gaps_follow_the_law_scaled_to_the_rate(name: str) -> None:
    gap_s = gaps(name, LAWS[name], 20_000, rate_rps=5.0)
    frozen = getattr(stats, name)(**LAWS[name])
    cv = frozen.std() / frozen.mean()
    assert gap_s.mean() == pytest.approx(0.2, rel=5 * cv / math.sqrt(20_000))
    assert gap_s.std() / gap_s.mean() == pytest.approx(cv, rel=0.1)
    assert stats.kstest(gap_s[:3_000] / 0.2 * frozen.mean(), frozen.cdf).pvalue > 1e-4
    assert abs(np.corrcoef(gap_s[1:], gap_s[:-1])[0, 1]) < 5 / math.sqrt(20_000)


@settings(max_examples=25)
@given(
    st.sampled_from(("gamma", "weibull_min", "lognorm", "pareto")),
    st.floats(0.4, 1.6),
    st.floats(1e-3, 1e3),
    st.integers(0, 2**32),
)
def test_mean_and_spread_are_those_of_textbooks(name: str, shape: float, rate_rps: float, seed: int) -> None:
    """Closed forms written out here; Pareto's tail is kept light enough for its spread to be estimated."""
    c, b = shape + 0.4, shape + 5
    key, value, cv = {
        "gamma": ("a", shape, shape**-0.5),
        "weibull_min": ("c", c, math.sqrt(special.gamma(1 + 2 / c) / special.gamma(1 + 1 / c) ** 2 - 1)),
        "lognorm": ("s", shape / 2, math.sqrt(math.expm1((shape / 2) ** 2))),
        "pareto": ("b", b, 1 / math.sqrt(b * (b - 2))),
    }[name]
    gap_s = gaps(name, {key: value}, 40_000, seed=seed, rate_rps=rate_rps)
    assert gap_s.mean() * rate_rps == pytest.approx(1.0, rel=5 * cv / 200)
    assert gap_s.std() / gap_s.mean() == pytest.approx(cv, rel=0.1)


def test_a_scale_is_taken_as_given() -> None:
    assert np.allclose(gaps("gamma", {"a": 2.0}, 1_000, scale_s=0.5), gaps("gamma", {"a": 2.0}, 1_000, rate_rps=1.0))


def test_exponential_gaps_are_poisson_arrivals() -> None:
    """Drawn from the same numbers, so that a sweep over the law has Poisson for its middle."""
    poisson = arrivals.validate_python({"kind": "poisson", "rate_rps": 3.0}).process(Path())
    assert np.allclose(np.cumsum(gaps("expon", {}, 70_000, rate_rps=3.0)), poisson.times(70_000, 3, 0, "a"), rtol=1e-12)


def test_a_law_without_a_variance_is_described_as_such() -> None:
    config = {"kind": "renewal", "distribution": "pareto", "parameters": {"b": 1.5}, "rate_rps": 2}
    process = arrivals.validate_python(config).process(Path())
    assert (
        process.account
        == "assumed arrivals with independent gaps, pareto (b = 1.5), of infinite variance, so that a run's rate "
        "may stray; 2 requests/s"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"distribution": "gama", "parameters": {"a": 1}}, r"no continuous distribution gama \(did you mean gamma\?\)"),
        ({"distribution": "Gamma", "parameters": {"a": 1}}, r"no continuous distribution Gamma \(did you mean gamma\?\)"),
        ({"distribution": "zipf", "parameters": {"a": 3}}, r"no continuous distribution zipf"),
        ({"distribution": "quux"}, r"no continuous distribution quux \(e\.g\. gamma, lognorm"),
        ({"distribution": "rv_continuous"}, r"no continuous distribution rv_continuous"),
        ({"distribution": "gamma"}, r"gamma needs a \(give \{a: \.\.\.\}\)"),
        ({"distribution": "burr", "parameters": {"c": 3}}, r"burr needs d \(give \{d: \.\.\.\}\)"),
        ({"distribution": "chi2", "parameters": {"dof": 3}}, r"chi2 has no parameter dof \(did you mean df\?\)"),
        ({"distribution": "expon", "parameters": {"lam": 3}}, r"expon has no parameter lam \(it has none\)"),
        ({"distribution": "gamma", "parameters": {"a": 1, "loc": 3}}, r"no parameter loc \(loc stays 0"),
        ({"distribution": "gamma", "parameters": {"a": 1, "scale": 3}}, r"no parameter scale \(it follows from the mean\)"),
        ({"distribution": "gamma", "parameters": {"a": -1}}, r"gamma does not exist with a = -1"),
        ({"distribution": "norm"}, r"norm can be negative, a duration cannot"),
        ({"distribution": "truncnorm", "parameters": {"a": -1, "b": 1}}, r"truncnorm with a = -1, b = 1 can be negative"),
        ({"distribution": "halfcauchy"}, r"halfcauchy has no finite mean above 0 \(choose parameters"),
        ({"distribution": "pareto", "parameters": {"b": 1}}, r"pareto with b = 1 has no finite mean"),
        ({"distribution": "kappa3", "parameters": {"a": 0.5}}, r"kappa3 with a = 0.5 has no finite mean"),
        (
            {"distribution": "pareto", "parameters": {"b": 1.01}},
            r"pareto with b = 1.01 has an infinite or immense variance, and 8\d % of its",
        ),
        (
            {"distribution": "lomax", "parameters": {"c": 1.02}},
            r"lomax with c = 1.02 has an infinite or immense variance, and \d\d % of its",
        ),
        (
            {"distribution": "gamma", "parameters": {"a": 1e-6}},
            r"gamma with a = 1e-06 has coefficient of variation 1e\+03, above",
        ),
        (
            {"distribution": "weibull_min", "parameters": {"c": 0.01}},
            r"weibull_min with c = 0.01 has an infinite or immense variance, and 100 %",
        ),
        ({"distribution": "rel_breitwigner", "parameters": {"rho": 36.0}}, r"rel_breitwigner takes milliseconds a draw"),
        ({"distribution": "kstwo", "parameters": {"n": 10}}, r"kstwo takes milliseconds a draw"),
        ({"distribution": "gamma", "parameters": {"a": float("inf")}}, "finite number"),
        ({"distribution": "gamma", "parameters": {"a": "1"}}, "valid number"),
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


@pytest.mark.parametrize("measure", [{}, {"rate_rps": 1.0, "scale_s": 1.0}])
def test_a_law_is_measured_in_one_way(measure: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="give either rate_rps or scale_s"):
        arrivals.validate_python({"kind": "renewal", "distribution": "expon", **measure})


def test_every_law_that_is_taken_is_drawn_fast() -> None:
    """One that inverted its distribution by root-finding would take thousands of times as long as a loop of the quickest."""
    generator = np.random.default_rng(1)
    began = time.process_time()
    for _ in range(65_536):
        generator.standard_exponential()
    loop_s = time.process_time() - began
    for name in LAWS:
        began = time.process_time()
        gaps(name, LAWS[name], 65_536, rate_rps=1.0)
        assert time.process_time() - began < 30 * loop_s, name  # 0.04 to 2 on an idle machine


# --- clients ---


def test_think_times_have_their_mean_and_law() -> None:
    config = {"kind": "clients", "clients": 50, "think_time": {"distribution": "gamma", "parameters": {"a": 2}, "mean_s": 3}}
    process = arrivals.validate_python(config).process(Path())
    think_s = process.think_times(50_000, 1, 0, "a")
    assert stats.kstest(think_s, stats.gamma(2, scale=1.5).cdf).pvalue > 0.001
    assert np.array_equal(process.think_times(700, 1, 0, "a"), think_s[:700])
    assert not np.array_equal(process.think_times(700, 1, 1, "a"), think_s[:700])
    assert (process.discipline, process.clients, process.mean_rate_rps, process.size_ranks(5, 1, 0, "a")) == (
        "closed",
        50,
        None,
        None,
    )
    assert "50 clients, think time gamma (a = 2), mean 3 s" in process.account
    with pytest.raises(TypeError, match="closed arrivals: the answers"):
        process.times(5, 1, 0, "a")


def test_think_times_are_exponential_by_default() -> None:
    config = {"kind": "clients", "clients": 1, "think_time": {"mean_s": 2.0}}
    think_s = arrivals.validate_python(config).process(Path()).think_times(50_000, 1, 0, "a")
    assert stats.kstest(think_s, stats.expon(scale=2.0).cdf).pvalue > 0.001


@pytest.mark.parametrize("seconds", [0, 1.5])
def test_a_constant_think_time_is_constant(seconds: float) -> None:
    config = {"kind": "clients", "clients": 1, "think_time": {"constant_s": seconds}}
    process = arrivals.validate_python(config).process(Path())
    assert process.think_times(4, 1, 0, "a").tolist() == [seconds] * 4
    assert f"1 client, think time always {seconds:g} s" in process.account
