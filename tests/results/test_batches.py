"""The account of a target's batches, and what the summary, the run directory and the log say of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simnmt.results.device_accounts import BatchAccount, batch_columns
from simnmt.results.requests import RequestLog
from simnmt.results.stability import device_timeline
from simnmt.results.summary import Device, measure
from tests.results.test_summary import DEVICES, TRAIL, truth

ACTIVE = np.array([4, 4, 3, 2, 2, 1, 1, 1, 1, 4, 3, 3, 3, 1, 1])
"""Sentences under way in each of the fifteen steps of FNI-08's worked example: batches of up to four, lengths
2, 5, 3, 9 and 4, 4, 1, 6."""


def account(**other: Any) -> BatchAccount:
    """That example with a second a step, encoded in two calls of sources of 2, 5, 3, 9 and 4, 4, 1, 6 tokens."""
    steps = np.bincount(ACTIVE, minlength=5)
    example: dict[str, Any] = {
        "size": 4,
        "steps": steps,
        "step_s": steps.astype(np.float64),
        "encode_s": 2.0,
        "refill_s": 1.0,
        "encodings": 2,
        "refills": 2,
        "src_tokens": 34,
        "padded_tokens": 4 * 9 + 4 * 6,
        "sentences": 8,
    }
    return BatchAccount(**example | other)


def nothing_done() -> BatchAccount:
    zeros = dict.fromkeys(("encodings", "refills", "src_tokens", "padded_tokens", "sentences"), 0)
    none = dict.fromkeys(("encode_s", "refill_s"), 0.0)
    return account(steps=np.zeros(5, np.int64), step_s=np.zeros(5), **zeros, **none)


def test_the_occupancy_of_the_worked_example_of_fni_08() -> None:
    example = account()
    assert example.mean_active == pytest.approx(34 / 15)
    assert example.shares() == {"full_share": 3 / 15, "below_8_share": 1.0, "padding_share": pytest.approx(26 / 60)}


def test_accounts_of_several_servers_add_up() -> None:
    whole = account().merged([account(), nothing_done()])
    assert whole.steps.sum() == 30
    assert whole.step_s.sum() == 30.0
    assert (whole.sentences, whole.tokens, whole.encodings, whole.refills) == (16, 68, 4, 4)
    assert (whole.busy_s, whole.encode_s, whole.refill_s) == (36.0, 4.0, 2.0)
    assert whole.mean_active == account().mean_active


CLOUD_COLUMNS = [*batch_columns("cloud", 1, None, 1.0, np.empty(0), np.empty(0))]
BATCHING = (DEVICES[0], Device("cloud", 2, 1, batch=4))
IN_BATCHES = replace(TRAIL, batches=(None, account())).with_columns(
    execution_s=np.array([np.nan, 0.75, 2.0, 1.5]), first_token_s=np.array([np.nan, 0.5, 0.25, 2.5])
)


def test_the_log_holds_what_an_execution_took_in_its_batch() -> None:
    """Alone each would have taken 0.5 s on the cloud; the gateway does not batch."""
    log = RequestLog.of(truth(), IN_BATCHES)
    assert log["t_exe_s"].tolist() == [1.0, 0.75, 2.0, 1.5]
    assert log["latency_s"].tolist() == [1.0, 2.0, 11.0, 4.5]
    np.testing.assert_array_equal(log["first_token_s"], [np.nan, 0.5, 0.25, 2.5])
    assert np.isnan(RequestLog.of(truth(), TRAIL)["first_token_s"]).all()


def test_the_numbers_of_a_device_that_batches() -> None:
    """Three requests of eight tokens each, over a run of eleven seconds in which the last was issued at 3 s."""
    numbers = measure(RequestLog.of(truth(), IN_BATCHES), np.zeros(4), BATCHING, "open", (None, (account(), 3.0)))
    makespan_s = numbers["makespan_s"]
    assert makespan_s == 13.0
    of_cloud = {name.removeprefix("cloud_"): value for name, value in numbers.items() if name.startswith("cloud_")}
    assert of_cloud == {
        "share": 0.75,
        "mean_batch": pytest.approx(34 / 15),
        "full_share": 0.2,
        "below_8_share": 1.0,
        "padding_share": pytest.approx(26 / 60),
        "busy_share": pytest.approx(18.0 / (2 * 13.0)),
        "mean_queue_s": 0.75,
        "first_token_mean_s": pytest.approx(3.25 / 3),
        "first_token_p95_s": pytest.approx(2.3),
        "sentences_per_s": pytest.approx(8 / 13.0),
        "tokens_per_s": pytest.approx(34 / 13.0),
        "busy_sentences_per_s": pytest.approx(8 / 18.0),
        "busy_tokens_per_s": pytest.approx(34 / 18.0),
        # 3 s of work as full batches do it, for two boxes in 3 s; of which the second got two requests of three.
        "load": pytest.approx(0.5),
        "busiest_load": pytest.approx(2 / 3),
    }
    assert numbers["gateway_load"] == pytest.approx(1.0 / 3.0)
    assert not any(name.startswith("gateway") and name.replace("gateway", "cloud") in CLOUD_COLUMNS for name in numbers)


def test_a_device_that_was_sent_nothing_or_waits_for_nothing_has_no_such_numbers() -> None:
    here = IN_BATCHES.with_columns(
        target=np.zeros(4, np.int8), execution_s=np.full(4, np.nan), first_token_s=np.full(4, np.nan)
    )
    idle = measure(RequestLog.of(truth(), here), np.zeros(4), BATCHING, "open", (None, (nothing_done(), 0.0)))
    assert {name: idle[name] for name in CLOUD_COLUMNS if idle[name] is not None} == {
        "cloud_busy_share": 0.0, "cloud_sentences_per_s": 0.0, "cloud_tokens_per_s": 0.0
    }  # fmt: skip
    assert idle["cloud_load"] == 0.0
    in_turn = measure(RequestLog.of(truth(), TRAIL), np.zeros(4), BATCHING, "back_to_back")
    assert all(in_turn[name] is None for name in CLOUD_COLUMNS)
    assert list(in_turn) == list(idle)


def test_the_places_of_a_batch_count_as_workers_from_the_first_step_of_a_sentence_on() -> None:
    """A sentence that is being encoded has no place yet: three requests on eight places, from their first token on."""
    log = RequestLog.of(truth(), IN_BATCHES)
    timeline, one_by_one = (device_timeline(log, (DEVICES[0], Device("cloud", 2, 1, batch)), 20) for batch in (4, None))
    stayed_s = log["t_queue_s"] + log["t_exe_s"] - log["first_token_s"]
    assert (timeline.busy_share[1] * np.diff(timeline.edges_s)).sum() * 8 == pytest.approx(np.nansum(stayed_s))
    np.testing.assert_array_equal(timeline.waiting, one_by_one.waiting)
