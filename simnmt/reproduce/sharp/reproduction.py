"""The whole reproduction: everything timed on this box, and the verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnmt.errors import InputError
from simnmt.reproduce.sharp.claims import all_claims

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import SharpSpeeds

Progress = Callable[[int, int, str], None]
"""Called with what is done, what there is in all, and what comes next."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements, and what this box says of them."""

    speeds: SharpSpeeds
    quick: bool
    claims: list[dict[str, Any]]
    agreements: list[RungAgreement] = field(default_factory=list)
    """Of each rung on a trained model; empty where none was given."""

    @property
    def warnings(self) -> list[str]:
        """What a reader should know of the trained model: weights that the 16-bit products clip."""
        messages = [rung.clipping.warning() for rung in self.agreements if rung.clipping is not None]
        return list(dict.fromkeys(filter(None, messages)))


def reproduce(
    *,
    quick: bool = False,
    rounds: int | None = None,
    model: str | None = None,
    text: Path | None = None,
    references: Path | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Time the ladder, the stacks and the ensembles of the paper on one thread of this box.

    `quick`: a smaller vocabulary, fewer rounds, systems and batches; `rounds`: others than usual; `model` and `text`: a folder
    with a trained attentional model and sentences to translate, to see what each rung changes; `references`: a translation of
    each, for BLEU.
    Raises `InputError` for one of the first two without the other, and for the last without them.
    """
    if (model is None) != (text is None):
        raise InputError("a trained model and a text go together", remedy="give both --model and --text, or neither")
    if references is not None and text is None:
        raise InputError("--references without a text", remedy="give --model and --text as well")
    # Here, so that the published tables need no torch.
    from simnmt.calibrate.sharp_speeds import QUICK, Setting, sharp_speeds

    setting = QUICK if quick else Setting()
    if rounds is not None:
        setting = replace(setting, rounds=rounds)
    agreements = [] if model is None or text is None else _agreements(model, text, references, setting.beam, progress)
    found = sharp_speeds(setting, progress)
    return Reproduction(found, quick, all_claims(found, agreements, quick=quick), agreements)


def _agreements(model: str, text: Path, references: Path | None, beam: int, progress: Progress | None) -> list[RungAgreement]:
    from simnmt.calibrate.sharp_agreement import sharp_agreement

    return sharp_agreement(model, text, beam, progress=progress, references=references)
