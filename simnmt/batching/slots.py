"""Slots: what one iteration of an engine with continuous batching does, as llama-server and vLLM decide it.

Requests wait in one queue and take free slots in the order of arrival. An iteration decodes one token of each slot whose prompt
is read, and reads prompts in the order of admission with what is left of its tokens.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

DEFAULT_CHUNK = 512
"""Most tokens of an iteration, if nothing else is said."""


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """The limits of an engine with slots. Raises `ValueError` for a value below its bound."""

    slots: int
    """Most requests decoded together."""
    chunk: int
    """Most tokens of an iteration: those that it reads of prompts, and those that it decodes."""
    context: int | None = None
    """Most tokens of a prompt and its output together; None: any number."""
    cached_prefix: int = 0
    """First tokens of every prompt, which are read once and kept."""

    def __post_init__(self) -> None:
        for name, least in (("slots", 1), ("chunk", self.slots), ("context", 2), ("cached_prefix", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                bound = f"slots, {least}" if name == "chunk" else least
                raise ValueError(f"{name} must be at least {bound} (got {value})")
        if self.context is not None and self.cached_prefix >= self.context:
            raise ValueError(f"cached_prefix must be less than context, {self.context} (got {self.cached_prefix})")

    def admits(self, prompt_tokens: int, output_tokens: int) -> bool:
        """Return whether a request fits into the context of a slot."""
        return self.context is None or prompt_tokens + output_tokens <= self.context

    def tokens_read(self, prompt_tokens: int) -> int:
        """Return the tokens of a prompt that are read: those beyond the cached prefix, at least one."""
        return max(prompt_tokens - self.cached_prefix, 1)


@dataclass(frozen=True, slots=True)
class Iteration:
    """What the next iteration does."""

    decodes: tuple[int, ...]
    """Requests of which it decodes a token, in the order of admission."""
    reads: tuple[tuple[int, int], ...]
    """Pairs of a request and the number of tokens of its prompt that are read."""
    ends_prompt: tuple[int, ...]
    """Requests whose prompt is complete after it; it also gives their first token."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of prompts that it reads."""
        return sum(tokens for _, tokens in self.reads)


class SlotBatcher:
    """The queue and the slots of one engine.

    Example:
        >>> batcher = SlotBatcher(SlotLimits(slots=2, chunk=8))
        >>> batcher.arrive(0, 10)
        >>> batcher.next().reads, batcher.next().reads
        (((0, 8),), ((0, 2),))
        >>> batcher.next().decodes
        (0,)
    """

    def __init__(self, limits: SlotLimits) -> None:
        self._limits = limits
        self._waiting = deque[int]()
        self._left = dict[int, int]()
        """By request, the tokens of its prompt that are not read yet."""
        self._admitted = dict[int, None]()
        """Requests in slots, in the order of admission."""

    @property
    def waiting(self) -> int:
        """Number of requests without a slot."""
        return len(self._waiting)

    @property
    def active(self) -> tuple[int, ...]:
        """Requests in slots, in the order of admission."""
        return tuple(self._admitted)

    def arrive(self, request: int, prompt_tokens: int) -> None:
        """Let a request wait for a slot."""
        self._left[request] = self._limits.tokens_read(prompt_tokens)
        self._waiting.append(request)

    def leave(self, request: int) -> None:
        """Take out a request that is done or withdrawn; its slot, if it has one, is free."""
        del self._left[request]
        if self._admitted.pop(request, self) is self:
            self._waiting.remove(request)

    def admit(self) -> tuple[int, ...]:
        """Let waiting requests take the free slots; return them."""
        free = min(self._limits.slots - len(self._admitted), len(self._waiting))
        admitted = tuple(self._waiting.popleft() for _ in range(free))
        self._admitted.update(dict.fromkeys(admitted))
        return admitted

    def next(self) -> Iteration:
        """Admit requests, and return what the next iteration does; prompts count as read by it."""
        self.admit()
        decodes = tuple(request for request in self._admitted if not self._left[request])
        room, reads = self._limits.chunk - len(decodes), []
        for request in self._admitted:
            if tokens := min(self._left[request], room):
                reads.append((request, tokens))
                self._left[request] -= tokens
                room -= tokens
        ends = tuple(request for request, _ in reads if not self._left[request])
        return Iteration(decodes, tuple(reads), ends)
