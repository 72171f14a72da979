"""How far a decoder's translations are those of the exact one: what was measured, and how it is said (XP-03, SHARP-10)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Literal

from simnmt.costs.decoder_block import DecoderBlock, DecoderVariant
from simnmt.costs.decoder_settings import DecoderSettings

EXACT_TYPE = "float32"
"""Of engines; any other rounds what this one tells."""


def fidelity_words(
    settings: DecoderSettings,
    agreement: float | None,
    *,
    rounding: str | None = None,
    multiplied: bool = False,
    identical: float | None = None,
    likeliest_active: float | None = None,
) -> str:
    """`exact`, or how many tokens agree, or that this was not measured; a type that rounds and a candidate list apart.

    `multiplied`: the agreement is the product of those of single techniques; `identical`: share of whole sentences;
    `likeliest_active`: of steps, of a restricted vocabulary, which is no agreement of tokens.
    """
    sentences = "" if identical is None else f", {_percent(identical)} of sentences"
    if not settings.noise:
        told = "exact" if rounding is None else f"exact but for rounding in {rounding}"
    else:
        if agreement is None and likeliest_active is not None:
            told = f"likeliest token of all active in {_percent(likeliest_active)} of its own steps"
            told += sentences and f"{sentences} as the exact decoder's"
        elif agreement is None:
            told = f"not exact ({', '.join(settings.noise)}), agreement not measured"
        else:
            told = f"{_percent(agreement)} of tokens as the exact decoder's"
            told += ", its techniques' agreements multiplied" if multiplied else ""
            told += sentences
        told += "" if rounding is None else f", rounding in {rounding} aside"
    return told if settings.candidates is None else f"{told}, among its candidates"


def rounding_of(settings: DecoderSettings, compute_type: str | None) -> str | None:
    """The engine's type where the decoder's products are in it and it is not float32."""
    return None if settings.gemm is not None or compute_type in (None, EXACT_TYPE) else compute_type


def agreement_of(block: DecoderBlock, wanted: DecoderSettings) -> tuple[float | None, bool]:
    """As measured, at its worst; else the product of the techniques' own, and that it is one. Identities change none of it."""
    if not wanted.noise:
        return None, False
    noise = _noise(wanted)
    if (together := _worst(block, noise)) is not None:
        return together, False
    alone = [_worst(block, [each]) for each in noise]
    known = [each for each in alone if each is not None]
    return (prod(known), True) if len(known) == len(alone) else (None, False)


def worst_of(block: DecoderBlock, wanted: DecoderSettings, share: Literal["identical", "likeliest_active"]) -> float | None:
    """A share at its worst over batch sizes; None where it was not measured of just this: what a beam finds is its own."""
    alike = (each for each in _rounding_so(block, _noise(wanted)) if each.settings.beam == wanted.beam)
    return min((own for each in alike if (own := getattr(each, share)) is not None), default=None)


def _worst(block: DecoderBlock, noise: list[tuple[str, object]]) -> float | None:
    """Of the variants that round so and not otherwise."""
    return min((each.agreement for each in _rounding_so(block, noise) if each.agreement is not None), default=None)


def _rounding_so(block: DecoderBlock, noise: list[tuple[str, object]]) -> Iterator[DecoderVariant]:
    return (each for each in block.variants if _noise(each.settings) == noise)


def _noise(settings: DecoderSettings) -> list[tuple[str, object]]:
    """The options that round, and their values."""
    return [(option, getattr(settings, option)) for option in settings.noise]


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %" if share > 0.99 else f"{100 * share:.3g} %"
