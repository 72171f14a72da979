"""Corrections of batch costs: steps under long sources, padding of mixed lengths, a beam's steps beyond its best output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from simnmt.calibrate.plan import STEP_SRC_LEN
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.nmt.engine import EngineAccount, Work
from simnmt.nmt.errors import NmtError, OutOfMemory
from simnmt.profile.blocks import BeamOverrun, EncoderBlock, StepBlock
from simnmt.profile.cost import DecodingCost
from simnmt.profile.device_profile import PACKING
from simnmt.workload.text_lines import TextLines

if TYPE_CHECKING:
    from simnmt.nmt.translation import Translator

LONG_SRC_LEN, LONG_SOURCE_BATCHES = 80, (8, 32)
"""Batch sizes under long sources, beside the largest batch."""
STEPS = 24
LONG_SOURCE_ROUNDS, WITHIN_S = 6, 25.0
"""Rounds over all batch sizes; after these seconds no further round begins."""

Pairs = list[tuple[int, int, list[tuple[float, float]]]]
"""(batch, further tokens of the long source, pairs of seconds of a step under the short and the long source)."""


@runtime_checkable
class TakesTurns(Protocol):
    """An engine that alternates steps of two batches."""

    def in_turn_s(self, first: Work, second: Work) -> list[tuple[float, float]]:
        """Return the seconds of the steps of both works, in pairs that are adjacent in time."""


def source_pairs(engine: object, settings: Settings, most: int, clock: Callable[[], float] = perf_counter) -> Pairs:
    """Time steps under short and long sources alternately; return no pairs in quick mode or if the engine cannot alternate.

    The speed of a box varies by more than the difference, but hardly within a pair.
    """
    short = min(STEP_SRC_LEN, settings.max_src_len)
    more = min(LONG_SRC_LEN, settings.max_src_len) - short
    if settings.mode == "quick" or not more or not isinstance(engine, TakesTurns):
        return []
    steps = min(STEPS, settings.max_tgt_len)
    sizes = sorted({*(size for size in LONG_SOURCE_BATCHES if size <= most), most})
    pairs_by_batch: dict[int, list[tuple[float, float]]] = {}
    begin_s = clock()
    for number in range(LONG_SOURCE_ROUNDS):
        for batch in sizes:
            if number and clock() - begin_s > WITHIN_S:
                break
            both = (Work(src_len, steps, batch, settings.beam) for src_len in (short, short + more))
            try:
                pairs_by_batch.setdefault(batch, []).extend(engine.in_turn_s(*both))
            except OutOfMemory:
                break
    return [(batch, more, pairs) for batch, pairs in pairs_by_batch.items() if pairs]


def per_row_src_token_s(measured_pairs: Pairs) -> tuple[float | None, str]:
    """Fit the seconds that a source token adds to a step for each sentence (at least 0; None without pairs), with a note.

    The fit is least squares of relative errors to the median difference of each batch size.
    """
    if not measured_pairs:
        return None, ""
    above, below = 0.0, 0.0
    grown = []
    for batch, more, pairs in measured_pairs:
        share = np.array([long / short - 1.0 for short, long in pairs])
        tokens = batch * more / float(np.median([short for short, _ in pairs]))
        above += tokens * float(np.median(share))
        below += tokens * tokens
        grown.append((batch, tokens, np.percentile(share, (25, 50, 75)).tolist()))
    row_token_s = max(above / below, 0.0)
    off = float(np.mean([abs(row_token_s * tokens - middle) / (1.0 + middle) for _, tokens, (_, middle, _) in grown]))
    increases = ", ".join(
        f"{_percent(middle)} ({_percent(low)} to {_percent(high)}) at batch {batch}" for batch, _, (low, middle, high) in grown
    )
    least = min(len(pairs) for _, _, pairs in measured_pairs)
    note = (
        f"{measured_pairs[0][1]} further source tokens lengthen a step by {increases}: "
        f"medians, and the middle half, of {least} pairs at least"
    )
    return row_token_s, f"{note}; fitted within {_percent(off)} of a step"


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


MIXED_BATCHES = (8, 32)
SHORTEST, LONGEST = 4, 64
REPEATS = 9


@runtime_checkable
class Encodes(Protocol):
    """An engine that encodes sentences of different lengths together."""

    account: EngineAccount

    def encoding_s(self, src_lens: Sequence[int]) -> float:
        """Return the seconds of one call of the encoder."""


Mixed = list[tuple[list[int], float]]
"""(source lengths of a batch, median seconds of encoding it)."""


def mixed_encodings(engine: object, settings: Settings, most: int) -> Mixed:
    """Time encoding of batches of mixed lengths, evenly spaced in their logarithm; return none if the engine does not pack."""
    if not isinstance(engine, Encodes) or engine.account.architecture.get("kind") not in PACKING:
        return []
    encodings = []
    for batch in (size for size in MIXED_BATCHES if size <= most):
        src_lens = [round(length) for length in np.geomspace(SHORTEST, min(LONGEST, settings.max_src_len), batch).tolist()]
        try:
            times_s = [engine.encoding_s(src_lens) for _ in range(1 + REPEATS)]
        except OutOfMemory:
            break
        encodings.append((src_lens, float(np.median(times_s[1:]))))
    return encodings


def padding_share(mixed: Mixed, step: StepBlock, encoder: EncoderBlock) -> float | None:
    """Fit the share of the padding's cost that batches of mixed lengths paid, by relative error; None without batches."""
    packed, padded = (DecodingCost(step.cost, encoder.cost, packs=packs) for packs in (True, False))
    above, below = 0.0, 0.0
    for src_lens, seconds in mixed:
        saved = (padded.encode_s(src_lens) - packed.encode_s(src_lens)) / seconds
        above += saved * (1.0 - packed.encode_s(src_lens) / seconds)
        below += saved * saved
    return min(max(above / below, 0.0), 1.0) if below else None


