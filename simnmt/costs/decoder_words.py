"""What a profile says of its decoder's variants: times, shares of the stages, fidelity, and how well composing tells them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from simnmt.costs.decoder_block import DecoderBlock, canonical
from simnmt.costs.decoder_composition import composition_error
from simnmt.costs.decoder_settings import DecoderSettings

if TYPE_CHECKING:
    from simnmt.costs.profile import DeviceProfile

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
    found += [(f"decoder {settings.words()}", "; ".join(_of(block, settings))) for settings in block.measured]
    found.append(("decoder composed", _composing(block)))
    if against := list(_against_step(profile, block)):
        found.append(
            ("decoder against step", f"measured steps of {block.base.words()} over step and gap: {', '.join(against)}")
        )
    found += [("decoder note", "; ".join(block.notes))] if block.notes else []
    found += [("decoder left out", "; ".join(block.left_out))] if block.left_out else []
    return found


def _of(block: DecoderBlock, settings: DecoderSettings) -> Iterator[str]:
    agreements = []
    for variant in block.variants:
        if variant.settings != settings:
            continue
        body, product, search = (round(100 * share) for share in variant.shares)
        # Rounded apart they might sum to 99 or 101.
        body = 100 - product - search
        shares = f"body {body} %, product {product} %, bias, softmax and search {search} %"
        base = block.at(variant.batch)[canonical(block.base)]
        times = "" if variant is base else f", {variant.step_s / base.step_s:.3g} times the base's"
        yield f"batch {variant.batch}: {1e3 * variant.step_s:.4g} ms{times} ({shares})"
        agreements += [] if variant.agreement is None else [variant.agreement]
    if settings.exact:
        yield "exact"
    else:
        yield f"{100 * min(agreements):.4g} % of tokens as the exact decoder's" if agreements else "agreement not measured"


def _composing(block: DecoderBlock) -> str:
    error = composition_error(block)
    if error is None:
        return "how well the effects of single options tell of combinations is not known: none follows from the others"
    judged = f"{error.judged} measured steps, each left out in turn"
    return f"off by {100 * error.mean:.3g} % on average, {100 * error.most:.3g} % at most, on {judged}"


def _against_step(profile: DeviceProfile, block: DecoderBlock) -> Iterator[str]:
    """Where both were measured alike, about 1: a variant moves costs by its difference to the base."""
    if profile.step is None or profile.encoder is None:
        return
    cost = profile.decoding_cost
    low, high = cost.step.position_range
    for batch in block.batches:
        if batch <= cost.step.batch_range[1]:
            told_s = cost.steps_at(batch)(low, high) / (high - low + 1)
            yield f"{block.at(batch)[canonical(block.base)].step_s / told_s:.3g} at batch {batch}"
