"""The base of every configuration model: unknown keys refused, no silent conversions, frozen once read.

Each room owns the models of what it builds; `simnmt.scenario` composes them and maps their complaints back to lines.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

EndOfSentence = Literal["none", "source", "target", "both"]
"""Which lengths count the end-of-sentence token. Text, tables and tokenisers count none; a model reads one more source token
than the text has, and takes one more decode step than it emits tokens of text, so measured costs count both."""


def end_tokens(counted: EndOfSentence) -> tuple[int, int]:
    """Return how many end-of-sentence tokens a source and a target length count, 0 or 1 each."""
    return int(counted in ("source", "both")), int(counted in ("target", "both"))


class Configuration(BaseModel):
    """What a part of a scenario file may say. A unit stands in the key's name; numbers carry none."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
