"""Costs of batched servers for tests, and batchings as hypothesis draws them."""

from __future__ import annotations

from math import inf

from hypothesis import strategies as st

from simnmt.batching import Batching
from simnmt.profile.batch_cost import BatchCost, DecodingCost, LinearSurface


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
    steps, sources = LinearSurface(*step), LinearSurface(*encoder)
    src_len, s_per_row_src_token = source_s or (None, 0.0)
    return DecodingCost(
        BatchCost(steps, (1, 128), (0, 400)),
        BatchCost(sources, (1, 128), (1, 200)),
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
"""Those who are done hold the others up, and the longest source adds to every step, or takes from it."""

LEAVING_EIGHTHS = cost(
    (0.125, 0.0, 0.0, 0.125), (0.0, 0.0, 0.0, 0.125), (0.0, 0.125), (0.0, 0.0), leave_s=0.25, source_s=(1, 0.125)
)
"""The same in eighths."""


@st.composite
def batchings(draw: st.DrawFn) -> Batching:
    """Of every kind, with every limit."""
    size = draw(st.integers(1, 6))
    return Batching(
        size,
        threshold=draw(st.integers(0, size - 1)),
        collected=draw(st.none() | st.integers(size, 12)),
        longest_wait_s=draw(st.sampled_from([0.0, 0.125, 0.5, 3.0, inf])),
        padded_tokens=draw(st.none() | st.integers(1, 40)),
        encoded_together=draw(st.none() | st.integers(1, 8)),
    )


def rows(longest: int = 12, most: int = 30) -> st.SearchStrategy[list[tuple[int, int, float]]]:
    """(Source tokens, target tokens, gap to the arrival before in seconds)."""
    eighths = st.integers(0, 24).map(lambda number: number / 8)
    gaps = st.one_of(st.just(0.0), eighths, st.floats(0.0, 3.0))
    return st.lists(st.tuples(st.integers(1, 15), st.integers(0, longest), gaps), max_size=most)
