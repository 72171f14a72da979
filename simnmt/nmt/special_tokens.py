"""The special tokens that every model knows, as its architecture says them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simnmt.configuration import Configuration

Size = Annotated[int, Field(ge=1, le=1_000_000)]
_Token = Annotated[int, Field(ge=0)]


class SpecialTokens(Configuration):
    """The special tokens that every model knows."""

    pad_token: _Token = 0
    """Fills a batch's shorter sources."""
    unk_token: _Token = 1
    """Stands for what the vocabulary lacks."""
    start_token: _Token = 2
    """What the decoder is fed first."""
    eos_token: _Token = 3
    """Ends a sentence, source and target."""

    def _fit(self, vocab: int) -> None:
        for name in SpecialTokens.model_fields:
            if (token := getattr(self, name)) >= vocab:
                raise ValueError(f"{name}: {token} is no token of a vocabulary of {vocab}")
