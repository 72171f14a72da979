"""Bench of decoder variants: decode steps by decoder configuration, stage by stage, as a profile's block `decoder` (XP-03)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from simnmt.calibrate.measurement import Listener
from simnmt.calibrate.plan import STEP_SRC_LEN, batches
from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import Engine, Work
from simnmt.nmt.errors import NmtError, OutOfMemory
from simnmt.profile.decoder_block import STAGES, DecoderBlock, DecoderVariant
from simnmt.profile.decoder_settings import DecoderSettings, techniques
from simnmt.profile.decoder_settings import ladder as paper_ladder

if TYPE_CHECKING:  # engines without these stages are measured without torch
    from simnmt.kernels.sharp.model import StageSeconds
    from simnmt.nmt.decoder_timing import OutputStages

BEAMS = (1, 5)
"""Of FNI-15's tables; with torch each is measured fused and not, beside the calibration's own."""
ROUNDS, QUICK_ROUNDS = 7, 3
LEAST_ROUNDS, ENOUGH_S = 3, 5.0
"""Of whole translations: no more rounds than the least, once they have taken so long."""
SHARP_ROUNDS, QUICK_SHARP_ROUNDS, SHARP_ENOUGH_S = 60, 30, 1.5
"""Of single sentences, which are short: as many as that, but no more than `LEAST_ROUNDS` once they have taken so long."""
STEPS, MANY_ROWS, STEPS_OF_MANY = 12, 128, 6
"""Of a timed translation; from so many rows on (sentences x beam), fewer."""
SHARP_SRC_LEN = SHARP_STEPS = 25
"""Of the sharp decoder's own bar: 25 source words, and a translation as long, which shares what is done once a sentence."""
TIMED_STEPS = 8
"""Of these: the shorter what is timed, the less often others take the CPU meanwhile."""
QUICK_BATCHES = (1, 4)
BlockAndOmissions = tuple[DecoderBlock | None, list[str]]


@runtime_checkable
class TellsOutputStages(Protocol):
    """An engine that times the output layer's stages beside each other, in its decoder's own shapes."""

    def output_stages_s(self, batch: int, beam: int, *, src_len: int, rounds: int) -> OutputStages:
        """Medians of interleaved runs."""


@runtime_checkable
class TellsStages(Protocol):
    """An engine whose decoder can be written in any way, one sentence at a time."""

    def stages_s(self, settings: DecoderSettings, *, src_len: int, tgt_len: int) -> StageSeconds:
        """Of one sentence of so many forced steps."""


def decoder_block(engine: Engine, settings: Settings, most: int, listener: Listener) -> BlockAndOmissions:
    """The block `decoder` of a profile, and what could not be measured; `most`: sentences of the largest batch."""
    if isinstance(engine, TellsStages):
        return _rungs(engine, engine, settings, listener)
    if isinstance(engine, TellsOutputStages):
        return _fused_or_not(engine, engine, settings, most, listener)
    return None, ["no variants of the decoder: the backend does not tell the stages of a step"]


def _fused_or_not(
    engine: Engine, stages: TellsOutputStages, settings: Settings, most: int, listener: Listener
) -> BlockAndOmissions:
    """Measure each beam and batch size, fused and not; the body includes what a whole step takes beside its stages."""
    rounds = QUICK_ROUNDS if settings.mode == "quick" else ROUNDS
    src_len = min(STEP_SRC_LEN, settings.max_src_len)
    variants, left_out = list[DecoderVariant](), list[str]()
    for beam in dict.fromkeys((settings.beam, *BEAMS)):
        for batch in _batches(settings, most):
            listener.say(f"decoder: beam {beam}, batch {batch}")
            try:
                output_stages = stages.output_stages_s(batch, beam, src_len=src_len, rounds=rounds)
                whole_s = _whole_step_s(engine, src_len, batch, beam, settings, rounds)
            except OutOfMemory:
                left_out.append(f"beam {beam}, batch {batch}: out of memory")
                break
            layers = {
                False: (output_stages.product_s, output_stages.bias_s + output_stages.softmax_s + output_stages.search_s),
                True: (output_stages.fused_product_s, output_stages.fused_s),
            }
            body_s = max(output_stages.body_s, whole_s - sum(layers[engine.account.fused]))
            variants += [_variant(DecoderSettings(beam=beam, fused=fused), batch, body_s, *layers[fused]) for fused in layers]
    base = DecoderSettings(beam=settings.beam, fused=engine.account.fused)
    notes = list[str]()
    if settings.vocabulary:
        restricted, notes = _restricted(engine, variants, settings, listener, left_out)
        variants += restricted
    return _block(base, variants, src_len, rounds, left_out, notes)


