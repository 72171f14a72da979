"""How many steps a beam takes for a token of its best output: counted, not timed, with a trained model on real sentences."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.settings import Settings
from simnmt.costs.profile_blocks import BeamOverrun
from simnmt.nmt.errors import NmtError
from simnmt.workload.text_lines import TextLines

if TYPE_CHECKING:
    from simnmt.nmt.translation import Translator

SENTENCES = 200
"""Of the text, its first ones that are not blank."""
LEAST_SENTENCES = 10
"""That the model ends itself; fewer tell nothing."""


def measures_overrun(settings: Settings) -> bool:
    """Whether a calibration counts a beam's steps: torch with a beam and a text."""
    return settings.beam > 1 and settings.text is not None and settings.backend == "torch" and not settings.vocabulary


def check_overrun(settings: Settings) -> None:
    """Raise `CalibrationError` or `CorpusError` where the steps of the text could not be counted: before hours of timing."""
    _text_translator(settings)


def measure_overrun(settings: Settings) -> BeamOverrun | None:
    """Steps over tokens, the end counted, of all sentences that the model ends itself; None where it ends too few.

    Raises as `check_overrun`.
    """
    translator, sentences = _text_translator(settings)
    done = [translation for translation in translator.translate(sentences) if translation.ended and translation.steps]
    if len(done) < LEAST_SENTENCES:
        return None
    ratio = sum(translation.steps for translation in done) / sum(translation.tgt_len + 1 for translation in done)
    note = f"beam {settings.beam}, {Path(settings.text or '').name}"
    return BeamOverrun(kind="measured", steps_per_token=max(ratio, 1.0), sentences=len(done), note=note)


def _text_translator(settings: Settings) -> tuple[Translator, list[str]]:
    """The model with its subwords, and the first sentences of the text."""
    from simnmt.nmt.translation import Translator

    assert settings.text is not None
    lines = (line.strip() for line in TextLines(settings.text, kept="head", pipes=False))
    sentences = list(islice((line for line in lines if line), SENTENCES))
    if len(sentences) < LEAST_SENTENCES:
        remedy = f"give {LEAST_SENTENCES} or more, one a line"
        raise CalibrationError(f"{len(sentences)} sentences", path=settings.text, remedy=remedy)
    try:
        return Translator.load(Path(settings.model), device=settings.device, beam=settings.beam), sentences
    except NmtError as error:
        what = f"cannot translate the text to count a beam's steps: {error.what}"
        remedy = error.remedy or "give a folder that simnmt nmt train wrote"
        if error.path is not None:  # the folder is at fault, and not a setting such as the beam
            remedy = f"{remedy}, or leave --text out"
        path = error.path or settings.model
        raise CalibrationError(what, path=path, line=error.line, column=error.column, remedy=remedy) from None
