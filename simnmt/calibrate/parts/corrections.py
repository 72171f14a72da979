"""Corrections of batch costs: steps under long sources, padding of mixed lengths, a beam's steps beyond its best output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from simnmt.calibrate.cells import STEP_SRC_LEN
from simnmt.calibrate.harness import Case, counted, nothing
from simnmt.calibrate.parts import Bench, Blocks, Cases, Part, by_batch
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.nmt.engine import EngineAccount, Work
from simnmt.profile.blocks import BeamOverrun, EncoderBlock, StepBlock
from simnmt.profile.cost import DecodingCost
from simnmt.profile.device_profile import PACKING
from simnmt.workload.text_lines import TextLines

if TYPE_CHECKING:
    from simnmt.nmt.translation import Translator

LONG_SRC_LEN, LONG_SOURCE_BATCHES = 80, (8, 32)
"""Batch sizes under long sources, beside the largest batch."""
STEPS = 24
SOURCE_ROUNDS, SOURCES_WITHIN_S = 6, 25.0


@runtime_checkable
class TakesTurns(Protocol):
    """An engine that alternates steps of two batches."""

    def in_turn_s(self, first: Work, second: Work) -> list[tuple[float, float]]:
        """Return the seconds of the steps of both works, in pairs that are adjacent in time."""


def source_cases(bench: Bench) -> Cases:
    """Return pairs of steps under short and long sources; none in quick mode or if the engine cannot alternate them.

    The speed of a box varies by more than the difference, but hardly within a pair.
    """
    settings, engine = bench.settings, bench.engine
    short, long = min(STEP_SRC_LEN, settings.max_src_len), min(LONG_SRC_LEN, settings.max_src_len)
    if bench.quick or long == short or not isinstance(engine, TakesTurns) or bench.blocks.get("step") is None:
        return {}
    most, steps = bench.blocks["step"].batch[-1], min(STEPS, settings.max_tgt_len)

    def pairs(batch: int) -> dict[str, Any]:
        works = (Work(src_len, steps, batch, settings.beam) for src_len in (short, long))
        return {"pairs_s": engine.in_turn_s(*works)}

    return {
        batch: Case(partial(pairs, batch), prepare=nothing, size=(batch,), about={"batch": batch, "more": long - short})
        for batch in sorted({*(size for size in LONG_SOURCE_BATCHES if size <= most), most})
    }


def fit_sources(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `step` with the seconds that a source token adds to a step for each sentence, at least 0, and a note.

    The fit is least squares of relative errors to the median difference of each batch size.
    """
    rows, step = counted(frame), bench.blocks["step"]
    pairs = {
        batch: [tuple(pair) for pairs_s in timed["pairs_s"] for pair in pairs_s] for batch, timed in by_batch(rows).items()
    }
    seconds, note = s_per_row_src_token(pairs, int(rows["more"].iloc[0]))
    return {"step": step.model_copy(update={"s_per_row_src_token": seconds, "notes": (*step.notes, note)})}


def s_per_row_src_token(pairs_by_batch: dict[int, list[tuple[float, float]]], more: int) -> tuple[float, str]:
    """Fit `s_per_row_src_token` to pairs of steps, the second under `more` further source tokens; return it with a note."""
    above, below, grown = 0.0, 0.0, []
    for batch, pairs in pairs_by_batch.items():
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
    note = (
        f"{more} further source tokens lengthen a step by {increases}: medians, and the middle half, of "
        f"{min(map(len, pairs_by_batch.values()))} pairs at least; fitted within {_percent(off)} of a step"
    )
    return row_token_s, note


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


MIXED_BATCHES = (8, 32)
SHORTEST, LONGEST = 4, 64
MIXED_ROUNDS = 9


@runtime_checkable
class Encodes(Protocol):
    """An engine that encodes sentences of different lengths together."""

    account: EngineAccount

    def encoding_s(self, src_lens: Sequence[int]) -> float:
        """Return the seconds of one call of the encoder."""


def padding_cases(bench: Bench) -> Cases:
    """Return batches of mixed lengths, evenly spaced in their logarithm; none if the engine does not pack."""
    engine, step, encoder = bench.engine, bench.blocks.get("step"), bench.blocks.get("encoder")
    if not isinstance(engine, Encodes) or engine.account.architecture.get("kind") not in PACKING or not (step and encoder):
        return {}

    def encoding(encode: Callable[[Sequence[int]], float], src_lens: list[int]) -> dict[str, Any]:
        return {"seconds": encode(src_lens), "src_lens": src_lens}

    longest, sizes = min(LONGEST, bench.settings.max_src_len), [size for size in MIXED_BATCHES if size <= step.batch[-1]]
    lengths = {batch: [round(length) for length in np.geomspace(SHORTEST, longest, batch).tolist()] for batch in sizes}
    return {
        batch: Case(partial(encoding, engine.encoding_s, src_lens), size=(batch,), about={"batch": batch})
        for batch, src_lens in lengths.items()
    }


def fit_padding(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `encoder` with `padding_share`."""
    rows, encoder = counted(frame), bench.blocks["encoder"]
    mixed = [(timed["src_lens"].iloc[0], float(timed["seconds"].median())) for timed in by_batch(rows).values()]
    return {"encoder": encoder.model_copy(update={"padding_share": padding_share(mixed, bench.blocks["step"], encoder)})}


def padding_share(mixed: Sequence[tuple[Sequence[int], float]], step: StepBlock, encoder: EncoderBlock) -> float | None:
    """Fit the share of the padding's cost that batches of mixed lengths paid, by relative error; None without batches.

    `mixed`: source lengths of a batch, and the seconds of encoding it.
    """
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
    """Raise `CalibrationError`, `CorpusError` or `NmtError` if a beam's steps could not be counted, before hours of timing."""
    _text_translator(settings)


def overrun_cases(bench: Bench) -> Cases:
    """Return the counting of a beam's steps, which is not timed."""

    def count() -> dict[str, int]:
        translator, sentences = _text_translator(bench.settings)
        done = [translation for translation in translator.translate(sentences) if translation.ended and translation.steps]
        tokens = sum(translation.tgt_len + 1 for translation in done)
        return {"sentences": len(done), "steps": sum(translation.steps for translation in done), "tokens": tokens}

    return {"text": Case(count, prepare=nothing)} if measures_overrun(bench.settings) else {}


def fit_overrun(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `beam_overrun`: steps over tokens, with the end token, of all sentences that the model ends itself.

    Without enough of them a completed profile keeps its own.
    """
    sentences, steps, tokens = (int(frame[name].iloc[0]) for name in ("sentences", "steps", "tokens"))
    if sentences < LEAST_SENTENCES:
        bench.remarks.append("no steps of the beam beyond its best output: the model ended too few of the text's sentences")
        return {}
    note = f"beam {bench.settings.beam}, {Path(bench.settings.text or '').name}"
    block = BeamOverrun(kind="measured", steps_per_token=max(steps / tokens, 1.0), sentences=sentences, note=note)
    return {"beam_overrun": block}


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
    translator = Translator.load(Path(settings.model), device=settings.device, beam=settings.beam, languages=languages)
    return translator, sentences


PARTS = (
    Part("beam_overrun", ("execution", "step"), overrun_cases, fit_overrun, order=0, apart=lambda settings: True),
    Part("padding", ("step",), padding_cases, fit_padding, order=2, rounds=lambda bench: MIXED_ROUNDS),
    Part(
        "sources", ("step",), source_cases, fit_sources, order=3, rounds=lambda bench: SOURCE_ROUNDS, within_s=SOURCES_WITHIN_S
    ),
)
