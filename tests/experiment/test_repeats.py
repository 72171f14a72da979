"""Repeated sentences in runs: which request is of which sentence, with which lengths, alone and in a mix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.experiment.cases import Unit, mixed_unit
from simnmt.experiment.deployment import DeploymentPlan, rate_in_requests
from simnmt.experiment.draws import Drawn, draw, learn_parts
from simnmt.live.deployment import replayed_requests
from simnmt.workload.cache_savings import cache_savings, read_requested_texts
from tests.units import plan_of, unit_of


def scenario(**workloads: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "repeated",
        "requests": 4_000,
        "replications": 2,
        "workloads": {name: {"lengths": "@de-en-news", **keys} for name, keys in workloads.items()},
        "networks": {"n": {"rtt": "@cp1", "hops": {"gateway": {"rtt": "@cp1"}}}},
        "devices": {"gateway": {"profile": "@tx2-gru"}, "cloud": {"profile": "@titan-xp-gru"}},
        "policies": {"edge": {}},
    }


def poisson(rate_rps: float = 5.0, **keys: Any) -> dict[str, Any]:
    return {"arrivals": {"kind": "poisson", "rate_rps": rate_rps}, **keys}


def drawn_of(unit: Unit) -> Drawn:
    return draw(unit, learn_parts(unit))


def lengths_by_sentence(drawn: Drawn) -> dict[int, set[tuple[int, int]]]:
    truth, lengths = drawn.truth, dict[int, set[tuple[int, int]]]()
    assert truth.sentence is not None and truth.tgt_len is not None
    rows = zip(truth.sentence.tolist(), truth.src_len.tolist(), truth.tgt_len.tolist(), strict=True)
    for sentence, src_len, tgt_len in rows:
        lengths.setdefault(sentence, set()).add((src_len, tgt_len))
    return lengths


def test_requests_of_a_sentence_have_its_lengths_and_a_noise_of_their_own() -> None:
    plan = plan_of(scenario(news=poisson(2e4, repeats={"zipf": 1.0, "over": 500})))
    drawn, other = drawn_of(unit_of(plan)), drawn_of(unit_of(plan, replication=1))
    lengths = lengths_by_sentence(drawn)
    assert {len(pairs) for pairs in lengths.values()} == {1} and len(lengths) > 400
    assert lengths[0] != lengths_by_sentence(other)[0]
    assert drawn.truth.sentence is not None
    assert len(np.unique(drawn.truth.execution_s[0][drawn.truth.sentence == 0])) > 100
    # Behind an access link the decisions have another order, in which each request keeps its sentence.
    order = drawn.decided_order
    assert order is not None and (np.diff(order) != 1).any() and drawn.requests.sentence is not None
    np.testing.assert_array_equal(drawn.requests.sentence, drawn.truth.sentence[order])
    texts = np.array(replayed_requests(unit_of(plan)).texts)
    assert len(set(texts[drawn.truth.sentence == 0])) == 1 and len(set(texts)) > 0.9 * len(lengths)


def test_a_run_without_repeats_has_no_sentences_and_the_same_other_numbers() -> None:
    without, drawn = (
        drawn_of(unit_of(plan_of(scenario(news=poisson(**keys))))) for keys in ({}, {"repeats": {"zipf": 1.0, "over": 500}})
    )
    assert without.truth.sentence is None and without.requests.sentence is None
    assert without.issued_s is not None and drawn.issued_s is not None
    np.testing.assert_array_equal(without.issued_s, drawn.issued_s)
    np.testing.assert_array_equal(without.truth.rtt_time_s, drawn.truth.rtt_time_s)
    mean, repeated = without.truth.src_len.mean(), drawn.truth.src_len.mean()
    assert abs(repeated / mean - 1.0) < 0.1


def test_sentences_of_workloads_that_share_devices_are_different() -> None:
    repeats = {"zipf": 1.0, "over": 50}
    plan = plan_of(scenario(one=poisson(repeats=repeats), two=poisson(repeats=repeats), new=poisson(2.0)))
    unit = mixed_unit(plan, replace(unit_of(plan_of(scenario(one=poisson()))), scenario=plan.scenario))
    drawn = drawn_of(unit)
    assert drawn.part is not None and drawn.truth.sentence is not None and drawn.requests.sentence is not None
    one, two, new = (drawn.truth.sentence[drawn.part == part] for part in range(3))
    assert not {*one} & {*two} and not ({*one} | {*two}) & {*new}
    assert len({*one}) <= 50 and len({*new}) == len(new)
    order = np.arange(4_000) if drawn.decided_order is None else drawn.decided_order
    np.testing.assert_array_equal(drawn.requests.sentence, drawn.truth.sentence[order])


def test_a_log_of_arrivals_and_sentences_gives_both_from_the_same_row(tmp_path: Path) -> None:
    tokens = [5, 5, 40, 5, 12, 40, 12, 7, 5, 40, 12]
    log = tmp_path / "log.csv"
    log.write_text("t_s,in_tokens,hash\n" + "".join(f"{n * n},{count},h{count}\n" for n, count in enumerate(tokens)))
    keys = {"repeats": {"recorded": str(log)}, "arrivals": {"kind": "recorded", "file": str(log), "lengths": "rank"}}
    plan = plan_of(scenario(news=keys))
    for replication in (0, 1, 2):
        drawn = drawn_of(unit_of(plan, replication))
        assert {len(pairs) for pairs in lengths_by_sentence(drawn).values()} == {1}
        assert drawn.issued_s is not None and drawn.truth.sentence is not None
        gap_s = np.round(np.diff(drawn.issued_s)).astype(int)
        row = (gap_s - 1) // 2  # of the log, if the gap is one within a lap; between two laps it is 10 s
        within = gap_s % 2 == 1
        numbers = {count: number for number, count in enumerate(dict.fromkeys(tokens))}
        expected = np.array([numbers[count] for count in tokens])[row]
        np.testing.assert_array_equal(drawn.truth.sentence[:-1][within], expected[within])
        assert within.mean() > 0.8


def test_rates_and_costs_by_characters_follow_from_the_characters_of_a_request(tmp_path: Path) -> None:
    for name, text in (("de.txt", "ein Haus am See\n"), ("en.txt", "a house\n")):
        (tmp_path / name).write_text(text * 50)
    texts = {key: str(tmp_path / f"{file}.txt") for key, file in (("source", "de"), ("target", "en"))}
    chars = {**texts, "src_unit": "char", "tgt_unit": "word", "fertility": {"src": 0.3}}
    arrivals = {"kind": "poisson", "characters_per_day": 86_400 * 24.0}
    keys: dict[str, Any] = scenario(counted={"lengths": chars, "arrivals": arrivals})
    keys["devices"]["cloud"]["price_per_hour"] = 3.6
    keys |= {"requests": 300, "slo": {"cost_per_million_characters": 1e6}}
    row = simnmt.run(keys, replications=1).summary_rows[0]
    assert plan_of(keys).cases["counted"].arrivals.mean_rate_rps == pytest.approx(2.0), "12 characters are not blank"
    assert row["cost_per_million_characters"] == pytest.approx(row["mean_cost"] / 12 * 1e6)
    stated = scenario(news={"arrivals": arrivals, "characters_per_request": 48.0})
    assert plan_of(stated).cases["news"].arrivals.mean_rate_rps == pytest.approx(0.5)
    with pytest.raises(InputError, match="characters_per_day needs the characters of a request"):
        plan_of(scenario(news={"arrivals": arrivals}))


def test_a_plan_takes_a_rate_in_the_units_of_services() -> None:
    keys = scenario(news={"arrivals": {"kind": "poisson", "rate_rps": 1.0}, "characters_per_request": 50.0})
    plan = plan_of(keys)
    assert rate_in_requests("5e6characters/day", plan) == pytest.approx(5e6 / 86_400 / 50)
    assert rate_in_requests("2e6requests/month", plan) == pytest.approx(2e6 / (730 * 3600))
    assert rate_in_requests("1.5", plan) == rate_in_requests("1.5requests/s", plan) == 1.5
    answer = simnmt.plan(keys, "mean_ms<=60000", rate="43200characters/day", requests=200, vary=["devices.cloud.count=1"])
    assert isinstance(answer, DeploymentPlan) and answer.characters == " (43,200 characters/day)"
    assert rate_in_requests("0characters/day", plan_of(scenario(news=poisson()))) == 0.0
    with pytest.raises(InputError, match="is no rate"):
        rate_in_requests("5e6characters/week", plan)
    with pytest.raises(InputError, match="which are unknown"):
        rate_in_requests("5characters/day", plan_of(scenario(news=poisson())))


@pytest.mark.parametrize(("entries", "ttl_s"), [(40, 200.0), (1_000, 60.0), (25, 1e6)])
def test_a_simulated_cache_answers_what_the_reuse_of_its_log_says(tmp_path: Path, entries: int, ttl_s: float) -> None:
    """But for the time until a translation is there, which is short beside the gaps."""
    random, log = np.random.default_rng(4), tmp_path / "log.csv"
    time_s, text = np.cumsum(random.exponential(4.0, 3_000)), random.zipf(1.3, 3_000) % 400
    log.write_text("t_s,text\n" + "".join(f"{at_s:.4f},text {number}\n" for at_s, number in zip(time_s, text, strict=True)))
    keys = scenario(news={"repeats": {"recorded": str(log)}, "arrivals": {"kind": "recorded", "file": str(log)}})
    keys["devices"]["gateway"]["cache"] = {"entries": entries, "ttl_s": ttl_s}
    expected = cache_savings(read_requested_texts(log), ttl_s=ttl_s).saving(entries)
    assert 0.2 < expected.hit_share < expected.hit_share_without_ttl + 1e-12
    (row,) = simnmt.run(keys, requests=3_000, replications=1).summary_rows
    assert row["hit_share"] == pytest.approx(expected.hit_share, abs=0.01)
