"""One finding of `simnmt doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that can be measured here or not, or that will spoil what is measured."""

    verdict: Literal["can", "cannot", "warning"]
    topic: str
    """threads, simd, memory, torch, ctranslate2, gpu, energy, clock, load, box, disk."""
    what: str
    remedy: str | None = None
    """What the user can do, as an imperative."""

    def __str__(self) -> str:
        return f"{self.verdict:<7}  {self.topic:<11}  {self.what}" + (f" ({self.remedy})" if self.remedy else "")
