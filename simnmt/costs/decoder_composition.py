"""Times of a decoder variant that was not measured, from those that were: effects multiply within a stage, stages add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.decoder_block import STAGES, DecoderBlock, DecoderVariant
from simnmt.costs.decoder_settings import DecoderSettings

OPTIONS = ("beam", "fused", "gemm", "embeddings", "attention", "activations", "merge", "candidates", "vocabulary")
"""What may vary, each with a factor of its own on each stage."""
Measured = Mapping[DecoderSettings, DecoderVariant]
"""Variants at one batch size, by settings in canonical form."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Seconds of a decode step at one batch size."""

    body_s: float
    product_s: float
    search_s: float

    @property
    def layer_s(self) -> float:
        """Of the output layer."""
        return self.product_s + self.search_s

    @property
    def step_s(self) -> float:
        """All of them."""
        return self.body_s + self.product_s + self.search_s


@dataclass(frozen=True, slots=True)
class CompositionError:
    """What composing was wrong by on variants that were measured, each told from the others without it."""

    mean: float
    """Absolute, relative, of the whole step."""
    most: float
    judged: int
    """Variants at batch sizes that could be left out; of the others an option's effect would have been unknown."""
    beam: int | None = None
    """Of all that judged; None: of any."""

    def words(self) -> str:
        """`6.6 % on average, 16 % at most, on 17 measured steps of beam 6, each left out in turn`."""
        judged = f"{self.judged} measured step{'s' * (self.judged != 1)}{'' if self.beam is None else f' of beam {self.beam}'}"
        return f"{100 * self.mean:.3g} % on average, {100 * self.most:.3g} % at most, on {judged}, each left out in turn"


def value_of(settings: DecoderSettings, option: str) -> object:
    """Of an option; how many embeddings are kept belongs to keeping them, and a list of so many candidates is told by these."""
    own: object = getattr(settings, option)
    if option == "vocabulary" and settings.candidates is not None:
        return "full"
    return f"{own} {settings.frequent_words}" if own == "frequent" else own


def composed(measured: Measured, settings: DecoderSettings) -> Stages | None:
    """The stages of a variant by least squares of the logarithms over those measured; None where they do not determine it.

    The model of each stage: a level, times one factor for each option that is not as in the first variant. A target is
    determined where its row is a combination of the rows that were measured. Variants of the wanted beam alone are fitted
    where they determine it: with more hypotheses the same technique pays more, or less.
    """
    of_the_beam = {other: its for other, its in measured.items() if other.beam == settings.beam}
    return _fitted(of_the_beam, settings) or _fitted(measured, settings)


def _fitted(measured: Measured, settings: DecoderSettings) -> Stages | None:
    weights = _weights(list(measured), settings)
    if weights is None:
        return None
    logarithms = np.log([[getattr(each, stage) for stage in STAGES] for each in measured.values()])
    body_s, product_s, search_s = np.exp(weights @ logarithms).tolist()
    return Stages(body_s, product_s, search_s)


def composition_error(block: DecoderBlock, beam: int | None = None) -> CompositionError | None:
    """Over the variants and batch sizes of a block, each left out in turn; None where none can be. `beam`: of these alone."""
    off = [error for batch in block.batches for error in _errors(block.at(batch), beam)]
    return CompositionError(float(np.mean(off)), max(off), len(off), beam) if off else None


def _errors(measured: Measured, beam: int | None) -> Iterator[float]:
    for settings, variant in measured.items():
        if beam not in (None, settings.beam):
            continue
        told = composed({other: its for other, its in measured.items() if other != settings}, settings)
        if told is not None:
            yield abs(told.step_s / variant.step_s - 1.0)


def _weights(measured: Sequence[DecoderSettings], wanted: DecoderSettings) -> NDArray[np.float64] | None:
    """What each measured variant's logarithm counts for; the least squares of least norm."""
    if not measured:
        return None
    effects = dict.fromkeys(
        (option, value_of(settings, option))
        for settings in measured
        for option in OPTIONS
        if value_of(settings, option) != value_of(measured[0], option)
    )
    for option in OPTIONS:
        value = value_of(wanted, option)
        if value != value_of(measured[0], option) and (option, value) not in effects:
            return None

    def row(settings: DecoderSettings) -> list[float]:
        return [1.0, *(float(value_of(settings, option) == value) for option, value in effects)]

    design, target = np.array([row(each) for each in measured]), np.array(row(wanted))
    weights: NDArray[np.float64] = np.linalg.lstsq(design.T, target, rcond=None)[0]
    return weights if np.allclose(design.T @ weights, target, atol=1e-9) else None