def _restricted(
    engine: Engine, variants: Sequence[DecoderVariant], settings: Settings, listener: Listener, left_out: list[str]
) -> tuple[list[DecoderVariant], list[str]]:
    """Measure restricted vocabularies on real text for each variant that is as fused as the engine; return notes too."""
    from simnmt.calibrate.vocabulary_variants import Restricted  # reads bundles, which few calibrations have

    on_text = Restricted.load(settings, engine.account.threads).with_costs()
    restricted = list[DecoderVariant]()
    for full in variants:
        if full.settings.fused != engine.account.fused:
            continue
        if settings.mode == "quick" and full.settings.beam != settings.beam:
            continue
        name = f"beam {full.settings.beam}, batch {full.batch}"
        listener.say(f"decoder: parts of the vocabulary, {name}")
        try:
            beside = list(on_text.beside(full, settings))
        except OutOfMemory:
            left_out.append(f"parts of the vocabulary, {name}: out of memory")
            continue
        left_out += [] if beside else [f"parts of the vocabulary, {name}: too few sentences for whole batches"]
        restricted += beside
    return restricted, list(on_text.notes)


def _whole_step_s(engine: Engine, src_len: int, batch: int, beam: int, settings: Settings, rounds: int) -> float:
    """Return the seconds that each further step adds to a translation, the gap between steps included."""
    steps = min(STEPS_OF_MANY if batch * beam >= MANY_ROWS else STEPS, settings.max_tgt_len)
    lengths = (1, steps)
    for tgt_len in lengths:
        engine.run(Work(src_len, tgt_len, batch, beam))
    timed = list[list[float]]()
    while len(timed) < rounds and (len(timed) < LEAST_ROUNDS or sum(map(sum, timed)) < ENOUGH_S):
        timed.append([engine.run(Work(src_len, tgt_len, batch, beam)).total_s for tgt_len in lengths])
    short_s, long_s = np.median(timed, axis=0).tolist()
    return float(max(long_s - short_s, 0.0) / (steps - 1))


def _rungs(engine: Engine, stages: TellsStages, settings: Settings, listener: Listener) -> BlockAndOmissions:
    """Measure one option after another on top of the base, each alone, and combinations that show how effects compose.

    Each is timed in turn with the base, which takes the box's wandering speed out of their ratio; and the ratio is of the least
    of both, which a busy box disturbs last.
    """
    base = DecoderSettings.model_validate((engine.account.decoder or {}) | {"beam": settings.beam})
    rounds = QUICK_SHARP_ROUNDS if settings.mode == "quick" else SHARP_ROUNDS
    src_len = min(SHARP_SRC_LEN, settings.max_src_len)
    ratios: dict[DecoderSettings, list[float]] = {}
    base_s, left_out, repeats = list[tuple[float, ...]](), list[str](), list[int]()
    for variant in list(dict.fromkeys(ladder(base, quick=settings.mode == "quick"))):
        if variant == base:
            continue
        listener.say(f"decoder: {variant.describe()}")
        both: dict[DecoderSettings, list[tuple[float, ...]]] = {base: [], variant: []}
        try:
            for decoder in both:  # the first warms up
                stages.stages_s(decoder, src_len=src_len, tgt_len=TIMED_STEPS)
            while _more_rounds(both[variant], rounds):
                for decoder, steps_s in both.items():
                    steps_s.append(_per_step_s(stages.stages_s(decoder, src_len=src_len, tgt_len=TIMED_STEPS)))
            repeats.append(len(both[variant]))
        except OutOfMemory:
            left_out.append(f"{variant.describe()}: out of memory")
            continue
        except NmtError as error:
            return None, [f"no variants of the decoder: {error}"]
        least_s = sum(min(both[base], key=sum))
        ratios[variant] = [part / least_s for part in min(both[variant], key=sum)]
        base_s += both[base]
    base_parts_s = np.median(base_s, axis=0).tolist()
    variants = [_variant(base, 1, *base_parts_s)]
    variants += [_variant(decoder, 1, *(sum(base_parts_s) * part for part in ratio)) for decoder, ratio in ratios.items()]
    notes = ["what is done once a sentence is in the body, shared by its steps"]
    if settings.text is not None:
        listener.say("decoder: agreement")
        variants, agreement_note = _with_agreement(variants, settings.model, Path(settings.text), base.beam)
        notes.append(agreement_note)
    return _block(base, variants, src_len, min(repeats, default=1), left_out, notes)


