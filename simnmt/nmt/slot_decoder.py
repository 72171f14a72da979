"""The decoder of prompts that arrive over time: a `SlotBatcher` says what each iteration reads and decodes.

The simulated device with slots asks the same object. All texts of an iteration are one pass of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeVar

import torch
from torch import Tensor

from simnmt.batching.slots import SlotBatcher, SlotLimits
from simnmt.nmt.errors import NmtError, OutOfMemory, within_memory
from simnmt.nmt.llama_model import LlamaModel, TextPart
from simnmt.nmt.sentence_decoder import MOST_TARGET_TOKENS, Admit, DecodeRequest, Finished, Hypothesis, SentenceDecoder

_Result = TypeVar("_Result")


@dataclass(slots=True)
class _Text:
    """A prompt in a slot, and its continuation."""

    request: DecodeRequest
    most: int
    """Most tokens of the continuation."""
    room: Tensor
    read: int = 0
    """Tokens of the prompt that are read."""
    tokens: list[int] = field(default_factory=list)
    steps: int = 0
    lines_left: int = 1


class SlotDecoder(SentenceDecoder):
    """A greedy decoder of a decoder-only model in slots.

    A text ends with one of the model's end tokens, after as many lines as its source has, at its greatest length, or where the
    context ends. Line breaks before any other token end no line.
    """

    def __init__(self, model: LlamaModel, limits: SlotLimits) -> None:
        """Raises `NmtError` for limits that this decoder does not have."""
        super().__init__()
        if limits.cached_prefix:
            raise NmtError("a cached prefix of the prompts, where every prompt is read", remedy="give a cached prefix of 0")
        positions = model.architecture.max_positions
        self._context = min(limits.context or positions, positions)
        self._limits = replace(limits, context=self._context)
        self._model, self._batcher = model, SlotBatcher(self._limits)
        self._ends = torch.tensor(sorted(model.ends), device=model.device)
        self._refused: list[str] = []
        self._texts: dict[int, _Text] = {}

    @property
    def active(self) -> int:
        return len(self._texts)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self._texts or self._refused)

    @property
    def queued(self) -> int:
        return self._batcher.waiting

    def arrive(self, key: int, request: DecodeRequest, now_s: float = 0.0, rank: int = 0) -> None:
        """See `SentenceDecoder`; the next `act` raises `NmtError` for a request that does not fit, which is gone."""
        prompt, least = len(request.source), 1 if request.forced_len is None else request.forced_len
        if prompt and least > 0 and self._limits.admits(prompt, least):
            self.waiting[key] = request
            self._batcher.arrive(key, prompt)
        else:
            what = f"a prompt of {prompt} tokens and an output of {least}, at least 1 each and {self._context} together at most"
            self._refused.append(what)

    def withdraw(self, key: int) -> bool:
        if key not in self.waiting:
            return False
        del self.waiting[key]
        self._batcher.leave(key)
        return True

    def holds(self, key: int) -> bool:
        return key in self.waiting or key in self._texts

    @torch.inference_mode()
    def act(self, now_s: float = 0.0) -> tuple[Admit | None, Finished]:
        """Let requests take free slots, or do an iteration; after `OutOfMemory` those concerned are gone."""
        self.first_tokens = ()
        if self._refused:
            raise NmtError(self._refused.pop(0), remedy="send a shorter text")
        if admitted := self._batcher.admit():
            requests = [self.waiting.pop(key) for key in admitted]
            texts = self._or_drop(admitted, lambda: [self._text(request) for request in requests])
            self._texts.update(zip(admitted, texts, strict=True))
            return Admit(admitted), []
        return None, self._or_drop(tuple(self._texts), self._iterate) if self._texts else []

    def _text(self, request: DecodeRequest) -> _Text:
        most = request.max_len or MOST_TARGET_TOKENS if request.forced_len is None else request.forced_len
        most = min(most, self._context - len(request.source))
        return _Text(request, most, self._model.room(len(request.source) + most), lines_left=request.lines)

    def _iterate(self) -> Finished:
        plan = self._batcher.next()
        parts = list[TextPart]()
        for text in map(self._texts.__getitem__, plan.decodes):
            before = len(text.request.source) + len(text.tokens) - 1
            parts.append(TextPart(text.room, before, text.tokens[-1:], True))
        for key, count in plan.reads:
            text, ends = self._texts[key], key in plan.ends_prompt
            parts.append(TextPart(text.room, text.read, text.request.source[text.read : text.read + count], ends))
            text.read += count
        logits, keys = self._model(parts), [*plan.decodes, *plan.ends_prompt]
        forced = [row for row, key in enumerate(keys) if self._texts[key].request.forced_len is not None]
        logits[torch.tensor(forced, dtype=torch.int64, device=logits.device)[:, None], self._ends] = -inf
        self.first_tokens = plan.ends_prompt
        done = list[tuple[int, Hypothesis]]()
        for key, token in zip(keys, logits.argmax(1).tolist(), strict=True):
            if self._is_done(self._texts[key], token):
                done.append((key, self._leave(key)))
        return done

    def _is_done(self, text: _Text, token: int) -> bool:
        """Append a token to a text, unless it ends the text; return whether the text is done."""
        is_forced = text.request.forced_len is not None
        text.steps += 1
        if token in self._model.ends and not is_forced:
            return True
        newlines = self._model.newlines
        if token in newlines and not newlines.issuperset(text.tokens):
            text.lines_left -= 1
        text.tokens.append(token)
        return len(text.tokens) == text.most or (text.lines_left < 1 and not is_forced)

    def _leave(self, key: int) -> Hypothesis:
        text = self._texts.pop(key)
        self._batcher.leave(key)
        return Hypothesis(tuple(text.tokens), None, text.steps)

    def _or_drop(self, keys: tuple[int, ...], do: Callable[[], _Result]) -> _Result:
        try:
            return within_memory(str(self._model.device), do)
        except OutOfMemory:
            for key in keys:
                self._texts.pop(key, None)
                self._batcher.leave(key)
            raise
