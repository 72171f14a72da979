"""Costs of an engine that decodes in slots, such as llama-server and vLLM, in tokens of its model: the block `slots`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simnmt.base.arrays import Floats
from simnmt.base.configuration import Configuration
from simnmt.profile.blocks import HELDOUT, JUDGED, MS, NOTE, CostBlock, Count, Length, NotNegative, Shown
from simnmt.profile.cost import Seconds


class TokenCount(Configuration):
    """Tokens of the model for a length in the profile's unit."""

    fixed: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    """Of the template, or of the end of an output."""
    per_token: Annotated[float, Field(ge=0.0, le=1e3)] = 1.0

    def tokens(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the whole tokens of lengths, at least 1."""
        tokens: NDArray[np.int64] = np.maximum(np.rint(self.fixed + self.per_token * lengths), 1.0).astype(np.int64)
        return tokens

    def recounted(self, factor: float, more: float) -> TokenCount:
        """Return the tokens for lengths in another unit: `factor` of this unit for each of its tokens, and `more` in all."""
        return self.model_copy(update={"fixed": self.fixed + more * self.per_token, "per_token": factor * self.per_token})


@dataclass(frozen=True, slots=True)
class SlotsCost:
    """Seconds of the iterations of one engine with slots."""

    step_s: Sequence[float]
    """By decoding slots from 0 on: seconds of an iteration without context; shape (slots + 1,)."""
    s_per_prompt_token: float
    """Of an iteration, for each token of a prompt that it reads."""
    s_per_context_token: float
    """Of an iteration, for each token of prompt and output that a decoding slot holds."""
    request_s: float = 0.0
    """Seconds of a request outside iterations, which delay no other one."""

    def iterations_s(self, decoding: int, context: int, count: int, prompt_tokens: int = 0) -> float:
        """Return the seconds of `count` iterations one after another.

        `context`: tokens of all decoding slots before the first one, each of which grows by a token an iteration;
        `prompt_tokens`: read in each.
        """
        each_s = self.step_s[decoding] + self.s_per_context_token * context + self.s_per_prompt_token * prompt_tokens
        return count * each_s + self.s_per_context_token * (decoding * (0.5 * count * (count - 1)))

    def solo_s(
        self, prompt_tokens: NDArray[np.int64], output_tokens: NDArray[np.int64], chunk: int, cached_prefix: int = 0
    ) -> Floats:
        """Return the seconds of requests alone. `chunk`: most tokens of an iteration; `cached_prefix`: tokens not read."""
        read = np.maximum(prompt_tokens - cached_prefix, 1)
        reading_s = -(-read // chunk) * self.step_s[0] + read * self.s_per_prompt_token
        steps = output_tokens - 1.0
        context = steps * (prompt_tokens + 1.0) + 0.5 * steps * (steps - 1.0)
        seconds: Floats = self.request_s + reading_s + steps * self.step_s[1] + context * self.s_per_context_token
        return seconds


class SlotsBlock(CostBlock):
    """Time of the iterations of an engine that decodes several requests in slots."""

    slots: Annotated[Count, Shown("{} slots")]
    chunk: Annotated[Count, Shown("{:,} tokens an iteration")]
    context: Annotated[Annotated[int, Field(ge=2, le=10**15)] | None, Shown("{:,} tokens a slot")] = None
    """Most tokens of prompt and output; null: no limit is known."""
    cached_prefix: Annotated[Length, Shown("{} tokens of the prompt cached")] = 0
    step_s: Annotated[tuple[Annotated[Seconds, Field(gt=0.0)], ...], Shown("step {:.4g} ms", MS)]
    """By decoding slots, from 0 (an iteration that only reads prompts) to `slots`, with no context."""
    s_per_prompt_token: Annotated[Seconds, Shown("{:.4g} ms each token of a prompt", MS)]
    s_per_context_token: Annotated[Seconds, Shown("{:.4g} ms each token of context", MS)]
    request_s: Annotated[Seconds, Shown("{:.4g} ms each request", MS)] = 0.0
    """Beside its iterations: HTTP, template, tokeniser."""
    prompt: TokenCount = Field(default_factory=TokenCount)
    """Tokens of a prompt by source length."""
    output: TokenCount = Field(default_factory=TokenCount)
    """Tokens of an output by target length."""
    iterations: Count | None = None
    """Iterations from which the costs follow."""
    heldout_error: Annotated[NotNegative | None, HELDOUT] = None
    heldout_how: Annotated[str | None, JUDGED] = None
    notes: Annotated[tuple[str, ...], NOTE] = ()

    @property
    def cost(self) -> SlotsCost:
        """The cost model that the block describes."""
        return SlotsCost(self.step_s, self.s_per_prompt_token, self.s_per_context_token, self.request_s)

    def counted_in(self, src: float, tgt: float, more: tuple[float, float]) -> SlotsBlock:
        """Return the block for lengths in another unit; arguments by source and target as in `TokenCount.recounted`."""
        prompt, output = self.prompt.recounted(src, more[0]), self.output.recounted(tgt, more[1])
        kind = "inferred" if self.kind == "measured" and (src, tgt) != (1.0, 1.0) else self.kind
        return self.model_copy(update={"kind": kind, "prompt": prompt, "output": output})

    @model_validator(mode="after")
    def _consistent(self) -> SlotsBlock:
        if len(self.step_s) != self.slots + 1:
            raise ValueError(f"step_s: {self.slots + 1} seconds are needed, for 0 to {self.slots} decoding slots")
        if self.chunk < self.slots:
            raise ValueError(f"chunk: must be at least slots, {self.slots} (got {self.chunk})")
        return self
