"""What a profile says of its decoder's variants: times, shares of the stages, fidelity, and how well composing tells them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from simnmt.costs.decoder_block import DecoderBlock, canonical
from simnmt.costs.decoder_composition import composition_error
from simnmt.costs.decoder_fidelity import fidelity_words, rounding_of
from simnmt.costs.decoder_settings import DecoderSettings

if TYPE_CHECKING:
    from simnmt.costs.profile import DeviceProfile

FIRST_STEPS = 12
"""Positions at which variants are measured: those of short translations."""
Facts = list[tuple[str, str]]


def decoder_facts(profile: DeviceProfile) -> Facts:
    """(what, how much): each variant by batch size with the shares of its stages, which sum to 100 % (FNI-17)."""
    block = profile.decoder
    if block is None:
        return []
    batches = ", ".join(map(str, block.batches))
    said = [f"{block.kind}: {len(block.measured)} variants, batch {batches}"]
    said += [] if block.repeats is None else [f"{block.repeats} timings each, taken in turn"]
    said += [] if block.src_len is None else [f"under sources of {block.src_len} tokens"]
    found = [("decoder", f"{', '.join(said)}; the other costs are of {block.base.words()}")]
    compute_type = None if profile.engine is None else profile.engine.compute_type
    found += [(f"decoder {each.words()}", "; ".join(_of(block, each, compute_type))) for each in block.measured]
    found.append(("decoder composed", _composing(block)))
    if against := against_step(profile):
        told = ", ".join(f"{ratio:.3g} at batch {batch}" for batch, ratio in against.items())
        found.append(("decoder against step", f"measured steps of {block.base.words()} over step and gap: {told}"))
    found += [("decoder note", "; ".join(block.notes))] if block.notes else []
    found += [("decoder left out", "; ".join(block.left_out))] if block.left_out else []
    return found


def _of(block: DecoderBlock, settings: DecoderSettings, compute_type: str | None) -> Iterator[str]:
    known: dict[str, list[float]] = {"agreement": [], "identical": [], "likeliest_active": []}
    for variant in block.variants:
        if variant.settings != settings:
            continue
        body, product, search = (round(100 * share) for share in variant.shares)
        # Rounded apart they might sum to 99 or 101.
        body = 100 - product - search
        shares = f"body {body} %, product {product} %, bias, softmax and search {search} %"
        base = block.at(variant.batch)[canonical(block.base)]
        times = "" if variant is base else f", {variant.step_s / base.step_s:.3g} times the base's"
        active = "" if variant.active is None else f", {variant.active.words()}"
        yield f"batch {variant.batch}: {1e3 * variant.step_s:.4g} ms{times} ({shares}){active}"
        for name, own in known.items():
            own += [] if (share := getattr(variant, name)) is None else [share]
    yield fidelity_words(
        settings,
        min(known["agreement"], default=None),
        rounding=rounding_of(settings, compute_type),
        identical=min(known["identical"], default=None),
        likeliest_active=min(known["likeliest_active"], default=None),
    )


def _composing(block: DecoderBlock) -> str:
    error = composition_error(block)
    if error is None:
        return "how well the effects of single options tell of combinations is not known: none follows from the others"
    return f"off by {error.words()}"


def against_step(profile: DeviceProfile) -> dict[int, float]:
    """By batch size, the measured step of the base over what step and gap tell; about 1 where both were measured alike.

    A variant moves costs by its ratio to the base, which a slower box changes little; far from 1 more than the pace may differ.
    """
    block = profile.decoder
    if block is None or profile.step is None or profile.encoder is None:
        return {}
    cost = profile.of_forced_lengths.decoding_cost
    last = min(FIRST_STEPS, cost.step.position_range[1])
    # Of the usual step, as the variants are.
    told_s = {
        batch: float(cost.step.steps_s(batch, 0, last)) / (last + 1) + cost.gap_s(batch)
        for batch in block.batches
        if batch <= cost.step.batch_range[1]
    }
    return {batch: block.at(batch)[canonical(block.base)].step_s / step_s for batch, step_s in told_s.items()}