def _with_agreement(variants: Sequence[DecoderVariant], model: str, text: Path, beam: int) -> tuple[list[DecoderVariant], str]:
    """Add to variants that round the share of a trained model's words that stay the same; return a note too (SHARP-10)."""
    from simnmt.calibrate.sharp_agreement import noise_agreement  # torch is needed for this alone

    agreement = noise_agreement(model, text, [variant.settings for variant in variants if variant.settings.noise], beam)
    rated = [variant.model_copy(update={"agreement": agreement.share.get(variant.settings)}) for variant in variants]
    return rated, f"agreement: {agreement.tokens:,} words of {agreement.sentences:,} sentences of {text.name}, candidates aside"


def ladder(base: DecoderSettings, *, quick: bool = False) -> Iterator[DecoderSettings]:
    """The base, the rungs of SHARP-11 on top of each other, each option alone, other beams, and combinations.

    Embeddings kept for frequent words alone are not among them: how many are hit is a matter of text, and there is none here.
    A quick calibration makes fewer tables of all embeddings, each of which takes seconds.
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
    for beam in others:
        yield on_top.model_copy(update={"beam": beam})
    for rung, change in changes.items():
        if rung != "int16":
            yield base.model_copy(update=change)
    yield base.model_copy(update={"activations": "table"})
    yield base.model_copy(update=changes["embeddings"] | changes["attention"])
    yield base.model_copy(update=changes["int16"] | changes["merge"] | changes["fused"])
    yield on_top.model_copy(update={"gemm": base.gemm})


def _more_rounds(steps_s: Sequence[tuple[float, ...]], rounds: int) -> bool:
    spent_s = 2 * TIMED_STEPS * sum(map(sum, steps_s))
    return len(steps_s) < rounds and (len(steps_s) < LEAST_ROUNDS or spent_s < SHARP_ENOUGH_S)


def _per_step_s(stages: StageSeconds) -> tuple[float, ...]:
    """Return the seconds of body, product and search of a step."""
    body_s = stages.prepare_s / SHARP_STEPS + stages.body_s / TIMED_STEPS
    return body_s, stages.product_s / TIMED_STEPS, stages.search_s / TIMED_STEPS


def _batches(settings: Settings, most: int) -> list[int]:
    """Powers of two, and the largest, so that no cost is extrapolated."""
    sizes = QUICK_BATCHES if settings.mode == "quick" else [1 << power for power in range(most.bit_length())]
    largest = min(most, batches(settings)[-1])
    return sorted({size for size in sizes if size < largest} | {1, largest})


def _variant(settings: DecoderSettings, batch: int, *stages_s: float) -> DecoderVariant:
    # A stage that the clock does not see takes a nanosecond, so that it has a logarithm.
    parts = {stage: max(seconds, 1e-9) for stage, seconds in zip(STAGES, stages_s, strict=True)}
    body_s, product_s, search_s = parts.values()
    return DecoderVariant(
        settings=settings, batch=batch, step_s=sum(parts.values()), body_s=body_s, product_s=product_s, search_s=search_s
    )


def _block(
    base: DecoderSettings,
    variants: Sequence[DecoderVariant],
    src_len: int,
    rounds: int,
    left_out: Sequence[str],
    notes: Sequence[str] = (),
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
