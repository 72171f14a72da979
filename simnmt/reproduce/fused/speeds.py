"""All sentences at hand, fused or not and topped up or not: figures 3, 4, 9 and 10 (FNI-16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simnmt.reproduce.fused.devices import FusedDecoder
from simnmt.reproduce.topup.speeds import Gain, Speed, gain, speed

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
    """What one device gains on one set with one beam; each over its own kind of batch without the fused kernel."""

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


def gains(found: Speeds, device: str, beam: int, test_set: str) -> Gains:
    """Of one device, beam and set."""

    def of(strategy: str, fused: bool, over: str) -> Gain:
        return gain(found[device, beam, test_set, strategy, fused], found[device, beam, test_set, over, False])

    return Gains(
        of("mini", True, "mini"),
        of("half-empty", False, "mini"),
        of("half-empty", True, "mini"),
        of("maxi", True, "maxi"),
        of("maxi half-empty", False, "maxi"),
        of("maxi half-empty", True, "maxi"),
    )
