"""What this box can measure, what it cannot, and why, with a remedy each. Needs neither torch nor numpy."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any, Literal

from simnmt.calibrate.box import BoxDescription, describe


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that can be measured here or not, or that will spoil what is measured."""

    verdict: Literal["can", "cannot", "warning"]
    topic: str
    """threads, simd, torch, ctranslate2, gpu, energy, clock, load, disk."""
    what: str
    remedy: str | None = None

    def __str__(self) -> str:
        return f"{self.verdict:<7}  {self.topic:<11}  {self.what}" + (f" ({self.remedy})" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class Examination:
    """The box and what was found."""

    box: BoxDescription
    findings: tuple[Finding, ...]

    def as_json(self) -> dict[str, Any]:
        """As `simnmt doctor --json` prints it."""
        return {"box": self.box.as_json(), "findings": [asdict(finding) for finding in self.findings]}


def examine(root: str | os.PathLike[str] = "/", folder: str | os.PathLike[str] = ".") -> Examination:
    """Look at the box under `root`; `folder` is where disk reads would be measured. Never raises for what is missing."""
    return Examination(describe(root), ())
