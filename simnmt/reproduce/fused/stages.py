"""Tables 2 and 3 on a device: seconds of each stage of the output layer over a whole test set, and shares (FNI-15, FNI-17)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.decoder_choice import DecoderChoice
from simnmt.reproduce.amdahl import end_to_end
from simnmt.reproduce.fused.devices import FusedDecoder
from simnmt.reproduce.topup.occupancies import lengths_of
from simnmt.reproduce.topup.strategies import BY_KEY
from simnmt.results.batches import BatchAccount
from simnmt.world.decode_all import decode_all

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
    """Stage seconds at each batch size times the steps that have so many active.

    Shares are those of the decoder's variants, which were measured side by side; the level is that of the calibrated steps,
    which the sentences take. What a step takes beside its output layer is thus never below 0, however both were measured.
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
    """Seconds of a stage over all steps: at each size its share of the steps `of` that variant, times what these take.

    Between the batch sizes that were measured stages and steps are on a line.
    """
    share = _at(account.size, choice, stage) / _at(account.size, of, "step_s")
    return float(np.dot(account.step_s, share))


def _at(size: int, choice: DecoderChoice, part: str) -> NDArray[np.float64]:
    """Seconds of a part of a step at 0..`size` sentences."""
    batches, seconds = [each.batch for each in choice.steps], [getattr(each.own, part) for each in choice.steps]
    found: NDArray[np.float64] = np.interp(np.arange(size + 1), batches, seconds)
    return found
