"""Decode steps by decoder settings and stage: the block `decoder` of a profile (XP-03).

The torch engine is timed by beam and batch size, fused and not (FNI-15), the sharp engine by its ladder (SHARP-11).
A variant is what was measured, with its agreement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from simnmt.calibrate.harness import Case, Listener, by_round, counted, nothing, rounds
from simnmt.calibrate.parts import STEP_SRC_LEN, Bench, Blocks, Cases, Part, batches
from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import Engine, Work
from simnmt.nmt.errors import NmtError, OutOfMemory
from simnmt.profile.decoder_block import STAGES, DecoderBlock, DecoderVariant
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.decoder_settings import ladder as paper_ladder

BEAMS = (1, 5)
"""Beams of FNI-15's tables; a torch engine measures each fused and not, beside the beam of the calibration."""
ROUNDS, QUICK_ROUNDS, ENOUGH_S = 7, 3, 5.0
"""Rounds of whole translations, of which none is added once they have taken this time."""
SHARP_ROUNDS, QUICK_SHARP_ROUNDS, SHARP_ENOUGH_S = 60, 30, 1.5
"""Rounds of single sentences, which are short."""
STEPS, MANY_ROWS, STEPS_OF_MANY = 12, 128, 6
"""Steps of a timed translation; from this number of rows on (sentences x beam), fewer."""
SHARP_SRC_LEN = SHARP_STEPS = 25
"""Source words and steps of the sharp decoder's target: work done once per sentence is shared by this number of steps."""
TIMED_STEPS = 8
"""Timed steps among these: a shorter run is less often disturbed."""
QUICK_BATCHES = (1, 4)


def decoder_block(engine: Engine, settings: Settings, most: int, listener: Listener) -> tuple[DecoderBlock | None, list[str]]:
    """Measure the block `decoder` of a profile; return it, and what could not be measured.

    `most`: sentences of the largest batch. Batch sizes for which the base had no memory are left out.
    """
    try:
        if hasattr(engine, "stages_s"):  # of a sentence under any settings, as the sharp engine has it
            facts = _rungs(engine, settings, listener)
        elif hasattr(engine, "stage_timer"):  # of the output layer in the shapes of the decoder, as the torch engine has it
            facts = _fused_or_not(engine, settings, most, listener)
        else:
            return None, ["no variants of the decoder: the backend does not time the stages of a step"]
        known = {variant.batch for variant in facts["variants"] if variant.settings == facts["base"]}
        if not known:
            raise OutOfMemory("out of memory")
    except NmtError as error:
        return None, [f"no variants of the decoder: {error}"]
    facts["variants"] = [variant for variant in facts["variants"] if variant.batch in known]
    return DecoderBlock.model_validate({"kind": "measured", **facts}, strict=False), []


def _fused_or_not(engine: Any, settings: Settings, most: int, listener: Listener) -> dict[str, Any]:
    """Measure each beam and batch size, fused and not; the body includes the time of a whole step beside its stages."""
    quick, src_len, fused_engine = settings.mode == "quick", min(STEP_SRC_LEN, settings.max_src_len), engine.account.fused
    variants, left_out, notes = list[DecoderVariant](), list[str](), list[str]()
    for beam in dict.fromkeys((settings.beam, *BEAMS)):
        for batch in _batches(settings, most):
            listener.say(f"decoder: beam {beam}, batch {batch}")
            try:
                stages, whole_s = _step_s(engine, src_len, batch, beam, settings)
            except OutOfMemory:
                left_out.append(f"beam {beam}, batch {batch}: out of memory")
                break
            layers = {
                False: (stages["product"], max(stages["bias"], 0.0) + stages["softmax"] + stages["search"]),
                True: (stages["fused_product"], stages["fused"]),
            }
            body_s = max(stages["body"], whole_s - sum(layers[fused_engine]))
            for fused, layer_s in layers.items():
                variants.append(DecoderVariant.of(DecoderSettings(beam=beam, fused=fused), batch, body_s, *layer_s))
    if settings.vocabulary:
        from simnmt.calibrate.vocabulary_variants import TextDecoding  # reads bundles, which few calibrations have

        decoding = TextDecoding.load(settings, engine.account.threads, batches(settings)[-1])
        notes += decoding.notes
        beams = {settings.beam} if quick else {settings.beam, *BEAMS}
        for full in [full for full in variants if full.settings.fused == fused_engine and full.settings.beam in beams]:
            name = f"parts of the vocabulary, beam {full.settings.beam}, batch {full.batch}"
            listener.say(f"decoder: {name}")
            try:
                restricted = decoding.variants(full)
            except OutOfMemory:
                left_out.append(f"{name}: out of memory")
                continue
            left_out += [] if restricted else [f"{name}: too few sentences for whole batches"]
            variants += restricted
    facts = {"base": DecoderSettings(beam=settings.beam, fused=fused_engine), "repeats": QUICK_ROUNDS if quick else ROUNDS}
    return facts | {"src_len": src_len, "variants": variants, "left_out": left_out, "notes": notes}


