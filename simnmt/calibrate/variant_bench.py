"""Measure decode steps by decoder settings, stage by stage, as the block `decoder` of a profile (XP-03)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from simnmt.calibrate.cells import STEP_SRC_LEN, batches
from simnmt.calibrate.harness import Listener
from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import Engine, Work
from simnmt.nmt.errors import NmtError, OutOfMemory
from simnmt.profile.decoder_block import DecoderBlock, DecoderVariant
from simnmt.profile.decoder_settings import DecoderSettings, techniques
from simnmt.profile.decoder_settings import ladder as paper_ladder

if TYPE_CHECKING:  # engines without these stages need no torch
    from simnmt.kernels.beam_search import StageSeconds
    from simnmt.nmt.decoder_timing import OutputStages

BEAMS = (1, 5)
"""Beams of FNI-15's tables; a torch engine measures each fused and not, beside the beam of the calibration."""
ROUNDS, QUICK_ROUNDS = 7, 3
LEAST_ROUNDS, ENOUGH_S = 3, 5.0
"""Rounds of whole translations after which none is added once they have taken this time."""
SHARP_ROUNDS, QUICK_SHARP_ROUNDS, SHARP_ENOUGH_S = 60, 30, 1.5
"""Rounds of single sentences, which are short; after `LEAST_ROUNDS` none is added once they have taken this time."""
STEPS, MANY_ROWS, STEPS_OF_MANY = 12, 128, 6
"""Steps of a timed translation; from this number of rows on (sentences x beam), fewer."""
SHARP_SRC_LEN = SHARP_STEPS = 25
"""Source words and steps of the sharp decoder's target: work done once per sentence is shared by this number of steps."""
TIMED_STEPS = 8
"""Timed steps among these: a shorter run is less often disturbed."""
QUICK_BATCHES = (1, 4)
BlockAndOmissions = tuple[DecoderBlock | None, list[str]]


@runtime_checkable
class TimesOutputStages(Engine, Protocol):
    """An engine that times the stages of the output layer in the shapes of its decoder."""

    def output_stages_s(self, batch: int, beam: int, *, src_len: int, rounds: int) -> OutputStages:
        """Return medians of interleaved runs."""


@runtime_checkable
class TimesAnyDecoder(Engine, Protocol):
    """An engine that decodes single sentences with any decoder settings."""

    def stages_s(self, settings: DecoderSettings, *, src_len: int, tgt_len: int) -> StageSeconds:
        """Return the seconds of the stages of one sentence of `tgt_len` forced steps."""


def decoder_block(engine: Engine, settings: Settings, most: int, listener: Listener) -> BlockAndOmissions:
    """Measure the block `decoder` of a profile; return it, and what could not be measured.

    `most`: sentences of the largest batch.
    """
    if isinstance(engine, TimesAnyDecoder):
        return _rungs(engine, settings, listener)
    if isinstance(engine, TimesOutputStages):
        return _fused_or_not(engine, settings, most, listener)
    return None, ["no variants of the decoder: the backend does not time the stages of a step"]


