"""Predict the sharp decoder's speed-ups by counting operations at measured rates (SHARP-11, SHARP-13, SHARP-15, XP-07).

The time of a word is the sum of its products by weights at their measured rate, its products over the source states at the
rate of one row, attention's sums at the rate of float32, activations at their rate, and a remainder: the baseline's time
beyond these parts. Each rung of the ladder changes one or two of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simnmt.papers.kit.claim import end_to_end

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_speeds import DecoderTime, ProductTime, SharpSpeeds


def product_share(speeds: SharpSpeeds) -> float:
    """Return the share of the baseline's time in products by weights, at the packed float32 product's rate.

    A share above 1 means that products alone ran slower than in the decoder, and predicts nothing.
    """
    baseline = speeds.ladder["polynomial"][0]
    return _products_s(speeds, baseline) / baseline.word_s


def predicted_ladder(speeds: SharpSpeeds, ladder: Sequence[DecoderTime]) -> list[float]:
    """Return the predicted speed-up of each rung over the baseline."""

    def counted_s(rung: DecoderTime) -> float:
        return (
            _products_s(speeds, rung)
            + rung.attention * _multiply_add_s(_nearest_product(speeds, speeds.setting.beam, cold=False), "float32")
            + rung.activations * speeds.activation_s[rung.settings.activations]
        )

    baseline = ladder[0]
    # Some operations are not counted; if the counted ones take longer than was measured, the remainder is 0.
    rest_s = max(baseline.word_s - counted_s(baseline), 0.0)
    return [(counted_s(baseline) + rest_s) / (counted_s(rung) + rest_s) for rung in ladder]


def product_gain(speeds: SharpSpeeds) -> float:
    """Return the speed-up of the second rung's products over the baseline's, by measured rates."""
    baseline, int16, *_ = speeds.ladder["polynomial"]
    return _products_s(speeds, baseline) / _products_s(speeds, int16)


def predicted_int16(speeds: SharpSpeeds) -> float | None:
    """Predict the second rung's speed-up by Amdahl's law from the products' share and speed-up (XP-07); None above share 1."""
    share = product_share(speeds)
    return end_to_end(share, product_gain(speeds)) if share <= 1.0 else None


def predicted_over(system: DecoderTime, other: DecoderTime) -> float:
    """Predict the speed-up of `system` over `other` by multiply-adds alone."""
    return other.multiply_adds / system.multiply_adds


def _products_s(speeds: SharpSpeeds, decoder: DecoderTime) -> float:
    """Return the seconds of a word's products, at the rate of the cache if it holds all weights, else of the memory."""
    name, size = ("int16", 2) if decoder.settings.gemm == "int16" else ("float32", 4)
    beam = decoder.settings.beam
    cold = size * decoder.products / beam > speeds.cache_bytes
    weights_s = decoder.products * _multiply_add_s(_nearest_product(speeds, beam, cold=cold), name)
    # The state weights of a source layer stay in the cache from one position to the next.
    return weights_s + decoder.source_recurrent * _multiply_add_s(_nearest_product(speeds, 1, cold=False), name)


def _nearest_product(speeds: SharpSpeeds, rows: int, *, cold: bool) -> ProductTime:
    return min((product for product in speeds.products if product.cold == cold), key=lambda product: abs(product.batch - rows))


def _multiply_add_s(product: ProductTime, name: str) -> float:
    return product.median_s(name) / (product.batch * product.size**2)
