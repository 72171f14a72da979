"""Fit of the costs of an engine with slots, from the moments at which the tokens of streamed requests arrived.

Every iteration gives one token to each slot that decodes, so the tokens of overlapping requests show where iterations begin and
end. The seconds of an iteration are linear in its decoding slots, their context and the prompt tokens that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.profile.execution_fit import relative_least_squares
from simnmt.profile.slots_block import SlotsCost

WINDOW = 8
"""Most iterations of one kind in a row that are one observation: the client's delays cancel in their sum."""
LEAST_STEP_S = 1e-6
"""Shortest iteration of a fit."""
STALL, ROBUST_SDS = 1.5, 5.0
"""An observation is a stall if it took more than these times its fitted seconds, and as many robust deviations above."""
STRETCHES = 6
"""Stretches of blocks, in the order of time, whose speeds are compared: a single block varies too much."""
READS_LIKE_STEP = 1.5
"""Weight of the prior that an iteration which only reads takes as long as a step of one request. Above 1, since the
observations of a block are not independent."""
FOLDS = 3
"""Parts of the blocks that are left out in turn."""


@dataclass(frozen=True, slots=True)
class StreamedRequest:
    """A request with the moments of its tokens, all by one clock."""

    block: int
    """Number of the block in which it was sent; requests of different blocks do not meet."""
    kind: str
    """What the block does, the same in each round."""
    sent_s: float
    tokens_s: Floats
    """Arrivals of its tokens from the first on, shape (tokens,)."""
    prompt_tokens: int
    read_tokens: int
    """Tokens of the prompt that were not cached."""


@dataclass(frozen=True, slots=True)
class SlotsFit:
    """Fitted costs, and how well they hold."""

    cost: SlotsCost
    most_decoding: int
    """Most requests that the service was seen to decode together."""
    iterations: int
    heldout_error: float | None
    """Mean absolute relative error of the times of requests in blocks that were left out."""
    speed_change: float
    """How much longer the slowest stretch of blocks took than the fastest, relative; each block against its kind."""
    stalled_share: float
    """Share of the time that stalls took. They do not tell the costs apart, but lengthen all of them alike."""
    knows_reading: bool
    """Whether iterations that only read prompts were seen; otherwise they count like decoding one request."""