def _fused_or_not(engine: TimesOutputStages, settings: Settings, most: int, listener: Listener) -> BlockAndOmissions:
    """Measure each beam and batch size, fused and not; the body includes the time of a whole step beside its stages."""
    rounds = QUICK_ROUNDS if settings.mode == "quick" else ROUNDS
    src_len, fused_engine = min(STEP_SRC_LEN, settings.max_src_len), engine.account.fused
    variants, left_out = list[DecoderVariant](), list[str]()
    for beam in dict.fromkeys((settings.beam, *BEAMS)):
        for batch in _batches(settings, most):
            listener.say(f"decoder: beam {beam}, batch {batch}")
            try:
                stages = engine.output_stages_s(batch, beam, src_len=src_len, rounds=rounds)
                whole_s = _whole_step_s(engine, src_len, batch, beam, settings, rounds)
            except OutOfMemory:
                left_out.append(f"beam {beam}, batch {batch}: out of memory")
                break
            layers = {
                False: (stages.product_s, stages.bias_s + stages.softmax_s + stages.search_s),
                True: (stages.fused_product_s, stages.fused_s),
            }
            body_s = max(stages.body_s, whole_s - sum(layers[fused_engine]))
            variants += [_variant(DecoderSettings(beam=beam, fused=fused), batch, body_s, *layers[fused]) for fused in layers]
    notes = list[str]()
    if settings.vocabulary:
        from simnmt.calibrate.vocabulary_variants import Restricted  # reads bundles, which few calibrations have

        on_text = Restricted.load(settings, engine.account.threads).with_costs()
        notes = list(on_text.notes)
        beams = {settings.beam} if settings.mode == "quick" else {settings.beam, *BEAMS}
        for variant in [variant for variant in variants if variant.settings.fused == fused_engine]:
            if variant.settings.beam not in beams:
                continue
            name = f"beam {variant.settings.beam}, batch {variant.batch}"
            listener.say(f"decoder: parts of the vocabulary, {name}")
            try:
                restricted = list(on_text.beside(variant, settings))
            except OutOfMemory:
                left_out.append(f"parts of the vocabulary, {name}: out of memory")
                continue
            left_out += [] if restricted else [f"parts of the vocabulary, {name}: too few sentences for whole batches"]
            variants += restricted
    return _block(DecoderSettings(beam=settings.beam, fused=fused_engine), variants, src_len, rounds, left_out, notes)


def _whole_step_s(engine: Engine, src_len: int, batch: int, beam: int, settings: Settings, rounds: int) -> float:
    """Return the seconds that each further step adds to a translation, including the gap between steps."""
    steps = min(STEPS_OF_MANY if batch * beam >= MANY_ROWS else STEPS, settings.max_tgt_len)
    works = [Work(src_len, tgt_len, batch, beam) for tgt_len in (1, steps)]
    for work in works:
        engine.run(work)
    timed = list[list[float]]()
    while len(timed) < rounds and (len(timed) < LEAST_ROUNDS or sum(map(sum, timed)) < ENOUGH_S):
        timed.append([engine.run(work).total_s for work in works])
    short_s, long_s = np.median(timed, axis=0).tolist()
    return float(max(long_s - short_s, 0.0) / (steps - 1))


def _rungs(engine: TimesAnyDecoder, settings: Settings, listener: Listener) -> BlockAndOmissions:
    """Measure the decoders of `ladder`, each alternately with the base, which removes drifts of the box from their ratio.

    The ratio is of the least times of both, which a busy box disturbs least.
    """
    base = DecoderSettings.model_validate((engine.account.decoder or {}) | {"beam": settings.beam})
    quick, src_len = settings.mode == "quick", min(SHARP_SRC_LEN, settings.max_src_len)

    def per_step_s(decoder: DecoderSettings) -> tuple[float, ...]:
        """Return the seconds of body, product and search of a step."""
        stages = engine.stages_s(decoder, src_len=src_len, tgt_len=TIMED_STEPS)
        body_s = stages.prepare_s / SHARP_STEPS + stages.body_s / TIMED_STEPS
        return body_s, stages.product_s / TIMED_STEPS, stages.search_s / TIMED_STEPS

    ratios: dict[DecoderSettings, list[float]] = {}
    base_s, left_out, repeats = list[tuple[float, ...]](), list[str](), list[int]()
    for variant in dict.fromkeys(ladder(base, quick=quick)):
        if variant == base:
            continue
        listener.say(f"decoder: {variant.describe()}")
        pair: dict[DecoderSettings, list[tuple[float, ...]]] = {base: [], variant: []}
        try:
            for decoder in pair:  # the first runs warm up
                per_step_s(decoder)
            while _more_rounds(pair[variant], QUICK_SHARP_ROUNDS if quick else SHARP_ROUNDS):
                for decoder, steps_s in pair.items():
                    steps_s.append(per_step_s(decoder))
        except OutOfMemory:
            left_out.append(f"{variant.describe()}: out of memory")
            continue
        except NmtError as error:
            return None, [f"no variants of the decoder: {error}"]
        least_s = sum(min(pair[base], key=sum))
        ratios[variant] = [part / least_s for part in min(pair[variant], key=sum)]
        base_s += pair[base]
        repeats.append(len(pair[variant]))
    base_parts_s = np.median(base_s, axis=0).tolist()
    variants = [_variant(base, 1, *base_parts_s)]
    variants += [_variant(decoder, 1, *(sum(base_parts_s) * part for part in ratio)) for decoder, ratio in ratios.items()]
    notes = ["work done once per sentence is in the body, shared by its steps"]
    if settings.text is not None:
        listener.say("decoder: agreement")
        variants, agreement_note = _with_agreement(variants, settings.model, Path(settings.text), base.beam)
        notes.append(agreement_note)
    return _block(base, variants, src_len, min(repeats, default=1), left_out, notes)


