"""Costs of batched servers, and requests to targets that batch, for tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from simnmt.batching import mini, top_up
from simnmt.profile.cost import DecodingCost
from simnmt.results.requests import Requests
from tests.profile.made_profile import line_table


def cost(
    step: tuple[float, float, float, float] = (0.01, 0.001, 1e-4, 1e-5),
    encoder: tuple[float, float, float, float] = (0.003, 0.001, 1e-4, 1e-5),
    gap_s: tuple[float, float] = (1e-4, 1e-5),
    refill_s: tuple[float, float] = (2e-4, 3e-5),
    leave_s: float = 0.0,
    source_s: tuple[int, float] | None = None,
) -> DecodingCost:
    """Seconds that are linear: fixed, per row, per token, per row and token; gap and refill fixed and per sentence.

    `source_s`: source tokens that the steps were measured with, and what one more adds per row.
    """
    src_len, s_per_row_src_token = source_s or (None, 0.0)
    return DecodingCost(
        line_table((1, 129), (0, 512), *step),
        line_table((1, 129), (0, 256), *encoder),
        gap_s_fixed=gap_s[0],
        gap_s_per_sentence=gap_s[1],
        refill_s_fixed=refill_s[0],
        refill_s_per_sentence=refill_s[1],
        leave_s=leave_s,
        src_len=src_len,
        s_per_row_src_token=s_per_row_src_token,
    )


SECONDS = cost((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), (0.0, 0.0), (0.0, 0.0))
"""A step takes a second, whatever the batch; nothing else takes any time."""

EIGHTHS = cost((0.125, 0.0, 0.0, 0.125), (0.0, 0.0, 0.0, 0.125), (0.0, 0.125), (0.0, 0.0))
"""All times are eighths of seconds, so that much happens in one moment; no rounding."""

LEAVING = cost(leave_s=0.004, source_s=(6, 2e-4))
"""Sentences that are done hold the others up, and the longest source adds to every step, or takes from it."""

LEAVING_EIGHTHS = replace(EIGHTHS, leave_s=0.25, src_len=1, s_per_row_src_token=0.125)
"""The same in eighths."""


def rows(longest: int = 12, most: int = 30) -> st.SearchStrategy[list[tuple[int, int, float]]]:
    """(Source tokens, target tokens, gap to the arrival before in seconds)."""
    eighths = st.integers(0, 24).map(lambda number: number / 8)
    gaps = st.one_of(st.just(0.0), eighths, st.floats(0.0, 3.0))
    return st.lists(st.tuples(st.integers(1, 15), st.integers(0, longest), gaps), max_size=most)


COST = cost()
BATCHINGS = {
    "mini": mini(4, longest_wait_s=0.05),
    "half-empty": top_up(8, 4),
    "immediate": top_up(8, 7),
    "one": top_up(1, 0),
    "company for ever": mini(4),
}


def asked(n: int = 400, rate_rps: float = 15.0, seed: int = 1, nodes: int = 5) -> Requests:
    """Requests of several end nodes that a gateway of twice the cloud's time decides on."""
    random = np.random.default_rng(seed)
    src_len = random.integers(1, 40, n)
    tgt_len = random.integers(0, 40, n)
    arrival_s = np.cumsum(random.exponential(1 / rate_rps, n))
    alone_s = COST.solo_s(src_len, tgt_len)
    uplink_s, downlink_s = 0.02 * random.lognormal(0.0, 1.0, (2, n))
    execution_s = (2 * alone_s, alone_s)
    return Requests(src_len, execution_s, (uplink_s,), (downlink_s,), arrival_s, np.arange(n) % nodes, tgt_len=tgt_len)