def _step_s(engine: Any, src_len: int, batch: int, beam: int, settings: Settings) -> tuple[dict[str, float], float]:
    """Return the seconds of the stages of a step, and those that each further step adds to a translation, with the gap."""
    steps = min(STEPS_OF_MANY if batch * beam >= MANY_ROWS else STEPS, settings.max_tgt_len)

    def run(tgt_len: int) -> dict[str, float]:
        return {"seconds": engine.run(Work(src_len, tgt_len, batch, beam)).total_s}

    timer = engine.stage_timer(batch, beam, src_len=src_len)
    cases: dict[str, Callable[[], object]] = {"stages": timer, "short": partial(run, 1), "long": partial(run, steps)}
    frame = rounds(cases, QUICK_ROUNDS if settings.mode == "quick" else ROUNDS, ENOUGH_S, name="decoder")
    if frame["seconds"].isna().any():
        raise OutOfMemory("a step does not fit")
    short_s, long_s = (float(np.median(times_s)) for times_s in by_round(frame, "short", "long").values())
    stages_s = counted(frame[frame["case"] == "stages"]).median(numeric_only=True)
    return {str(name): float(second) for name, second in stages_s.items()}, max(long_s - short_s, 0.0) / (steps - 1)


def _rungs(engine: Any, settings: Settings, listener: Listener) -> dict[str, Any]:
    """Measure the decoders of `ladder`, each alternately with the base, which removes drifts of the box from their ratio.

    The ratio is of the least times of both, which a busy box disturbs least.
    """
    base = DecoderSettings.model_validate((engine.account.decoder or {}) | {"beam": settings.beam})
    src_len, n = min(SHARP_SRC_LEN, settings.max_src_len), QUICK_SHARP_ROUNDS if settings.mode == "quick" else SHARP_ROUNDS

    def step(decoder: DecoderSettings) -> dict[str, float]:
        stages = engine.stages_s(decoder, src_len=src_len, tgt_len=TIMED_STEPS)
        body_s = stages.prepare_s / SHARP_STEPS + stages.body_s / TIMED_STEPS
        parts_s = dict(zip(STAGES, (body_s, stages.product_s / TIMED_STEPS, stages.search_s / TIMED_STEPS), strict=True))
        return {"seconds": TIMED_STEPS * sum(parts_s.values()), "step_s": sum(parts_s.values()), **parts_s}

    ratios: dict[DecoderSettings, list[float]] = {}
    base_steps, left_out = list[pd.DataFrame](), list[str]()
    for variant in dict.fromkeys(ladder(base)):
        if variant == base:
            continue
        listener.say(f"decoder: {variant.describe()}")
        cases = {"base": partial(step, base), "variant": partial(step, variant)}
        frame = rounds(cases, n, SHARP_ENOUGH_S, name="decoder", again=False)
        if frame["seconds"].isna().any():
            left_out.append(f"{variant.describe()}: out of memory")
            continue
        ours, theirs = (frame[frame["case"] == case] for case in ("variant", "base"))
        ratios[variant] = (ours.nsmallest(1, "step_s")[list(STAGES)].iloc[0] / theirs["step_s"].min()).tolist()
        base_steps.append(theirs[list(STAGES)])
    if not base_steps:
        return {"base": base, "variants": []}
    base_s = pd.concat(base_steps).median().tolist()
    variants = [DecoderVariant.of(base, 1, *base_s)]
    variants += [DecoderVariant.of(decoder, 1, *(sum(base_s) * part for part in ratio)) for decoder, ratio in ratios.items()]
    notes = ["work done once per sentence is in the body, shared by its steps"]
    if settings.text is not None:
        from simnmt.calibrate.sharp_agreement import noise_agreement  # only this needs torch

        listener.say("decoder: agreement")
        text, noisy = Path(settings.text), [variant.settings for variant in variants if variant.settings.noise]
        agreements = noise_agreement(settings.model, text, noisy, base.beam)
        shares = {variant: agreement.share for variant, agreement in agreements.items()}
        variants = [variant.model_copy(update={"agreement": shares.get(variant.settings)}) for variant in variants]
        one = agreements[noisy[0]]
        notes.append(f"agreement: {one.tokens:,} words of {one.sentences:,} sentences of {text.name}, candidates aside")
    facts = {"base": base, "src_len": src_len, "repeats": sum(map(len, base_steps)) // len(ratios)}
    return facts | {"variants": variants, "left_out": left_out, "notes": notes}


def ladder(base: DecoderSettings) -> Iterator[DecoderSettings]:
    """Yield the base, the rungs of SHARP-11 one on top of another and fused, the paper's table, and both ends at other beams.

    Kept embeddings of frequent words are not measured: their hits depend on a text, and there is none here.
    """
    rungs = paper_ladder(base, embeddings="precomputed")
    rungs["fused"] = rungs["merge"].model_copy(update={"fused": True})
    yield from rungs.values()
    yield rungs["attention"].model_copy(update={"activations": "table"})
    for beam in BEAMS:
        yield base.model_copy(update={"beam": beam})
        yield rungs["fused"].model_copy(update={"beam": beam})


def _batches(settings: Settings, most: int) -> list[int]:
    """Return powers of two and the largest batch, so that no cost is extrapolated."""
    sizes = QUICK_BATCHES if settings.mode == "quick" else [1 << power for power in range(most.bit_length())]
    largest = min(most, batches(settings)[-1])
    return sorted({size for size in sizes if size < largest} | {1, largest})


def cases(bench: Bench) -> Cases:
    """Return all variants as one case: each of them alternates with the base by itself, since both must fit into memory."""

    def variants() -> dict[str, Any]:
        block, remarks = decoder_block(bench.engine, bench.settings, bench.most_batch, bench.listener)
        return {"block": None if block is None else block.model_dump_json(), "remarks": remarks}

    return {"variants": Case(variants, prepare=nothing)}


def fit(frame: pd.DataFrame, bench: Bench) -> Blocks:
    content = frame["block"].iloc[0]
    bench.remarks += frame["remarks"].iloc[0]
    return {"decoder": None if content is None else DecoderBlock.model_validate_json(content)}


PARTS = (Part("decoder", ("decoder",), cases, fit, order=7, apart=lambda settings: True, decoder_only=False),)
