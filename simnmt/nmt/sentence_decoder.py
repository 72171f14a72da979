"""Sentences that arrive over time, and a decoder that makes one move of a `Batcher` after another; needs no torch.

`decoder.py` refills a running batch; `WholeBatchDecoder` is for engines that cannot; `slot_decoder.py` reads prompts in slots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, TypeAlias

from simnmt.batching import Batcher, Batching, Encode, Join
from simnmt.nmt.errors import NmtError

MOST_TARGET_TOKENS = 200
"""Most tokens of a translation without a given limit."""


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """A sentence to translate."""

    source: Sequence[int]
    forced_len: int | None = None
    """The exact number of tokens, none of them the end; None: the sentence ends by itself."""
    max_len: int | None = None
    """Most tokens; None: `MOST_TARGET_TOKENS`."""
    lines: int = 1
    """Lines of the source, after as many of which the output of a decoder-only model ends."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation."""

    tokens: tuple[int, ...]
    """Target tokens without the start token and without the end token."""
    score: float | None
    """Sum of natural log-probabilities, of the end token too, divided by (number of tokens) ** (length penalty). None if no
    scores were computed."""
    steps: int = field(default=0, compare=False)
    """Decode steps taken: greedy search takes one per token and one for the end; a beam runs on beyond its best."""
    attended: tuple[int, ...] = field(default=(), compare=False)
    """By token: the source position to which its step attends most; empty for a decoder that does not keep it."""


Finished: TypeAlias = list[tuple[int, Hypothesis]]
"""The keys of sentences that are done, with their translations."""


class Admit(NamedTuple):
    """Let these requests take free slots."""

    requests: tuple[int, ...]


Move: TypeAlias = Encode | Join | Admit


class SentenceDecoder(ABC):
    """A decoder of sentences that arrive over time; each call of `act` makes one move."""

    first_tokens: Sequence[int] = ()
    """Keys of the sentences to which the last move gave their first token, where the decoder keeps that."""

    def __init__(self) -> None:
        self.waiting: dict[int, DecodeRequest] = {}
        """Sentences that have not joined, by key."""

    @property
    def active(self) -> int:
        return 0

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.active)

    @property
    def due_s(self) -> float:
        """When the next move is due if no sentence arrives; infinite if none is."""
        return inf

    @property
    @abstractmethod
    def queued(self) -> int:
        """Sentences that no move has taken yet."""

    @abstractmethod
    def arrive(self, key: int, request: DecodeRequest, now_s: float = 0.0, rank: int = 0) -> None:
        """Add a sentence to those that wait; `now_s` by a clock of the caller, `rank` of its class."""

    @abstractmethod
    def withdraw(self, key: int) -> bool:
        """Remove a sentence that no move has taken yet; return whether there was one."""

    def holds(self, key: int) -> bool:
        return key in self.waiting

    @abstractmethod
    def act(self, now_s: float = 0.0) -> tuple[Move | None, Finished]:
        """Make the next move, or take a step; return the move and the finished sentences.

        Raises `OutOfMemory` and `NmtError`, after which some sentences are gone and others go on.
        """


class BatchDecoder(SentenceDecoder):
    """A decoder driven by a `Batcher`."""

    def __init__(self, batching: Batching) -> None:
        super().__init__()
        self.batcher = Batcher(batching)

    @property
    def due_s(self) -> float:
        return self.batcher.due_s

    @property
    def queued(self) -> int:
        return self.batcher.waiting

    def arrive(self, key: int, request: DecodeRequest, now_s: float = 0.0, rank: int = 0) -> None:
        self.waiting[key] = request
        self.batcher.arrive(key, len(request.source), now_s, rank)

    def withdraw(self, key: int) -> bool:
        if not self.batcher.withdraw(key):
            return False
        del self.waiting[key]
        return True


class WholeBatchDecoder(BatchDecoder):
    """A decoder whose batches run from beginning to end in one call."""

    def __init__(self, decode: Callable[[Sequence[DecodeRequest]], list[Hypothesis]], batching: Batching) -> None:
        """`decode`: translates a batch. Raises `NmtError` for batches that are refilled."""
        if batching.threshold:
            remedy = "take mini or maxi, or the torch backend"
            raise NmtError("this engine does not refill a running batch: no top-up batching", remedy=remedy)
        super().__init__(batching)
        self._decode = decode

    def act(self, now_s: float = 0.0) -> tuple[Encode | Join | None, Finished]:
        """Decode the next batch; the sentences of a batch that raises are gone."""
        move = self.batcher.next(0, now_s)
        if not isinstance(move, Join):
            return move, []
        requests = [self.waiting.pop(key) for key in move.requests]
        return move, list(zip(move.requests, self._decode(requests), strict=True))
