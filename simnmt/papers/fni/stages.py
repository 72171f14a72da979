"""The fused output layer on a device: stage seconds over a test set, and speeds with and without it (FNI-15, 16, 17)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from simnmt.devices.batch import decode_all
from simnmt.papers.fni.devices import FusedDecoder
from simnmt.papers.fni.offline import BY_KEY, Gain, Speed, gain, lengths_of, speed
from simnmt.papers.fni.published import OutputTimes
from simnmt.papers.kit.claim import end_to_end
from simnmt.profile.profile_variant import DecoderChoice
from simnmt.results.device_accounts import BatchAccount

STRATEGY = "maxi"
"""The paper's setting: mini-batches of 128 cut from maxi-batches of 1,280."""
STRATEGIES = ("mini", "half-empty", "maxi", "maxi half-empty")
"""The paper's baseline, its choice of top-up (half-empty), and both on top of maxi-batching."""

Key = tuple[str, int, str, str, bool]
"""Device, beam, set, strategy, fused."""
Speeds = Mapping[Key, Speed]


@dataclass(frozen=True, slots=True)
class SetStages:
    """Seconds of one test set decoded by one device with one beam, of one seed."""

    layer: OutputTimes
    encode_s: float
    refill_s: float
    body_s: float
    """Decode steps and their gaps without the output layer."""

    @property
    def total_s(self) -> float:
        """Seconds without the fused kernel."""
        return self.encode_s + self.refill_s + self.body_s + self.layer.product_s + self.layer.three_s

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the total without the fused kernel, which sum to 1 (figures 1 and 5)."""
        parts = {
            "encoder": self.encode_s + self.refill_s,
            "decoder without output layer": self.body_s,
            "product": self.layer.product_s,
            "bias, softmax, search": self.layer.three_s,
        }
        return {name: seconds / self.total_s for name, seconds in parts.items()}

    @property
    def output_share(self) -> float:
        """Share of the whole output layer."""
        return (self.layer.product_s + self.layer.three_s) / self.total_s

    @property
    def predicted(self) -> float:
        """Amdahl's speed-up of the whole, with the product as measured beside the fused kernel (XP-07)."""
        return end_to_end(self.output_share, self.layer.layer_ratio)

    @property
    def predicted_product_left_alone(self) -> float:
        """Amdahl's speed-up with the product unchanged, as in the paper: the gain of fusing alone."""
        return end_to_end(self.layer.three_s / self.total_s, self.layer.ratio)


def stages(decoder: FusedDecoder, test_set: str, seed: int, sentences: int | None = None) -> SetStages:
    """Return stage seconds of one set: seconds at each batch size times the steps with so many sentences active.

    Shares of a step are those of the decoder's variants, which were measured side by side; the level is that of the
    calibrated steps, so a step without its output layer never takes less than 0 s.
    """
    batching = BY_KEY[STRATEGY].batching(decoder.plain.batch, inf)
    account = decode_all(batching, decoder.plain.cost, *lengths_of(test_set, seed, sentences)).account
    plain, fused = decoder.plain_choice, decoder.fused_choice
    product_s, three_s = (over_steps(plain, stage, plain, account) for stage in ("product_s", "search_s"))
    product_fused_s, fused_s = (over_steps(fused, stage, plain, account) for stage in ("product_s", "search_s"))
    case = decoder.device, decoder.fused.shown_kind, test_set, decoder.beam
    return SetStages(
        OutputTimes(*case, product_s, product_fused_s, three_s, fused_s, fused.exact),
        account.encode_s,
        account.refill_s,
        float(account.step_s.sum()) - product_s - three_s,
    )


def over_steps(choice: DecoderChoice, stage: str, of: DecoderChoice, account: BatchAccount) -> float:
    """Return seconds of a stage over all steps: the share of `of`'s step at each size, times the seconds of those steps.

    Shares are interpolated linearly between the measured batch sizes.
    """
    share = _at(account.size, choice, stage) / _at(account.size, of, "step_s")
    return float(np.dot(account.step_s, share))


def _at(size: int, choice: DecoderChoice, part: str) -> NDArray[np.float64]:
    """Return seconds of a part of a step at 0..`size` sentences."""
    batches, seconds = [step.batch for step in choice.steps], [getattr(step.variant, part) for step in choice.steps]
    part_s: NDArray[np.float64] = np.interp(np.arange(size + 1), batches, seconds)
    return part_s


def speeds(decoder: FusedDecoder, test_set: str, seeds: Sequence[int], sentences: int | None = None) -> dict[Key, Speed]:
    """Return the speed of each strategy with and without the fused kernel, on the same sentences."""
    return {
        (decoder.device, decoder.beam, test_set, strategy, fused): speed(
            decoder.decoder(fused), test_set, strategy, seeds, sentences
        )
        for strategy in STRATEGIES
        for fused in (False, True)
    }


def over_plain(speed_by_key: Speeds, key: Key) -> Gain:
    """Return the gain of one speed over mini- or maxi-batching without the fused kernel."""
    device, beam, test_set, strategy, _ = key
    return gain(speed_by_key[key], speed_by_key[device, beam, test_set, BY_KEY[strategy].baseline, False])
