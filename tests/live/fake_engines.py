"""Engines without torch, which a live engine's process loads in place of a model: their steps sleep, fail or end at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from simnmt.live.engine import EngineSettings, ServedModel
from simnmt.nmt.architecture import RecurrentArchitecture
from simnmt.nmt.errors import NmtError, OutOfMemory
from simnmt.nmt.sentence_decoder import DecodeRequest, Hypothesis, WholeBatchDecoder
from simnmt.profile.origin import EngineBlock

VOCAB = 500
ARCHITECTURE = RecurrentArchitecture(kind="gru", layers=1, hidden=16, embedding=12, src_vocab=VOCAB, tgt_vocab=VOCAB)
STEP_S = 0.002
"""Seconds of a step of `load_paced`."""
FATAL = 13
"""Forced tokens at which the process of `load_faulty` dies; one more is too long, two more need too much memory."""


def _echo(request: DecodeRequest) -> Hypothesis:
    """As many tokens as forced, else the source's, without its end."""
    length = len(request.source) - 1 if request.forced_len is None else request.forced_len
    tokens = (*request.source[:-1], *range(length))[:length]
    return Hypothesis(tuple(tokens), None, length + 1)


def _served(decode: Callable[[Sequence[DecodeRequest]], list[Hypothesis]]) -> ServedModel:
    engine = EngineBlock(
        backend="fake", compute_type="float32", device="cpu", threads=1, architecture=ARCHITECTURE.model_dump(mode="json")
    )
    return ServedModel(partial(WholeBatchDecoder, decode), engine, lambda: 1e-3)


def load_echo(settings: EngineSettings) -> ServedModel:
    """Each source is its own translation, at once."""
    return _served(lambda requests: [_echo(request) for request in requests])


def load_scored(settings: EngineSettings) -> ServedModel:
    """As `load_echo`, with a natural log-probability by token of -0.1 for each token of the source, its end included."""

    def scored(request: DecodeRequest) -> Hypothesis:
        return replace(_echo(request), score=-0.1 * len(request.source))

    return _served(lambda requests: [*map(scored, requests)])


def load_paced(settings: EngineSettings) -> ServedModel:
    """As `load_echo`, with 2 ms for each step of a batch."""

    def decode(requests: Sequence[DecodeRequest]) -> list[Hypothesis]:
        hypotheses = [_echo(request) for request in requests]
        time.sleep(STEP_S * max(hypothesis.steps for hypothesis in hypotheses))
        return hypotheses

    return _served(decode)


def load_faulty(settings: EngineSettings) -> ServedModel:
    """As `load_paced`, with a fault for some forced lengths."""

    def decode(requests: Sequence[DecodeRequest]) -> list[Hypothesis]:
        for request in requests:
            if request.forced_len == FATAL:
                os._exit(3)
            if request.forced_len == FATAL + 1:
                raise NmtError("14 tokens are too many")
            if request.forced_len == FATAL + 2:
                raise OutOfMemory("cpu has too little memory for this work")
        time.sleep(STEP_S)
        return [_echo(request) for request in requests]

    return _served(decode)


def load_slowly(settings: EngineSettings) -> ServedModel:
    """As `load_paced`, after a while."""
    time.sleep(0.3)
    return load_paced(settings)


def load_refused(settings: EngineSettings) -> ServedModel:
    raise NmtError("no such model", remedy="name another")


def load_refused_once(settings: EngineSettings) -> ServedModel:
    """As `load_faulty`, but refused at the second start of the process; `settings.model` is a file that counts the starts."""
    starts = Path(settings.model)
    count = len(starts.read_text()) + 1 if starts.exists() else 1
    starts.write_text("x" * count)
    if count == 2:
        raise OutOfMemory("cpu has too little memory for the model")
    return load_faulty(settings)
