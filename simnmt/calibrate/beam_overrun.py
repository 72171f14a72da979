"""How many steps a beam takes for a token of its best output: counted, not timed, with a trained model on real sentences."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.settings import Settings
from simnmt.costs.profile_blocks import BeamOverrun

SENTENCES = 200
"""Of the text, its first ones that are not blank."""
LEAST_SENTENCES = 10
"""That the model ends itself; fewer tell nothing."""


def measures_overrun(settings: Settings) -> bool:
    """Whether a calibration counts a beam's steps: torch with a beam and a text."""
    return settings.beam > 1 and settings.text is not None and settings.backend == "torch" and not settings.vocabulary


def sentences_of(text: Path) -> list[str]:
    """The first sentences of a text. Raises `CalibrationError` for a file that cannot be read, or has none."""
    try:
        with text.open(encoding="utf-8") as file:
            lines = list(islice((line.strip() for line in file if line.strip()), SENTENCES))
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CalibrationError(f"cannot be read: {what}", path=text, remedy="give a text with one sentence a line") from None
    if len(lines) < LEAST_SENTENCES:
        raise CalibrationError(f"{len(lines)} sentences", path=text, remedy=f"give {LEAST_SENTENCES} or more, one a line")
    return lines


def measure_overrun(settings: Settings) -> BeamOverrun | None:
    """Steps over tokens, the end counted, of all sentences that the model ends itself; None where it ends too few.

    Raises `NmtError` for a folder without a trained model, `CalibrationError` as `sentences_of`.
    """
    from simnmt.nmt.translation import Translator

    assert settings.text is not None
    text = Path(settings.text)
    translator = Translator.load(Path(settings.model), device=settings.device, beam=settings.beam)
    done = [each for each in translator.translate(sentences_of(text)) if each.ended and each.steps]
    if len(done) < LEAST_SENTENCES:
        return None
    ratio = sum(each.steps for each in done) / sum(each.tgt_len + 1 for each in done)
    note = f"beam {settings.beam}, {text.name}"
    return BeamOverrun(kind="measured", steps_per_token=max(ratio, 1.0), sentences=len(done), note=note)
