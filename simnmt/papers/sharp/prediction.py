"""Predict the sharp decoder's speed-ups by counting operations at measured rates (SHARP-11, SHARP-13, SHARP-15, XP-07).

A word costs its products at their measured rate, those over the source states at the rate of one row, attention's sums at the
rate of float32, activations at theirs, and a remainder: what the baseline takes beyond these. Each rung of the ladder changes
one or two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simnmt.papers.kit.amdahl import end_to_end

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_speeds import DecoderTime, ProductTime, SharpSpeeds


def product_share(speeds: SharpSpeeds) -> float:
    """Of the baseline's time in products by weights, at the packed float32 product's rate.

    Above 1 where products alone ran slower than in the decoder: then nothing is foretold by it.
    """
    baseline = speeds.ladder["polynomial"][0]
    return _products_s(speeds, baseline) / baseline.word_s


def predicted_ladder(speeds: SharpSpeeds, ladder: Sequence[DecoderTime]) -> list[float]:
    """Of each rung, times as fast as the baseline."""

    def counted_s(each: DecoderTime) -> float:
        return (
            _products_s(speeds, each)
            + each.attention * _multiply_add_s(_of_rows(speeds, speeds.setting.beam, cold=False), "float32")
            + each.activations * speeds.activation_s[each.settings.activations]
        )

    baseline = ladder[0]
    # Counted operations are never all that is done; where they come out above what was measured, nothing else is left.
    rest_s = max(baseline.word_s - counted_s(baseline), 0.0)
    return [(counted_s(baseline) + rest_s) / (counted_s(each) + rest_s) for each in ladder]


def product_gain(speeds: SharpSpeeds) -> float:
    """The second rung's products over the baseline's, by measured rates."""
    baseline, int16, *_ = speeds.ladder["polynomial"]
    return _products_s(speeds, baseline) / _products_s(speeds, int16)


def predicted_int16(speeds: SharpSpeeds) -> float | None:
    """Amdahl alone, of the second rung: the product's share and its speed-up (XP-07); None where the share is above 1."""
    share = product_share(speeds)
    return end_to_end(share, product_gain(speeds)) if share <= 1.0 else None


def predicted_over(own: DecoderTime, other: DecoderTime) -> float:
    """Times as fast as another system, by multiply-adds alone."""
    return other.multiply_adds / own.multiply_adds


def _products_s(speeds: SharpSpeeds, each: DecoderTime) -> float:
    """A word's products at the rate of weights from memory, or from the cache where it holds all of them.

    A source layer's state weights are read once a position and stay in the cache meanwhile.
    """
    name, size = ("int16", 2) if each.settings.gemm == "int16" else ("float32", 4)
    beam = each.settings.beam
    cold = size * each.products / beam > speeds.cache_bytes
    return each.products * _multiply_add_s(_of_rows(speeds, beam, cold=cold), name) + each.source_recurrent * _multiply_add_s(
        _of_rows(speeds, 1, cold=False), name
    )


def _of_rows(speeds: SharpSpeeds, rows: int, *, cold: bool) -> ProductTime:
    """The measured product whose number of rows is nearest."""
    return min((each for each in speeds.products if each.cold == cold), key=lambda each: abs(each.batch - rows))


def _multiply_add_s(found: ProductTime, name: str) -> float:
    return found.median_s(name) / (found.batch * found.size**2)
