"""Fit of the costs of an engine with slots, from the moments at which the tokens of streamed requests arrived.

Every iteration gives one token to each slot that decodes, so that the tokens of overlapping requests tell iterations apart. The
seconds of an iteration are linear in its decoding slots, their context and the prompt tokens that it reads. Weights are one
over the fitted seconds: one over the measured ones would let fast iterations count more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.profile.execution_fit import bounded_least_squares
from simnmt.profile.slots_block import SlotsCost

WINDOW = 8
"""Most iterations of one kind in a row that are one observation: the client's delays cancel in their sum."""
LEAST_STEP_S = 1e-6
"""Shortest iteration of a fit."""
STALL, ROBUST_SDS = 1.5, 5.0
"""An observation does not count if it took more than these times its fitted seconds, and as many robust deviations above."""
STRETCHES = 6
"""Stretches of blocks, in the order of time, whose speeds are compared: a single block varies too much."""
ALIKE = 1.5
"""Weight of an iteration that only reads being like a step: the observations of a block are not independent."""
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
    """Share of the time that observations took which do not count."""
    knows_reading: bool
    """Whether iterations that only read prompts were seen; otherwise they count like decoding one request."""


@dataclass(frozen=True, slots=True)
class _Iterations:
    """Iterations whose duration is known, one a row."""

    seconds: Floats
    decoding: NDArray[np.int64]
    context: Floats
    """Tokens of context of the decoding slots."""
    prompt: Floats
    """Prompt tokens read."""
    requests: Floats
    """1 where the time of a request outside iterations is included, else 0."""
    block: NDArray[np.int64]
    members: list[tuple[NDArray[np.int64], float]]
    """Of each request that is measured as a whole, its rows and its seconds."""
    kinds: dict[int, str]
    """Kind by block."""


