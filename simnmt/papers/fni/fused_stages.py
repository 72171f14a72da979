"""The fused output layer on a device: stage seconds over a test set, and speeds with and without it (FNI-15, 16, 17)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.papers.fni.devices import FusedDecoder
from simnmt.papers.fni.offline import BY_KEY, Gain, Speed, gain, lengths_of, speed
from simnmt.papers.kit.amdahl import end_to_end
from simnmt.profile.profile_variant import DecoderChoice
from simnmt.results.device_accounts import BatchAccount
from simnmt.world.batch_pool import decode_all

STRATEGY = "maxi"
"""The paper's setting: mini-batches of 128 cut from maxi-batches of 1,280."""


@dataclass(frozen=True, slots=True)
class SetStages:
    """One test set decoded by one device with one beam; seconds of one seed."""

    device: str
    beam: int
    test_set: str
    encode_s: float
    refill_s: float
    body_s: float
    """Decode steps and their gaps without the output layer."""
    product_s: float
    three_s: float
    """Bias, softmax and search, one after the other."""
    product_fused_s: float
    """The product again, as measured beside the fused kernel."""
    fused_s: float
    """Bias, softmax and search in one."""

    @property
    def total_s(self) -> float:
        """Without the fused kernel."""
        return self.encode_s + self.refill_s + self.body_s + self.product_s + self.three_s

    @property
    def shares(self) -> dict[str, float]:
        """Of the total, without the fused kernel: 1 together (figures 1 and 5)."""
        parts = {
            "encoder": self.encode_s + self.refill_s,
            "decoder without output layer": self.body_s,
            "product": self.product_s,
            "bias, softmax, search": self.three_s,
        }
        return {name: seconds / self.total_s for name, seconds in parts.items()}

    @property
    def output_share(self) -> float:
        """Of the whole output layer."""
        return (self.product_s + self.three_s) / self.total_s

    @property
    def ratio(self) -> float:
        """Of the three steps to the fused one."""
        return self.three_s / self.fused_s

    @property
    def layer_ratio(self) -> float:
        """Of the whole output layer."""
        return (self.product_s + self.three_s) / (self.product_fused_s + self.fused_s)

    @property
    def product_change(self) -> float:
        """Of the product's time, beside the fused kernel."""
        return self.product_fused_s / self.product_s - 1.0

    @property
    def predicted(self) -> float:
        """Amdahl: how many times as fast the whole should be, fused, with the product as taken beside it (XP-07)."""
        return end_to_end(self.output_share, self.layer_ratio)

    @property
    def predicted_product_left_alone(self) -> float:
        """The same were the product what it is without the fused kernel, as in the paper: what fusing alone gains."""
        return end_to_end(self.three_s / self.total_s, self.ratio)


def stages(decoder: FusedDecoder, test_set: str, seed: int, sentences: int | None = None) -> SetStages:
    """Return stage seconds of one set: seconds at each batch size times the steps with so many sentences active.

    Shares of a step are those of the decoder's variants, which were measured side by side; the level is that of the
    calibrated steps, so a step without its output layer never takes less than 0 s.
    """
    batching = BY_KEY[STRATEGY].of_size(decoder.batch)
    account = decode_all(batching, decoder.plain.cost, *lengths_of(test_set, seed, sentences)).account
    plain, fused = decoder.plain_choice, decoder.fused_choice
    product_s, three_s = (over_steps(plain, stage, plain, account) for stage in ("product_s", "search_s"))
    product_fused_s, fused_s = (over_steps(fused, stage, plain, account) for stage in ("product_s", "search_s"))
    return SetStages(
        device=decoder.device,
        beam=decoder.beam,
        test_set=test_set,
        encode_s=account.encode_s,
        refill_s=account.refill_s,
        body_s=float(account.step_s.sum()) - product_s - three_s,
        product_s=product_s,
        three_s=three_s,
        product_fused_s=product_fused_s,
        fused_s=fused_s,
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


STRATEGIES = ("mini", "half-empty", "maxi", "maxi half-empty")
"""The paper's baseline, what it tops up (half-empty, its choice), and both on top of maxi-batching."""

Key = tuple[str, int, str, str, bool]
"""Device, beam, set, strategy, fused."""
Speeds = Mapping[Key, Speed]


def speeds(decoder: FusedDecoder, test_set: str, seeds: Sequence[int], sentences: int | None = None) -> dict[Key, Speed]:
    """Each strategy with and without the fused kernel, on the same sentences."""
    return {
        (decoder.device, decoder.beam, test_set, strategy, fused): speed(
            decoder.decoder(fused), test_set, strategy, seeds, sentences
        )
        for strategy in STRATEGIES
        for fused in (False, True)
    }


@dataclass(frozen=True, slots=True)
class Gains:
    """Gains of one device on one set with one beam, each over the same kind of batch without the fused kernel."""

    fused: Gain
    """Fused over not, mini-batches."""
    topped_up: Gain
    both: Gain
    """Fused and topped up."""
    fused_maxi: Gain
    topped_up_maxi: Gain
    """With maxi-batching, over maxi-batching."""
    both_maxi: Gain

    @property
    def product(self) -> float:
        """What both would gain did neither hinder the other, without maxi-batching."""
        return (1.0 + self.fused.mean) * (1.0 + self.topped_up.mean) - 1.0


def gains(speed_by_key: Speeds, device: str, beam: int, test_set: str) -> Gains:
    """Return the gains of one device, beam and set."""

    def of(strategy: str, fused: bool, over: str) -> Gain:
        base = speed_by_key[device, beam, test_set, over, False]
        return gain(speed_by_key[device, beam, test_set, strategy, fused], base)

    return Gains(
        of("mini", True, "mini"),
        of("half-empty", False, "mini"),
        of("half-empty", True, "mini"),
        of("maxi", True, "maxi"),
        of("maxi half-empty", False, "maxi"),
        of("maxi half-empty", True, "maxi"),
    )