def place_iterations(requests: Sequence[StreamedRequest], slots: int) -> tuple[list[float], list[int]]:
    """Return the moment of each iteration's tokens in one block, rising, and by request the iteration of its first token.

    The tokens of a request come in iterations one after another, so that one number places them all.
    """
    moments, places = list[float](), [0] * len(requests)
    single = [request.tokens_s[0] for request in requests if len(request.tokens_s) == 1]
    # An iteration may read one prompt where the usual one reads as many as there are slots.
    usual_s = (max(single) - min(single)) / max(-(-len(single) // slots) - 1, 1) / slots if len(single) > 1 else 0.0
    for number in sorted(range(len(requests)), key=lambda number: float(requests[number].tokens_s[0])):
        tokens_s = requests[number].tokens_s
        places[number] = place = _place(moments, tokens_s, usual_s)
        for iteration, token_s in enumerate(tokens_s.tolist(), start=place):
            if iteration < len(moments):
                token_s = min(moments[iteration], token_s)
            if iteration:  # a misplaced request must not put an iteration before the previous one
                token_s = max(moments[iteration - 1], token_s)
            moments[iteration : iteration + 1] = [token_s]
    return moments, places


def _place(moments: list[float], tokens_s: Floats, usual_s: float) -> int:
    """Return the iteration whose moment, and whose followers' moments, fit best to the tokens."""
    count = len(moments)
    gap_s = float(np.median(np.diff(tokens_s))) if len(tokens_s) > 1 else usual_s
    if not count or tokens_s[0] > moments[-1] + 0.5 * gap_s:
        return count
    nearest = int(np.searchsorted(moments, tokens_s[0]))
    candidates = range(max(nearest - 3, 0), min(nearest + 3, count - 1) + 1)

    def distance_s(place: int) -> float:
        overlap = min(count - place, len(tokens_s))
        return float(np.median(np.abs(tokens_s[:overlap] - np.array(moments[place : place + overlap]))))

    return min(candidates, key=distance_s)


COLUMNS = ["block", "seconds", "decoding", "context", "prompt", "request"]
"""Of an iteration: its block, seconds, decoding slots, their tokens of context, prompt tokens read, and 1 if it contains the
seconds of a request outside iterations, else 0."""
Row = tuple[float, ...]
Member = tuple[list[int], float]
"""The rows of one request that is measured as a whole, and its seconds."""


def _rows_of_block(requests: Sequence[StreamedRequest], slots: int, first: int) -> tuple[list[Row], list[Member]]:
    """Return the iterations of a block whose duration is known, and its requests; `first`: number of the first row."""
    block, (moments, places) = requests[0].block, place_iterations(requests, slots)
    ends = [place + len(request.tokens_s) - 1 for place, request in zip(places, requests, strict=True)]
    rows, row_of, members = list[Row](), dict[int, int](), list[Member]()
    for iteration in range(1, len(moments)):
        decodes = [number for number, place in enumerate(places) if place < iteration <= ends[number]]
        reads = [number for number, place in enumerate(places) if place == iteration]
        if not decodes:  # it began at once only if its requests were waiting already, here for an iteration at least
            earlier_s = moments[iteration - 2] if iteration > 1 else -np.inf
            if not reads or max(requests[number].sent_s for number in reads) > earlier_s:
                continue
        context = sum(requests[number].prompt_tokens + iteration - places[number] for number in decodes)
        prompt = sum(requests[number].read_tokens for number in reads)
        row_of[iteration] = first + len(rows)
        rows.append((block, moments[iteration] - moments[iteration - 1], len(decodes), context, prompt, 0.0))
    for number, request in enumerate(requests):
        begin_s, first_s = request.sent_s, float(request.tokens_s[0])
        rows_of_request = [row_of[iteration] for iteration in range(places[number] + 1, ends[number] + 1)]
        if all(other.tokens_s[-1] < begin_s or other.sent_s > first_s for other in requests if other is not request):
            rows_of_request.append(first + len(rows))
            rows.append((block, first_s - begin_s, 0, 0, request.read_tokens, 1.0))
        else:
            begin_s = first_s
        if rows_of_request:
            members.append((rows_of_request, float(request.tokens_s[-1]) - begin_s))
    return rows, members


def _iterations(requests: Sequence[StreamedRequest], slots: int) -> tuple[pd.DataFrame, list[Member]]:
    """Return the iterations of all blocks, with `COLUMNS`, and the requests."""
    rows, members = list[Row](), list[Member]()
    for block in dict.fromkeys(request.block for request in requests):
        of_block = [request for request in requests if request.block == block]
        further, requests_of_block = _rows_of_block(of_block, slots, len(rows))
        rows += further
        members += requests_of_block
    return pd.DataFrame(rows, columns=COLUMNS, dtype=np.float64), members


def _design(rows: pd.DataFrame, knots: Sequence[int]) -> Floats:
    """Return columns: an iteration that only reads, steps at the knots, context, prompt, request; shape (rows, knots + 4)."""
    decoding = rows["decoding"].to_numpy()
    steps = np.stack([np.interp(decoding, knots, unit) for unit in np.eye(len(knots))], axis=1) * (decoding > 0)[:, None]
    return np.column_stack([decoding == 0, steps, rows[["context", "prompt", "request"]].to_numpy()])


def _first_rows(rows: pd.DataFrame) -> NDArray[np.int64]:
    """Return the first row of each observation: of up to `WINDOW` iterations that decode alike, or of one that reads."""
    decodes_alone = (rows["decoding"] > 0) & (rows["prompt"] == 0)
    joins = decodes_alone & (rows[["block", "decoding", "prompt"]].diff() == 0).all(axis=1)
    begins = np.flatnonzero(~joins)
    place = np.arange(len(rows)) - np.repeat(begins, np.diff(begins, append=len(rows)))
    return np.flatnonzero(place % WINDOW == 0)


def _coefficients(design: Floats, seconds: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the coefficients of observations by relative least squares, none below 0, and the mask of those that fit them.

    The others are stalls. All coefficients are then longer by one factor, with which they add up to the time of all
    observations: a service that stalls now and then takes longer on average, and its queues wait for that.

    An iteration that only reads counts like a step of one request as far as the observations leave it open: beside the prompts
    that it reads, its own seconds are few.
    """
    keeps, prior, least_s = np.ones(len(seconds), np.bool_), np.zeros((1, design.shape[1])), 0.01 * float(np.median(seconds))
    for _ in range(4):
        coefficients = relative_least_squares(design[keeps], seconds[keeps], least_s, prior)
        ratio = seconds / np.maximum(design @ coefficients, least_s)
        middle = np.median(ratio)
        deviation = 1.4826 * float(np.median(np.abs(ratio - middle)))
        keeps = ratio <= max(STALL, middle + ROBUST_SDS * deviation)
        prior[0, :2] = READS_LIKE_STEP * deviation / max(coefficients[1], LEAST_STEP_S) * np.array([1.0, -1.0])
    return coefficients * (seconds.sum() / (design @ coefficients).sum()), keeps


def fit_slots(requests: Sequence[StreamedRequest], slots: int, knots: Sequence[int]) -> SlotsFit:
    """Fit the costs of an engine with `slots` slots.

    `knots`: numbers of requests at once that were measured, from 1 up to `slots`; steps are linear between them. The engine
    must read each prompt in one iteration. Raises `ValueError` without any iteration.
    """
    rows, members = _iterations([request for request in requests if len(request.tokens_s)], slots)
    if not (rows["decoding"] > 0).any():
        raise ValueError("no request has two tokens")
    design, knows_reading = _design(rows, knots), bool(((rows["decoding"] == 0) & (rows["request"] == 0)).any())
    if not knows_reading:
        design[:, 1] += design[:, 0]
        design[:, 0] = 0.0
    begins, block_of = _first_rows(rows), rows["block"].to_numpy(np.int64)
    observed, seconds = np.add.reduceat(design, begins), np.add.reduceat(rows["seconds"].to_numpy(), begins)
    coefficients, keeps = _coefficients(observed, seconds)
    reading_s, *steps_s = coefficients[: len(knots) + 1].tolist()
    context_s, prompt_s, request_s = coefficients[len(knots) + 1 :].tolist()
    by_slots = np.interp(np.arange(1, slots + 1), knots, steps_s)
    step_s = np.maximum([reading_s if knows_reading else steps_s[0], *by_slots], LEAST_STEP_S)
    times = pd.DataFrame({"block": block_of[begins], "seconds": seconds, "fitted_s": observed @ coefficients})[keeps]
    return SlotsFit(
        cost=SlotsCost(tuple(step_s.tolist()), prompt_s, context_s, request_s),
        most_decoding=int(rows["decoding"].max()),
        iterations=int((rows["request"] == 0).sum()),
        heldout_error=_heldout_error(design, block_of, begins, seconds, members),
        speed_change=_speed_change(times, {request.block: request.kind for request in requests}),
        stalled_share=float(seconds[~keeps].sum() / seconds.sum()),
        knows_reading=knows_reading,
    )


def _heldout_error(
    design: Floats, block_of: NDArray[np.int64], begins: NDArray[np.int64], seconds: Floats, members: Sequence[Member]
) -> float | None:
    """Return the mean absolute relative error of requests, each predicted from the blocks of other folds."""
    blocks, place = np.unique(block_of, return_inverse=True)
    fold_of, observed, errors = place % FOLDS, np.add.reduceat(design, begins), list[float]()
    for fold in range(FOLDS) if len(blocks) >= 2 * FOLDS else ():
        others = fold_of[begins] != fold
        predicted_s = design @ _coefficients(observed[others], seconds[others])[0]
        for rows_of_request, measured_s in members:
            if fold_of[rows_of_request[0]] == fold and measured_s > 0.0:
                errors.append(abs(float(predicted_s[rows_of_request].sum()) / measured_s - 1.0))
    return float(np.mean(errors)) if errors else None


def _speed_change(times: pd.DataFrame, kinds: dict[int, str]) -> float:
    """Return how much longer the slowest stretch took than the fastest, each block against the median of its kind."""
    blocks = times.groupby("block").sum()
    of_kind = (blocks["seconds"] / blocks["fitted_s"]).groupby(blocks.index.map(kinds))
    blocks["usual_s"] = of_kind.transform("median") * blocks["fitted_s"]
    repeated = blocks.loc[of_kind.transform("size") > 1, ["seconds", "usual_s"]].to_numpy()
    stretches = [part.sum(axis=0) for part in np.array_split(repeated, STRETCHES) if len(part)]
    ratios = [seconds / usual_s for seconds, usual_s in stretches]
    return max(ratios) / min(ratios) - 1.0 if ratios else 0.0
