"""One batched server against worked examples, theory, and a server that takes every step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.base import shipped_files
from simnmt.batching import Batching, mini, top_up
from simnmt.profile.cost import DecodingCost
from simnmt.profile.device_profile import read_profile
from simnmt.profile.doubts import alone_vs_plane
from simnmt.workload.length_table import read_table
from simnmt.world.engine import decode_all
from tests.batching.one_server import batchings, serve
from tests.world.batched_worlds import EIGHTHS, LEAVING, LEAVING_EIGHTHS, cost, rows


def assert_steps_agree(
    batching: Batching, times: DecodingCost, src_len: Sequence[int], tgt_len: Sequence[int], arrival_s: Sequence[float]
) -> None:
    """A box does at the same times what a server does that takes one step after the other."""
    decoded, served = (
        decode_all(batching, times, src_len, tgt_len, arrival_s),
        serve(batching, arrival_s, src_len, tgt_len, times),
    )
    first_s = [served.first_s.get(request, np.nan) for request in range(len(src_len))]
    for column, moments_s in ((decoded.begin_s, served.encoded_s), (decoded.finish_s, served.finish_s)):
        np.testing.assert_allclose(column, [moments_s[request] for request in range(len(src_len))], 1e-9, 1e-9)
    np.testing.assert_allclose(decoded.first_token_s, np.subtract(first_s, arrival_s), 1e-9, 1e-9)
    account, active = decoded.account, [len(requests) for _, requests, _ in served.steps]
    assert account.steps.tolist() == np.bincount(active, minlength=batching.size + 1).tolist()
    assert (account.sentences, account.tokens) == (len(src_len), sum(tgt_len))
    assert account.src_tokens == sum(src_len) <= account.padded_tokens
    assert account.busy_s == pytest.approx(account.encode_s + account.refill_s + account.step_s.sum())
    assert account.busy_s <= decoded.total_s * (1 + 1e-12)
    at_once = decode_all(batching, times, src_len, tgt_len)
    assert at_once.account.busy_s == pytest.approx(at_once.total_s)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(batchings(), rows(), st.booleans(), st.booleans(), st.booleans())
def test_a_box_does_what_a_server_does_step_by_step(
    batching: Batching, drawn: list[tuple[int, int, float]], coincident: bool, present: bool, leaving: bool
) -> None:
    gaps_s = [round(8 * row[2]) / 8 if coincident else row[2] for row in drawn]
    arrival_s = [0.0] * len(drawn) if present else list(accumulate(gaps_s))
    times = (LEAVING_EIGHTHS if coincident else LEAVING) if leaving else EIGHTHS if coincident else cost()
    assert_steps_agree(batching, times, [row[0] for row in drawn], [row[1] for row in drawn], arrival_s)


@pytest.mark.parametrize("times", [cost(), EIGHTHS, LEAVING, LEAVING_EIGHTHS])
def test_a_box_does_so_where_batches_are_joined_all_the_time(times: DecodingCost) -> None:
    """Hypothesis seldom draws many that arrive while others are decoded."""
    random = np.random.default_rng(4)
    for size in [*range(2, 8)] * 10:
        src_len, tgt_len = random.integers(1, 16, 12), random.integers(0, 13, 12)
        arrival_s = np.cumsum(random.integers(0, 9, 12)) / 8 * random.choice([0.1, 1.0, 3.0])
        batching = top_up(size, int(random.integers(0, size)))
        assert_steps_agree(batching, times, src_len.tolist(), tgt_len.tolist(), arrival_s.tolist())


WITH_STEPS = [
    name
    for name in shipped_files.names("calibration")
    if read_profile(shipped_files.find("calibration", name)).step is not None
]
"""Every shipped profile that has costs of decode steps."""


@pytest.mark.parametrize("name", WITH_STEPS)
def test_a_sentence_alone_costs_the_same_with_batching_on_and_off(name: str) -> None:
    """XP-01: without a queue and with batches of one, over the news lengths, within 2 % of the plane on the mean."""
    profile = read_profile(shipped_files.find("calibration", name))
    table = read_table(shipped_files.find("traces/lengths", "@de-en-news"))
    rows = np.flatnonzero(table.count >= 3)
    src_len, tgt_len, count = table.src_len[rows], table.tgt_len[rows], table.count[rows]
    decoded = decode_all(top_up(1, 0), profile.decoding_cost, src_len, tgt_len, 100.0 * np.arange(rows.size))
    alone_s, plane_s = decoded.finish_s - decoded.begin_s, profile.plane.seconds(src_len, tgt_len)
    np.testing.assert_allclose(alone_s, profile.decoding_cost.solo_s(src_len, tgt_len), rtol=1e-9, atol=1e-9)
    assert float(alone_s @ count / (plane_s @ count)) == pytest.approx(1.0, abs=0.02)
    stated = alone_vs_plane(profile)
    assert stated is not None and abs(stated) <= 0.02


NOTHING = (0.0, 0.0, 0.0, 0.0)
BY_POSITION = cost((0.0, 0.0, 1.0, 0.0), NOTHING, (0.0, 0.0), (0.0, 0.0))
BY_SOURCE = cost((1.0, 0.0, 0.0, 0.0), NOTHING, (0.0, 0.0), (0.0, 0.0), source_s=(2, 0.125))


def test_a_sentence_is_done_when_it_has_left_and_holds_the_others_up() -> None:
    """Leaving takes half a second: the sentence of 2 steps is done at 2.5, and the batch of 4 steps at 2.5 + 2 + 0.5."""
    leaving = cost((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), (0.0, 0.0), (0.0, 0.0), leave_s=0.5)
    decoded = decode_all(top_up(3, 2), leaving, [1, 1, 1, 1], [2, 4, 4, 0], [0.0, 0.0, 0.0, 9.0])
    assert decoded.finish_s.tolist() == [2.5, 5.0, 5.0, 9.0]
    assert decoded.first_token_s[:3].tolist() == [1.0, 1.0, 1.0]
    assert decoded.account.step_s.tolist() == [0.0, 0.0, 2.5, 2.5]


@pytest.mark.parametrize(
    ("times", "batching", "src_len", "tgt_len", "arrival_s", "ends_s"),
    [
        # Position p costs p seconds: a sentence of 4 takes 0+1+2+3 alone; another joins before position 2, and goes on alone.
        (BY_POSITION, top_up(2, 1), [1, 1], [4, 4], [0.0, 0.5], [6.0, 11.0]),
        # A step takes 1 s, and an eighth for each sentence and each token of the longest source beyond 2: 3 s, then 1 or 2.
        (BY_SOURCE, mini(2), [10, 6], [1, 3], [0.0, 0.0], [3.0, 3.0 + 2 * 1.5]),
        (BY_SOURCE, mini(2), [6, 10], [1, 3], [0.0, 0.0], [3.0, 3.0 + 2 * 2.0]),
    ],
)
def test_a_step_costs_by_the_longest_position_and_the_longest_source(
    times: DecodingCost, batching: Batching, src_len: list[int], tgt_len: list[int], arrival_s: list[float], ends_s: list[float]
) -> None:
    assert decode_all(batching, times, src_len, tgt_len, arrival_s).finish_s.tolist() == ends_s
