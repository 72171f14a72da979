"""Costs beside those of the model: the gateway's decision (CNMT-12), tokenisation, joining and leaving a batch (FNI-10)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from simnmt.calibrate.cells import STEP_SRC_LEN
from simnmt.calibrate.fits import OverheadFit, fit_overhead
from simnmt.calibrate.harness import Case, counted
from simnmt.calibrate.parts import Bench, Blocks, Cases, Part
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.hub import model_path
from simnmt.policies import CNmt
from simnmt.profile.blocks import Overhead
from simnmt.profile.cost import Plane
from simnmt.workload.length_regression import LengthRegression
from simnmt.workload.length_units import tokeniser_in

DECISIONS = 2_000
LONGEST_SRC_LEN = 500
DECISION_ROUNDS = 5


def overhead(value: float | None, note: str = "") -> Overhead:
    """Return one measured entry of a profile's `overheads`; `value` None: it could not be measured."""
    return Overhead(value=value, kind="measured", note=note)


def decision_cases(bench: Bench) -> Cases:
    """Return decisions of C-NMT between two targets, one request at a time as in a live gateway.

    The policy is the one that the simulation runs. `prepare` computes the time-independent part once for every source length;
    a decision looks up both executions and adds the delay of each target.
    """
    planes = [Plane(0.0004, 0.003, 0.005), Plane(0.0001, 0.001, 0.004)]
    decide = CNmt(planes, LengthRegression(0.8, 1.0).predict).prepare(np.arange(LONGEST_SRC_LEN + 1))
    delays_s = (0.0, 0.050)

    def decisions() -> None:
        for number in range(DECISIONS):
            decide(1 + number % LONGEST_SRC_LEN, delays_s)

    return {"decisions": Case(decisions)}


