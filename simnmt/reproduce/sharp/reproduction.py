"""The whole reproduction: everything timed on this box, and the verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from simnmt.reproduce.sharp.claims import all_claims

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_speeds import SharpSpeeds

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements, and what this box says of them."""

    speeds: SharpSpeeds
    quick: bool
    claims: list[dict[str, Any]]


def reproduce(*, quick: bool = False, rounds: int | None = None, progress: Progress | None = None) -> Reproduction:
    """Time the ladder, the stacks and the ensembles of the paper on one thread of this box.

    `quick`: a smaller vocabulary and fewer rounds; `rounds`: others than usual.
    """
    # Here, so that the published tables need no torch.
    from simnmt.calibrate.sharp_speeds import QUICK, Setting, sharp_speeds

    setting = QUICK if quick else Setting()
    if rounds is not None:
        setting = replace(setting, rounds=rounds)
    found = sharp_speeds(setting, progress)
    return Reproduction(found, quick, all_claims(found, quick=quick))
