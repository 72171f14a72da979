"""Costs beside the model's own: the gateway's decision (CNMT-12) and the cutting of text into tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from simnmt.calibrate.errors import CalibrationError
from simnmt.costs import ExecutionPlane
from simnmt.policies import CNmt
from simnmt.workload.length_regression import LengthRegression

DECISIONS = 2_000
LONGEST_SRC_LEN = 500
SENTENCES = 40

Clock = Callable[[], float]


def decision_s(clock: Clock = perf_counter, decisions: int = DECISIONS) -> float:
    """Median seconds that C-NMT takes to decide between two targets, one request at a time, as a live gateway does.

    What does not depend on the moment is prepared once for every source length, as `prepare` is for; the decision then looks
    up both executions and adds what each target costs besides. It is the policy that the simulation runs.
    """
    planes = [ExecutionPlane(0.0004, 0.003, 0.005), ExecutionPlane(0.0001, 0.001, 0.004)]
    decide = CNmt(planes, LengthRegression(0.8, 1.0).predict).prepare(np.arange(LONGEST_SRC_LEN + 1))
    delays_s = (0.0, 0.050)
    times_s = []
    for number in range(decisions):
        src_len = 1 + number % LONGEST_SRC_LEN
        begin_s = clock()
        decide(src_len, delays_s)
        times_s.append(clock() - begin_s)
    return float(np.median(times_s))


def tokenisation_s(path: Path, seed: int, clock: Clock = perf_counter) -> tuple[float, float] | None:
    """(Seconds per token, seconds per sentence) to cut text into pieces, fitted over sentences of 1 to 100 pieces.

    The sentences are random pieces of the model itself. None where sentencepiece is not installed. Raises
    `CalibrationError` for a file that it cannot use.
    """
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        return None
    try:
        tokens, times_s = _timed(SentencePieceProcessor(model_file=str(path)), seed, clock)
    except (OSError, RuntimeError) as error:
        what = f"sentencepiece cannot use it: {next(iter(str(error).splitlines()), type(error).__name__)}"
        raise CalibrationError(what, path=path, remedy="write the model's folder anew") from None
    if len(set(tokens)) < 2:
        return None
    slope, offset = np.polyfit(tokens, times_s, 1).tolist()
    return max(slope, 0.0), max(offset, 0.0)


def _timed(processor: Any, seed: int, clock: Clock) -> tuple[list[int], list[float]]:
    """Pieces of each sentence, and the least seconds of cutting it."""
    random = np.random.default_rng(seed)
    tokens, times_s = [], []
    for length in np.linspace(1, 100, SENTENCES).astype(int).tolist():
        text = processor.decode(random.integers(0, processor.get_piece_size(), length).tolist())
        repeats_s = []
        for _ in range(7):
            begin_s = clock()
            pieces = processor.encode(text)
            repeats_s.append(clock() - begin_s)
        tokens.append(len(pieces))
        times_s.append(min(repeats_s))
    return tokens, times_s


def overhead(value: float | None, note: str = "", heldout_error: float | None = None) -> dict[str, Any]:
    """Return one entry of a profile's `overheads`; `heldout_error`: see `Overhead`."""
    known = {} if heldout_error is None else {"heldout_error": heldout_error}
    return {"value": value, "kind": "measured", "note": note, **known}
