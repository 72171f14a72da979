"""Costs beside those of the model: the gateway's decision (CNMT-12), tokenisation, joining and leaving a batch (FNI-10)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

import numpy as np

from simnmt.calibrate.fits import OverheadFit, fit_overhead
from simnmt.calibrate.plan import STEP_SRC_LEN
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.nmt.errors import OutOfMemory
from simnmt.policies import CNmt
from simnmt.profile.blocks import Overhead
from simnmt.profile.cost import Plane
from simnmt.workload.length_regression import LengthRegression

DECISIONS = 2_000
LONGEST_SRC_LEN = 500
SENTENCES = 40

Clock = Callable[[], float]


def decision_s(clock: Clock = perf_counter, decisions: int = DECISIONS) -> float:
    """Return the median seconds of a decision of C-NMT between two targets, one request at a time as in a live gateway.

    The policy is the one that the simulation runs. `prepare` computes the time-independent part once for every source length;
    a decision looks up both executions and adds the delay of each target.
    """
    planes = [Plane(0.0004, 0.003, 0.005), Plane(0.0001, 0.001, 0.004)]
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
    """Fit (seconds per token, seconds per sentence) of cutting text into pieces, over sentences of 1 to 100 pieces.

    The sentences are random pieces of the tokeniser itself. None if its library is not installed. Raises `CalibrationError` for
    a file that it cannot use.
    """
    library = "tokenizers" if path.suffix == ".json" else "sentencepiece"
    try:
        load = _load_tokenizers if library == "tokenizers" else _load_sentencepiece
        encode, decode, size = load(path)
    except ImportError:
        return None
    except Exception as error:  # tokenizers raises bare exceptions
        what = f"{library} cannot use it: {next(iter(str(error).splitlines()), type(error).__name__)}"
        raise CalibrationError(what, path=path, remedy="write the model's folder anew") from None
    tokens, times_s = _timed(encode, decode, size, seed, clock)
    if len(set(tokens)) < 2:
        return None
    slope, offset = np.polyfit(tokens, times_s, 1).tolist()
    return max(slope, 0.0), max(offset, 0.0)


_Pieces = tuple[Callable[[str], Any], Callable[[list[int]], str], int]
"""Cuts a text into pieces, joins pieces to a text, and the number of different pieces."""


def _load_sentencepiece(path: Path) -> _Pieces:
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_file=str(path))
    return processor.encode, processor.decode, processor.get_piece_size()


def _load_tokenizers(path: Path) -> _Pieces:
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer.encode, tokenizer.decode, tokenizer.get_vocab_size()


def _timed(
    encode: Callable[[str], Any], decode: Callable[[list[int]], str], size: int, seed: int, clock: Clock
) -> tuple[list[int], list[float]]:
    """Return the number of pieces of each sentence, and the least seconds of cutting it."""
    random = np.random.default_rng(seed)
    tokens, times_s = [], []
    for length in np.linspace(1, 100, SENTENCES).astype(int).tolist():
        text = decode(random.integers(0, size, length).tolist())
        repeats_s = []
        for _ in range(7):
            begin_s = clock()
            pieces = encode(text)
            repeats_s.append(clock() - begin_s)
        tokens.append(len(pieces))
        times_s.append(min(repeats_s))
    return tokens, times_s


def overhead(value: float | None, note: str = "") -> Overhead:
    """Return one measured entry of a profile's `overheads`; `value` None: it could not be measured."""
    return Overhead(value=value, kind="measured", note=note)


NAMES = ("refill_s_fixed", "refill_s_per_sentence", "leave_s")
NEVER = "never refills a batch"
PASSES, ROUNDS = 3, 5
"""Passes over all sizes, and rounds of each size in a pass."""
WITHIN_S = 30.0
"""Seconds after which no further pass begins: each takes steps of the largest batch."""


@runtime_checkable
class Joins(Protocol):
    """An engine whose decoder lets sentences join and leave."""

    def joining_s(self, joining: int, others: int, *, src_len: int, beam: int, rounds: int) -> tuple[float, float]:
        """Return the median seconds that encoded sentences take to join others, and to leave again in one step."""


def refill_overheads(
    engine: object, settings: Settings, most: int, clock: Callable[[], float] = perf_counter
) -> dict[str, Overhead]:
    """Measure `refill_s_fixed`, `refill_s_per_sentence` and `leave_s` of a profile, from 1, 2, 4 ... sentences, up to `most`.

    Sentences that joined together end at different steps: the cost of leaving per sentence is added to its joining, and the
    fixed cost is `leave_s`, paid in each step that ends some sentence. As many others are active as fit, at most as many as
    join. The first step after joining may take longer than its batch and position imply; that is not included.
    """
    if not isinstance(engine, Joins):
        return dict.fromkeys(NAMES, overhead(None, NEVER))
    src_len = min(STEP_SRC_LEN, settings.max_src_len)
    times_s: dict[int, list[tuple[float, float]]] = {}
    sizes = [1 << power for power in range(most.bit_length())]
    begin_s = clock()
    for number in range(PASSES):
        if number and clock() - begin_s > WITHIN_S:
            break
        for joining in sizes:
            others = min(joining, sizes[-1] - joining)
            try:
                join_leave_s = engine.joining_s(joining, others, src_len=src_len, beam=settings.beam, rounds=ROUNDS)
            except OutOfMemory:
                break
            times_s.setdefault(joining, []).append(join_leave_s)
    if not times_s:
        return dict.fromkeys(NAMES, overhead(None, "out of memory"))
    medians_s = np.array([np.median(pass_times_s, axis=0) for pass_times_s in times_s.values()])
    join, leave = (fit_overhead(list(times_s), column) for column in medians_s.T)
    sentence_s = join.s_per_sentence + leave.s_per_sentence
    overheads = (
        overhead(join.s_fixed, _note("joining", max(times_s), join)),
        overhead(sentence_s, f"{1e6 * leave.s_per_sentence:.3g} us of each for leaving"),
        overhead(leave.s_fixed, _note("leaving", max(times_s), leave)),
    )
    return dict(zip(NAMES, overheads, strict=True))


def _note(what: str, most: int, fit: OverheadFit) -> str:
    error = "" if fit.error is None else f", error {100 * fit.error:.1f} % on {fit.how}"
    return f"{what} of 1 to {most} sentences{error}"
