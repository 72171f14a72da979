"""Costs beside steps (CNMT-12, FNI-10), and corrections: long sources, padding of mixed lengths, steps beyond a beam's best."""

from __future__ import annotations

from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from simnmt.calibrate.harness import Case, counted, nothing
from simnmt.calibrate.parts import STEP_SRC_LEN, Bench, Blocks, Cases, Part
from simnmt.calibrate.parts.step import fit_overhead
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.engine import Work
from simnmt.policies import CNmt
from simnmt.profile.blocks import BeamOverrun, Overhead
from simnmt.profile.cost import DecodingCost, Plane
from simnmt.profile.device_profile import PACKING
from simnmt.workload.length_regression import LengthRegression
from simnmt.workload.text_lines import TextLines

DECISIONS = 2_000
LONGEST_SRC_LEN = 500


def decision_cases(bench: Bench) -> Cases:
    """Return decisions of C-NMT between two targets, by the policy of the simulation, one request at a time.

    `prepare` computes the time-independent part once for every source length; a decision looks up both executions and adds the
    delay of each target.
    """
    planes = [Plane(0.0004, 0.003, 0.005), Plane(0.0001, 0.001, 0.004)]
    decide = CNmt(planes, LengthRegression(0.8, 1.0).predict).prepare(np.arange(LONGEST_SRC_LEN + 1))

    def decisions() -> None:
        for number in range(DECISIONS):
            decide(1 + number % LONGEST_SRC_LEN, (0.0, 0.050))

    return {"decisions": Case(decisions)}


def fit_decision(frame: pd.DataFrame, bench: Bench) -> Blocks:
    seconds = float(counted(frame)["seconds"].median()) / DECISIONS
    note = "length regression and two planes, one request at a time"
    return {"overheads": {"decision_s": Overhead(value=seconds, kind="measured", note=note)}}


NAMES_OF_JOINING = ("refill_s_fixed", "refill_s_per_sentence", "leave_s")


def joining_cases(bench: Bench) -> Cases:
    """Return 1, 2, 4 ... sentences, up to the largest batch, that join a batch; none if the engine never refills.

    As many others are active as fit, at most as many as join. The first step after joining may take longer than its batch and
    position imply; that is not included.
    """
    settings, joining_timer = bench.settings, getattr(bench.engine, "joining_timer", None)
    if joining_timer is None:
        bench.add(_unknown("never refills a batch"))
        return {}
    sizes = [1 << power for power in range(bench.most_batch.bit_length())]
    src_len = min(STEP_SRC_LEN, settings.max_src_len)

    @cache
    def timer(joining: int) -> Any:
        return joining_timer(joining, min(joining, sizes[-1] - joining), src_len=src_len, beam=settings.beam)

    def join(joining: int) -> object:
        return timer(joining)()

    return {size: Case(partial(join, size), size=(size,), about={"joining": size}) for size in sizes}