def _with_agreement(variants: Sequence[DecoderVariant], model: str, text: Path, beam: int) -> tuple[list[DecoderVariant], str]:
    """Add to variants that round the share of words of a trained model that stay the same, and return a note (SHARP-10)."""
    from simnmt.calibrate.sharp_agreement import noise_agreement  # only this needs torch

    agreement = noise_agreement(model, text, [variant.settings for variant in variants if variant.settings.noise], beam)
    rated = [variant.model_copy(update={"agreement": agreement.share.get(variant.settings)}) for variant in variants]
    return rated, f"agreement: {agreement.tokens:,} words of {agreement.sentences:,} sentences of {text.name}, candidates aside"


def ladder(base: DecoderSettings, *, quick: bool = False) -> Iterator[DecoderSettings]:
    """Yield the base, the rungs of SHARP-11 one on top of another, single options, other beams, and combinations.

    Kept embeddings of frequent words are not measured: their hits depend on a text, and there is none here. A quick calibration
    makes fewer tables of all embeddings, because a table takes seconds.
    """
    changes = techniques(embeddings="precomputed") | {"fused": {"fused": True}}
    rungs = paper_ladder(base, changes)
    yield from rungs.values()
    on_top = rungs["fused"]
    yield rungs["attention"].model_copy(update={"activations": "table"})
    other, *others = [beam for beam in BEAMS if beam != base.beam]
    for beam in (other, *others):
        yield base.model_copy(update={"beam": beam})
    yield on_top.model_copy(update={"beam": other})
    if quick:
        return
    yield from (on_top.model_copy(update={"beam": beam}) for beam in others)
    alone = [change for rung, change in changes.items() if rung != "int16"]
    both_kept = changes["embeddings"] | changes["attention"]
    for change in (*alone, {"activations": "table"}, both_kept, changes["int16"] | changes["merge"] | changes["fused"]):
        yield base.model_copy(update=change)
    yield on_top.model_copy(update={"gemm": base.gemm})


def _more_rounds(steps_s: Sequence[tuple[float, ...]], rounds: int) -> bool:
    spent_s = 2 * TIMED_STEPS * sum(map(sum, steps_s))
    return len(steps_s) < rounds and (len(steps_s) < LEAST_ROUNDS or spent_s < SHARP_ENOUGH_S)


def _batches(settings: Settings, most: int) -> list[int]:
    """Return powers of two and the largest batch, so that no cost is extrapolated."""
    sizes = QUICK_BATCHES if settings.mode == "quick" else [1 << power for power in range(most.bit_length())]
    largest = min(most, batches(settings)[-1])
    return sorted({size for size in sizes if size < largest} | {1, largest})


def _variant(settings: DecoderSettings, batch: int, *stages_s: float) -> DecoderVariant:
    # A stage below the resolution of the clock counts as a nanosecond: seconds are above 0.
    body_s, product_s, search_s = parts = [max(seconds, 1e-9) for seconds in stages_s]
    return DecoderVariant(
        settings=settings, batch=batch, step_s=sum(parts), body_s=body_s, product_s=product_s, search_s=search_s
    )


def _block(
    base: DecoderSettings,
    variants: Sequence[DecoderVariant],
    src_len: int,
    rounds: int,
    left_out: Sequence[str],
    notes: Sequence[str],
) -> BlockAndOmissions:
    """Return the block without batch sizes for which the base had no memory."""
    known = {variant.batch for variant in variants if variant.settings == base}
    if not known:
        return None, ["no variants of the decoder: out of memory"]
    block = DecoderBlock(
        kind="measured",
        base=base,
        src_len=src_len,
        repeats=rounds,
        variants=tuple(variant for variant in variants if variant.batch in known),
        left_out=tuple(left_out),
        notes=tuple(notes),
    )
    return block, []