def fit_decision(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return the overhead of one decision."""
    seconds = float(counted(frame)["seconds"].median()) / DECISIONS
    return {"overheads": {"decision_s": overhead(seconds, "length regression and two planes, one request at a time")}}


SENTENCES, SENTENCE_ROUNDS = 40, 7
NAMES_OF_TOKENISATION = ("tokenisation_s_per_token", "tokenisation_s_fixed")


def tokenisation_cases(bench: Bench) -> Cases:
    """Return sentences of 1 to 100 random pieces of the model's tokeniser, to be cut again; none if it cannot be used."""
    path = tokeniser_in(model_path(bench.settings.model), "src")
    if path is None:
        return _no_tokenisation(bench, "no tokeniser belongs to this model")
    library = "tokenizers" if path.suffix == ".json" else "sentencepiece"
    try:
        encode, decode, size = (_load_tokenizers if library == "tokenizers" else _load_sentencepiece)(path)
    except ImportError:
        return _no_tokenisation(bench, "the tokeniser's library is not installed")
    except Exception as error:  # tokenizers raises bare exceptions
        what = f"{library} cannot use it: {next(iter(str(error).splitlines()), type(error).__name__)}"
        unusable = CalibrationError(what, path=path, remedy="write the model's folder anew")
        bench.remarks.append(f"no times of the tokeniser: {unusable}")
        return _no_tokenisation(bench, what)
    random = np.random.default_rng(bench.settings.seed)
    lengths = np.linspace(1, 100, SENTENCES).astype(int).tolist()
    texts = [decode(random.integers(0, size, length).tolist()) for length in lengths]
    return {
        number: Case(partial(encode, text), about={"text": number, "pieces": len(encode(text))})
        for number, text in enumerate(texts)
    }


def _no_tokenisation(bench: Bench, note: str) -> Cases:
    bench.add({"overheads": dict.fromkeys(NAMES_OF_TOKENISATION, overhead(None, note))})
    return {}


def fit_tokenisation(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return the overheads per token and per sentence, fitted to the least times."""
    least_s = counted(frame).groupby("text")[["pieces", "seconds"]].min()
    if least_s["pieces"].nunique() < 2:
        return {"overheads": dict.fromkeys(NAMES_OF_TOKENISATION, overhead(None, "the tokeniser cuts all sentences alike"))}
    line = np.polyfit(least_s["pieces"], least_s["seconds"], 1).tolist()
    return {"overheads": {name: overhead(max(value, 0.0)) for name, value in zip(NAMES_OF_TOKENISATION, line, strict=True)}}


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


NAMES_OF_JOINING = ("refill_s_fixed", "refill_s_per_sentence", "leave_s")
NEVER = "never refills a batch"
JOINING_ROUNDS, JOINING_WITHIN_S = 15, 30.0


@runtime_checkable
class Joins(Protocol):
    """An engine whose decoder lets sentences join and leave."""

    def joining_timer(self, joining: int, others: int, *, src_len: int, beam: int) -> Callable[[], dict[str, float]]:
        """Return a timer of encoded sentences that join others (`join_s`), and leave again in one step (`leave_s`)."""


def joining_cases(bench: Bench) -> Cases:
    """Return 1, 2, 4 ... sentences, up to the largest batch, that join a batch; none if the engine never refills.

    As many others are active as fit, at most as many as join. The first step after joining may take longer than its batch and
    position imply; that is not included.
    """
    settings, engine = bench.settings, bench.engine
    if not isinstance(engine, Joins):
        bench.add({"overheads": dict.fromkeys(NAMES_OF_JOINING, overhead(None, NEVER))})
        return {}
    sizes = [1 << power for power in range(bench.most_batch.bit_length())]

    timers: dict[int, Callable[[], dict[str, float]]] = {}

    def join(joining: int) -> dict[str, float]:
        if joining not in timers:
            others, src_len = min(joining, sizes[-1] - joining), min(STEP_SRC_LEN, settings.max_src_len)
            timers[joining] = engine.joining_timer(joining, others, src_len=src_len, beam=settings.beam)
        return timers[joining]()

    return {size: Case(partial(join, size), size=(size,), about={"joining": size}) for size in sizes}


def fit_joining(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `refill_s_fixed`, `refill_s_per_sentence` and `leave_s`.

    Sentences that joined together end at different steps: the cost of leaving per sentence is added to its joining, and the
    fixed cost is `leave_s`, paid in each step that ends some sentence.
    """
    rows = counted(frame)
    if not len(rows):
        return {"overheads": dict.fromkeys(NAMES_OF_JOINING, overhead(None, "out of memory"))}
    medians_s = rows.groupby("joining")[["join_s", "leave_s"]].median()
    sizes, most = medians_s.index.to_numpy(), int(medians_s.index.max())
    join, leave = (fit_overhead(sizes, medians_s[name].to_numpy()) for name in ("join_s", "leave_s"))
    sentence_s = join.s_per_sentence + leave.s_per_sentence
    overheads = (
        overhead(join.s_fixed, _note("joining", most, join)),
        overhead(sentence_s, f"{1e6 * leave.s_per_sentence:.3g} us of each for leaving"),
        overhead(leave.s_fixed, _note("leaving", most, leave)),
    )
    return {"overheads": dict(zip(NAMES_OF_JOINING, overheads, strict=True))}


def _note(what: str, most: int, fit: OverheadFit) -> str:
    error = "" if fit.error is None else f", error {100 * fit.error:.1f} % on {fit.how}"
    return f"{what} of 1 to {most} sentences{error}"


PARTS = (
    Part(
        "joining",
        ("step",),
        joining_cases,
        fit_joining,
        order=4,
        rounds=lambda bench: JOINING_ROUNDS,
        within_s=JOINING_WITHIN_S,
    ),
    Part("decision", ("overheads",), decision_cases, fit_decision, order=5, rounds=lambda bench: DECISION_ROUNDS),
    Part("tokenisation", ("overheads",), tokenisation_cases, fit_tokenisation, order=6, rounds=lambda bench: SENTENCE_ROUNDS),
)