def fit_joining(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `refill_s_fixed`, `refill_s_per_sentence` and `leave_s`.

    Sentences that joined together end at different steps: the cost of leaving per sentence is added to its joining, and the
    fixed cost is `leave_s`, paid in each step that ends some sentence.
    """
    rows = counted(frame)
    if not len(rows):
        return _unknown("out of memory")
    medians_s = rows.groupby("joining")[["join_s", "leave_s"]].median()
    join, leave = (fit_overhead(medians_s.index, medians_s[name]) for name in medians_s)
    sizes = f"of 1 to {medians_s.index.max()} sentences"
    values = (join.s_fixed, join.s_per_sentence + leave.s_per_sentence, leave.s_fixed)
    notes = (f"joining {sizes}", f"{1e6 * leave.s_per_sentence:.3g} us of each for leaving", f"leaving {sizes}")
    overheads = (Overhead(value=value, kind="measured", note=note) for value, note in zip(values, notes, strict=True))
    return {"overheads": dict(zip(NAMES_OF_JOINING, overheads, strict=True))}


def _unknown(note: str) -> Blocks:
    return {"overheads": dict.fromkeys(NAMES_OF_JOINING, Overhead(kind="measured", note=note))}


LONG_SRC_LEN, LONG_SOURCE_BATCHES = 80, (8, 32)
"""Batch sizes under long sources, beside the largest batch."""
STEPS = 24


def source_cases(bench: Bench) -> Cases:
    """Return pairs of steps under short and long sources; none in quick mode or if the engine cannot alternate them.

    The speed of a box varies by more than the difference, but hardly within a pair.
    """
    settings, in_turn_s = bench.settings, getattr(bench.engine, "in_turn_s", None)
    short, long = min(STEP_SRC_LEN, settings.max_src_len), min(LONG_SRC_LEN, settings.max_src_len)
    if bench.quick or long == short or in_turn_s is None or bench.blocks.get("step") is None:
        return {}

    def pairs(batch: int) -> dict[str, Any]:
        works = (Work(src_len, min(STEPS, settings.max_tgt_len), batch, settings.beam) for src_len in (short, long))
        return {"pairs_s": in_turn_s(*works)}

    return {
        batch: Case(partial(pairs, batch), prepare=nothing, size=(batch,), about={"batch": batch, "more": long - short})
        for batch in sorted({*(size for size in LONG_SOURCE_BATCHES if size <= bench.most_batch), bench.most_batch})
    }


def fit_sources(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `step` with the seconds that a source token adds to a step for each sentence, at least 0.

    The fit is least squares of relative errors to the median difference of each batch size.
    """
    rows = counted(frame)
    if not len(rows):
        bench.remarks.append("no cost of long sources: out of memory")
        return {}
    pairs = rows[["batch", "more", "pairs_s"]].explode("pairs_s")
    pairs["short_s"], long_s = (pairs["pairs_s"].str[at].astype(float) for at in (0, 1))
    pairs["share"] = long_s / pairs["short_s"] - 1.0
    by_batch = pairs.groupby("batch")[["more", "short_s", "share"]].median()
    tokens, share = by_batch["more"] * by_batch.index / by_batch["short_s"], by_batch["share"]
    row_token_s = max(float((tokens * share).sum() / (tokens * tokens).sum()), 0.0)
    off = ((row_token_s * tokens - share).abs() / (1.0 + share)).mean()
    more = f"{by_batch['more'].iloc[0]:.0f} further source tokens lengthen a step by up to {100 * share.max():.1f} %"
    note = f"{more}: medians of adjacent pairs, fitted within {100 * off:.1f} % of a step"
    step = bench.blocks["step"]
    return {"step": step.model_copy(update={"s_per_row_src_token": row_token_s, "notes": (*step.notes, note)})}


MIXED_BATCHES = (8, 32)
SHORTEST, LONGEST = 4, 64


def padding_cases(bench: Bench) -> Cases:
    """Return batches of mixed lengths, evenly spaced in their logarithm; none if the engine does not pack."""
    encoding_s, step = getattr(bench.engine, "encoding_s", None), bench.blocks.get("step")
    packs = bench.engine.account.architecture.get("kind") in PACKING
    if encoding_s is None or not packs or step is None or bench.blocks.get("encoder") is None:
        return {}

    def encode(src_lens: list[int]) -> dict[str, Any]:
        return {"seconds": encoding_s(src_lens), "src_lens": src_lens}

    longest, sizes = min(LONGEST, bench.settings.max_src_len), [size for size in MIXED_BATCHES if size <= bench.most_batch]
    lengths = {batch: [round(length) for length in np.geomspace(SHORTEST, longest, batch).tolist()] for batch in sizes}
    return {
        batch: Case(partial(encode, src_lens), size=(batch,), about={"batch": batch}) for batch, src_lens in lengths.items()
    }


def fit_padding(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `encoder` with the share of the padding's cost that batches of mixed lengths paid, fitted by relative error."""
    step, encoder = bench.blocks["step"], bench.blocks["encoder"]
    packed, padded = (DecodingCost(step.cost, encoder.cost, packs=packs) for packs in (True, False))
    above = below = 0.0
    for _, timed in counted(frame).groupby("batch"):
        src_lens, seconds = timed["src_lens"].iloc[0], float(timed["seconds"].median())
        saved = (padded.encode_s(src_lens) - packed.encode_s(src_lens)) / seconds
        above += saved * (1.0 - packed.encode_s(src_lens) / seconds)
        below += saved * saved
    share = min(max(above / below, 0.0), 1.0) if below else None
    return {"encoder": encoder.model_copy(update={"padding_share": share})}


SENTENCES = 200
"""Number of sentences, the first ones of the text that are not blank."""
LEAST_SENTENCES = 10
"""Least number of sentences that the model must end itself."""


def overrun_cases(bench: Bench) -> Cases:
    """Return the counting of a beam's steps, which is not timed."""
    settings, text = bench.settings, bench.settings.text
    if settings.beam == 1 or text is None or settings.backend != "torch" or settings.vocabulary:
        return {}
    lines = filter(None, (line.strip() for line in TextLines(text, kept=True, pipes=False)))
    sentences = list(islice(lines, SENTENCES))
    if len(sentences) < LEAST_SENTENCES:
        remedy = f"give a text with {LEAST_SENTENCES} or more"
        raise CalibrationError(f"{len(sentences)} sentences do not show a beam's steps", path=text, remedy=remedy)

    def count() -> dict[str, int]:
        from simnmt.nmt.pretrained_tokenizer import Languages
        from simnmt.nmt.translation import Translator

        languages = Languages(settings.src_lang, settings.tgt_lang)
        translator = Translator.load(Path(settings.model), device=settings.device, beam=settings.beam, languages=languages)
        translations = translator.translate(sentences)
        done = [translation for translation in translations if translation.ended and translation.steps]
        tokens = sum(translation.tgt_len + 1 for translation in done)
        return {"sentences": len(done), "steps": sum(translation.steps for translation in done), "tokens": tokens}

    return {"text": Case(count, prepare=nothing)}


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


PARTS = (
    Part(
        "beam_overrun",
        ("execution", "step"),
        overrun_cases,
        fit_overrun,
        order=0,
        apart=lambda settings: True,
        decoder_only=False,
    ),
    Part("padding", ("step",), padding_cases, fit_padding, order=2, rounds=lambda bench: 9, decoder_only=False),
    Part("sources", ("step",), source_cases, fit_sources, order=3, rounds=lambda bench: 6, within_s=25.0, decoder_only=False),
    Part("joining", ("step",), joining_cases, fit_joining, order=4, rounds=lambda bench: 15, within_s=30.0, decoder_only=False),
    Part("decision", ("overheads",), decision_cases, fit_decision, order=5, rounds=lambda bench: 5),
)