SENTENCES = 200
"""Number of sentences, the first ones of the text that are not blank."""
LEAST_SENTENCES = 10
"""Least number of sentences that the model must end itself."""


def measures_overrun(settings: Settings) -> bool:
    """Return whether a calibration counts a beam's steps: torch with a beam and a text."""
    return settings.beam > 1 and settings.text is not None and settings.backend == "torch" and not settings.vocabulary


def check_overrun(settings: Settings) -> None:
    """Raise `CalibrationError` or `CorpusError` if a beam's steps could not be counted, before hours of timing."""
    _text_translator(settings)


def measure_overrun(settings: Settings) -> BeamOverrun | None:
    """Count steps over tokens, with the end token, of all sentences that the model ends itself; None if it ends too few.

    Raises as `check_overrun` does.
    """
    translator, sentences = _text_translator(settings)
    done = [translation for translation in translator.translate(sentences) if translation.ended and translation.steps]
    if len(done) < LEAST_SENTENCES:
        return None
    ratio = sum(translation.steps for translation in done) / sum(translation.tgt_len + 1 for translation in done)
    note = f"beam {settings.beam}, {Path(settings.text or '').name}"
    return BeamOverrun(kind="measured", steps_per_token=max(ratio, 1.0), sentences=len(done), note=note)


def _text_translator(settings: Settings) -> tuple[Translator, list[str]]:
    """Load the model with its subwords; return it and the first sentences of the text."""
    from simnmt.nmt.pretrained_tokenizer import Languages
    from simnmt.nmt.translation import Translator

    languages = Languages(settings.src_lang, settings.tgt_lang)
    assert settings.text is not None
    lines = (line.strip() for line in TextLines(settings.text, kept="head", pipes=False))
    sentences = list(islice((line for line in lines if line), SENTENCES))
    if len(sentences) < LEAST_SENTENCES:
        remedy = f"give {LEAST_SENTENCES} or more, one per line"
        raise CalibrationError(f"{len(sentences)} sentences", path=settings.text, remedy=remedy)
    try:
        folder, device = Path(settings.model), settings.device
        return Translator.load(folder, device=device, beam=settings.beam, languages=languages), sentences
    except NmtError as error:
        what = f"cannot translate the text to count a beam's steps: {error.what}"
        remedy = error.remedy or "give a folder that simnmt nmt train wrote"
        if error.path is not None:  # the error is in the folder, not in a setting such as the beam
            remedy = f"{remedy}, or leave --text out"
        path = error.path or settings.model
        raise CalibrationError(what, path=path, line=error.line, column=error.column, remedy=remedy) from None
