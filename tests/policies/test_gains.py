"""Policies that weigh the expected gain in quality: their settings, and what they weigh."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from simnmt.base.errors import InputError
from simnmt.policies import LeastTotal, PolicyConfiguration
from simnmt.policies.gains import Gains

GAIN = np.array([0.0, 2.5, 5.0, 9.99])
FITTED = np.arange(1_000) / 100.0
TIMES = LeastTotal([np.full(4, 1.0), np.full(4, 2.0), np.full(4, 3.0)])
"""Of a gateway, an edge server that no such policy uses, and a cloud."""


def policy(kind: str = "cascade", **keys: Any) -> Any:
    return TypeAdapter(PolicyConfiguration).validate_python({"kind": kind, "signal": "src_len", **keys})


def targets(kind: str, delay_s: float = 0.0, **keys: Any) -> list[int]:
    settings = policy(kind, **keys)
    weighed = settings.weighed(TIMES, settings.keeping_s(GAIN, settings.limit(FITTED)))
    return [weighed(request, [0.0, delay_s, delay_s]) for request in range(4)]


@pytest.mark.parametrize("kind", ["cascade", "route"])
def test_a_threshold_and_a_budget_send_the_highest_gains_to_the_last_device_whatever_its_delay(kind: str) -> None:
    for delay_s in (0.0, 1e3):
        assert targets(kind, delay_s, threshold=4.0) == [0, 0, 2, 2]
        assert targets(kind, delay_s, budget=0.25) == [0, 0, 0, 2]
        assert targets(kind, delay_s, budget=0.0) == [0] * 4
        assert targets(kind, delay_s, budget=1.0) == [2] * 4


def test_a_price_weighs_the_gain_against_the_time_that_is_left() -> None:
    """A cascade has translated already; a route saves the first execution."""
    assert targets("cascade", 1.5, seconds_per_point=1.0) == [0, 0, 2, 2]
    assert targets("cascade", 2.5, seconds_per_point=1.0) == [0, 0, 0, 2]
    assert targets("route", 2.5, seconds_per_point=1.0) == [0, 0, 2, 2]


@pytest.mark.parametrize("share", [0.1, 0.37, 0.9])
def test_the_budget_is_the_share_of_the_sentences_of_the_fit(share: float) -> None:
    fitted, settings = np.random.default_rng(1).normal(size=5_000), policy(budget=share)
    assert np.mean(settings.keeping_s(fitted, settings.limit(fitted)) > 0.0) == pytest.approx(share, abs=1e-3)
    ties = np.repeat([0.0, 1.0], 2_500)
    assert np.mean(settings.keeping_s(ties, settings.limit(ties)) > 0.0) <= share


def test_a_threshold_that_no_gain_comes_to_is_refused() -> None:
    for threshold in (-0.5, 80.0):
        with pytest.raises(InputError, match=r"outside the gains that src_len predicts, 0 to 9\.99"):
            targets("cascade", threshold=threshold)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "got none"),
        ({"threshold": 1.0, "budget": 0.2}, "got threshold and budget"),
        ({"budget": 1.2}, "less than or equal to 1"),
        ({"threshold": float("nan")}, "finite"),
        ({"seconds_per_point": -1.0}, "greater than or equal to 0"),
        ({"signal": "mood", "budget": 0.2}, "logprob"),
        ({"signal": "random", "threshold": 0.2}, "needs a budget"),
        ({"kind": "route", "signal": "logprob", "budget": 0.2}, "route decides before there is one"),
        ({"budget": 0.2, "sees_backlog": True}, "a budget weighs no wait"),
        ({"threshold": 1.0, "sees_backlog": True}, "a threshold weighs no wait"),
    ],
)
def test_other_settings_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        policy(**{"kind": "cascade", **keys})


def drawn_gains(sentences: int = 4_000) -> Gains:
    """Gains that fall with the log-probability by token and rise with the length, beside noise."""
    random = np.random.default_rng(49)
    words = random.integers(1, 40, sentences)
    by_token = -random.exponential(0.5, sentences)
    true = 1.0 - 2.0 * by_token + 0.05 * words + random.normal(0.0, 1.0, sentences)
    features = {"src_chars": 5.5 * words, "src_words": words, "output_len": words, "logprob": by_token * (words + 1.0)}
    return Gains(
        {name: np.asarray(column, float) for name, column in features.items()},
        true,
        np.arange(0, sentences, 2),
        random.random(sentences),
    )


def test_a_fit_expects_the_gains_of_other_sentences_as_well_as_its_features_allow() -> None:
    gains = drawn_gains()
    others = np.arange(1, len(gains.true_gain), 2)
    shared = {
        name: np.corrcoef(gains.gain(name, others), gains.true_gain[others])[0, 1]
        for name in ("src_len", "logprob", "ridge", "random", "oracle")
    }
    assert shared["ridge"] > shared["logprob"] > shared["src_len"] > 0.2 and abs(shared["random"]) < 0.05
    assert shared["oracle"] == pytest.approx(1.0)
    noise = gains.true_gain[others] - gains.gain("ridge", others)
    assert abs(noise.mean()) < 0.1 and noise.std() == pytest.approx(1.0, abs=0.05)


def test_a_live_text_has_the_gain_of_a_sentence_with_its_features() -> None:
    gains = drawn_gains()
    for signal in ("src_len", "logprob", "ridge"):
        features = {name: float(column[7]) for name, column in gains.features.items()}
        assert gains.gain_of(signal, features) == pytest.approx(gains.gain(signal, np.array([7]))[0])
    assert 0.0 <= gains.gain_of("random", {}) < 1.0


@pytest.mark.parametrize("rows", [slice(None), slice(1, 2)], ids=["all", "one that is not in the fit"])
def test_scores_without_log_probabilities_are_refused_for_signals_that_read_them(rows: slice) -> None:
    gains = drawn_gains(100)
    logprob = gains.features["logprob"].copy()
    logprob[rows] = np.nan
    unknown = replace(gains, features=gains.features | {"logprob": logprob}, _lines={})
    assert unknown.fitted("src_len").shape == (50,)
    for signal in ("logprob", "ridge"):
        with pytest.raises(InputError, match=r"which the scores of the first device lack for (1|100) of 100 sentences"):
            unknown.fitted(signal)


def test_an_empty_translation_has_no_log_probability_in_scores_as_in_a_live_gateway() -> None:
    gains = drawn_gains()
    columns = {name: np.append(column, 0.0) for name, column in gains.features.items()}
    columns["logprob"][-1] = np.nan
    with_empty = replace(gains, features=columns, _lines={})
    expected = with_empty.gain("logprob", np.array([len(gains.true_gain)]))[0]
    for logprob in (0.0, -0.7, np.nan):
        assert with_empty.gain_of("logprob", {"output_len": 0, "logprob": logprob}) == expected


def test_a_text_all_of_whose_lines_are_of_requests_is_refused() -> None:
    with pytest.raises(InputError, match="no sentence is left to expect gains from"):
        replace(drawn_gains(100), fit=np.array([], int)).fitted("random")


def test_what_a_policy_reads_follows_from_its_signal() -> None:
    facts = {signal: policy(signal=signal, budget=0.5) for signal in ("logprob", "ridge", "src_len", "random", "oracle")}
    assert [signal for signal, one in facts.items() if one.reads_logprob] == ["logprob", "ridge"]
    assert [signal for signal, one in facts.items() if not one.is_deployable] == ["oracle"]
    assert facts["ridge"].devices_of(["gateway", "edge", "cloud"]) == ["gateway", "cloud"]
    assert facts["ridge"].devices_of(["gateway"]) == ["gateway"]
    assert [policy(kind, budget=0.1).decides_again for kind in ("cascade", "route")] == [True, False]