def place_iterations(requests: Sequence[StreamedRequest], slots: int) -> tuple[list[float], list[int]]:
    """Return the moment of each iteration's tokens in one block, and by request the iteration of its first token.

    The tokens of a request come in iterations one after another, so that one number places them all.
    """
    moments, places = list[float](), [0] * len(requests)
    alone = [request.tokens_s[0] for request in requests if len(request.tokens_s) == 1]
    # An iteration may read one prompt where the usual one reads as many as there are slots.
    usual_s = (max(alone) - min(alone)) / max(-(-len(alone) // slots) - 1, 1) / slots if len(alone) > 1 else 0.0
    for number in sorted(range(len(requests)), key=lambda one: float(requests[one].tokens_s[0])):
        tokens_s = requests[number].tokens_s
        places[number] = place = _place(moments, tokens_s, usual_s)
        for iteration, moment in enumerate(tokens_s.tolist(), start=place):
            if iteration == len(moments):
                moments.append(moment)
            else:
                moments[iteration] = min(moments[iteration], moment)
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


def _of_block(requests: Sequence[StreamedRequest], slots: int) -> tuple[list[list[float]], list[list[int]], list[float]]:
    """Return rows (seconds, decoding, context, prompt, request), and by request its rows and its measured seconds."""
    moments, places = place_iterations(requests, slots)
    ends = [place + len(request.tokens_s) - 1 for place, request in zip(places, requests, strict=True)]
    rows, row_of = list[list[float]](), dict[int, int]()
    for iteration in range(1, len(moments)):
        decodes = [number for number, place in enumerate(places) if place < iteration <= ends[number]]
        reads = [number for number, place in enumerate(places) if place == iteration]
        if not decodes:  # it began at once only if its requests were waiting already, here for an iteration at least
            earlier_s = moments[iteration - 2] if iteration > 1 else -np.inf
            if not reads or max(requests[number].sent_s for number in reads) > earlier_s:
                continue
        context = sum(requests[number].prompt_tokens + iteration - places[number] for number in decodes)
        prompt = sum(requests[number].read_tokens for number in reads)
        row_of[iteration] = len(rows)
        rows.append([moments[iteration] - moments[iteration - 1], len(decodes), context, prompt, 0.0])
    members, measured_s = list[list[int]](), list[float]()
    for number, request in enumerate(requests):
        first_s, last_s = float(request.tokens_s[0]), float(request.tokens_s[-1])
        rows_of_request = [row_of[iteration] for iteration in range(places[number] + 1, ends[number] + 1)]
        others = [other for other in requests if other is not request]
        is_alone = all(other.tokens_s[-1] < request.sent_s or other.sent_s > first_s for other in others)
        if is_alone:
            rows.append([first_s - request.sent_s, 0, 0, request.read_tokens, 1.0])
            rows_of_request.append(len(rows) - 1)
        if rows_of_request:
            members.append(rows_of_request)
            measured_s.append(last_s - (request.sent_s if is_alone else first_s))
    return rows, members, measured_s


def _iterations(requests: Sequence[StreamedRequest], slots: int) -> _Iterations:
    table, blocks, members, kinds = list[list[float]](), list[int](), list[tuple[NDArray[np.int64], float]](), dict[int, str]()
    for block in dict.fromkeys(request.block for request in requests):
        of_block = [request for request in requests if request.block == block]
        kinds[block] = of_block[0].kind
        rows, owned, measured_s = _of_block(of_block, slots)
        members += [(np.array(numbers) + len(table), seconds) for numbers, seconds in zip(owned, measured_s, strict=True)]
        table += rows
        blocks += [block] * len(rows)
    seconds, decoding, context, prompt, request = np.array(table, np.float64).reshape(-1, 5).T
    return _Iterations(seconds, decoding.astype(np.int64), context, prompt, request, np.array(blocks, np.int64), members, kinds)


def _design(rows: _Iterations, knots: Sequence[int]) -> Floats:
    """Return columns: an iteration that only reads, steps at the knots, context, prompt, request; shape (rows, knots + 4)."""
    steps = np.stack([np.interp(rows.decoding, knots, unit) for unit in np.eye(len(knots))], axis=1)
    decodes = rows.decoding > 0
    return np.column_stack([~decodes, steps * decodes[:, None], rows.context, rows.prompt, rows.requests])


def _windows(rows: _Iterations) -> NDArray[np.int64]:
    """Return the observation of each row: iterations of one kind in a row, up to `WINDOW`, or one of another kind."""
    windows, size = np.zeros(len(rows.seconds), np.int64), 1
    for row in range(1, len(windows)):
        joins = (
            size < WINDOW
            and rows.decoding[row] == rows.decoding[row - 1] > 0
            and rows.block[row] == rows.block[row - 1]
            and rows.prompt[row] == rows.prompt[row - 1] == 0.0
        )
        size = size + 1 if joins else 1
        windows[row] = windows[row - 1] + (not joins)
    return windows


def _coefficients(design: Floats, seconds: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the coefficients of observations by relative least squares, none below 0, and the mask of those that count.

    An iteration that only reads counts like a step of one request as far as the observations leave it open: beside the prompts
    that it reads, its own seconds are few.
    """
    keeps, coefficients, deviation = np.ones(len(seconds), np.bool_), np.zeros(design.shape[1]), 0.0
    alike = np.zeros((1, design.shape[1]))
    alike[0, :2] = 1.0, -1.0
    for _ in range(4):
        expected = np.full(len(seconds), seconds.mean())
        for _ in range(10):  # each with the weights of the one before
            weighted = np.vstack(
                [(design / expected[:, None])[keeps], ALIKE * deviation / max(coefficients[1], LEAST_STEP_S) * alike]
            )
            coefficients = bounded_least_squares(weighted, np.append((seconds / expected)[keeps], 0.0))
            expected = np.maximum(design @ coefficients, 0.01 * np.median(seconds))
        ratio = seconds / expected
        middle = np.median(ratio)
        deviation = 1.4826 * float(np.median(np.abs(ratio - middle)))
        keeps = ratio <= max(STALL, middle + ROBUST_SDS * deviation)
    return coefficients, keeps


def fit_slots(requests: Sequence[StreamedRequest], slots: int, knots: Sequence[int]) -> SlotsFit:
    """Fit the costs of an engine with `slots` slots.

    `knots`: numbers of requests at once that were measured, from 1 up to `slots`; steps are linear between them. The engine
    must read each prompt in one iteration. Raises `ValueError` without any iteration.
    """
    rows = _iterations([request for request in requests if len(request.tokens_s)], slots)
    if not (rows.decoding > 0).any():
        raise ValueError("no request has two tokens")
    design = _design(rows, knots)
    knows_reading = bool(((rows.decoding == 0) & (rows.requests == 0.0)).any())
    if not knows_reading:
        design[:, 1] += design[:, 0]
        design[:, 0] = 0.0
    window_of = _windows(rows)
    begins = np.flatnonzero(np.diff(window_of, prepend=-1))
    seen, seconds = np.add.reduceat(design, begins), np.add.reduceat(rows.seconds, begins)
    block_of = rows.block[begins]
    coefficients, keeps = _coefficients(seen, seconds)
    reading_s, *steps_s = coefficients[: len(knots) + 1].tolist()
    context_s, prompt_s, request_s = coefficients[len(knots) + 1 :].tolist()
    by_slots = np.interp(np.arange(1, slots + 1), knots, steps_s)
    step_s = np.maximum([reading_s if knows_reading else steps_s[0], *by_slots], LEAST_STEP_S)
    return SlotsFit(
        cost=SlotsCost(tuple(step_s.tolist()), prompt_s, context_s, request_s),
        most_decoding=int(rows.decoding.max()),
        iterations=len(rows.seconds) - int(rows.requests.sum()),
        heldout_error=_heldout_error(rows, design, seen, seconds, block_of),
        speed_change=_speed_change(rows, block_of[keeps], seconds[keeps], (seen @ coefficients)[keeps]),
        stalled_share=float(seconds[~keeps].sum() / seconds.sum()),
        knows_reading=knows_reading,
    )


def _heldout_error(
    rows: _Iterations, design: Floats, seen: Floats, seconds: Floats, block_of: NDArray[np.int64]
) -> float | None:
    """Return the mean absolute relative error of requests, each predicted from the blocks of other folds."""
    places = {block: place % FOLDS for place, block in enumerate(rows.kinds)}
    fold_of = np.array([places[block] for block in block_of.tolist()])
    errors = list[float]()
    for fold in range(FOLDS) if len(places) >= 2 * FOLDS else ():
        coefficients, _ = _coefficients(seen[fold_of != fold], seconds[fold_of != fold])
        predicted_s = design @ coefficients
        for rows_of_request, measured_s in rows.members:
            if places[int(rows.block[rows_of_request[0]])] == fold and measured_s > 0.0:
                errors.append(abs(float(predicted_s[rows_of_request].sum()) / measured_s - 1.0))
    return float(np.mean(errors)) if errors else None


def _speed_change(rows: _Iterations, block_of: NDArray[np.int64], seconds: Floats, fitted_s: Floats) -> float:
    """Return how much longer the slowest stretch took than the fastest, each block against the median of its kind."""
    took_s = {
        block: (float(seconds[on].sum()), float(fitted_s[on].sum())) for block in rows.kinds if (on := block_of == block).any()
    }
    by_kind = dict[str, list[int]]()
    for block in took_s:
        by_kind.setdefault(rows.kinds[block], []).append(block)
    usual_s = dict[int, float]()
    for blocks in by_kind.values():
        if len(blocks) > 1:
            middle = float(np.median([took_s[block][0] / took_s[block][1] for block in blocks]))
            usual_s |= {block: middle * took_s[block][1] for block in blocks}
    stretches = [part.tolist() for part in np.array_split(sorted(usual_s), STRETCHES) if part.size]
    ratios = [sum(took_s[one][0] for one in part) / sum(usual_s[one] for one in part) for part in stretches]
    return max(ratios) / min(ratios) - 1.0 if ratios else 0.0
