"""What one server's work takes: encoding, joining, and the steps of a batch with the gaps between them (FNI-18, XP-01)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.costs.batch_cost import EncoderCost, StepCost

Sum = Callable[[int, int], float]


@dataclass(frozen=True, slots=True)
class DecodingCost:
    """Seconds of what a server that batches does. Of all batches a row is a sentence with all of its hypotheses.

    The step at position p is the one that is taken when p tokens are out; in a batch whose sentences joined at different
    times the position is that of the sentence that has been active longest. Beyond what was measured, costs are
    extrapolated as `StepCost` and `EncoderCost` do; `most_batch` tells from where on.
    """

    step: StepCost
    """Of the usual step."""
    encoder: EncoderCost
    mean_over_usual: float = 1.0
    """What steps take on the average over what the usual one takes: what a server needs in all is a sum, which now and then
    has a much longer step in it."""
    gap_s_fixed: float = 0.0
    """Between two steps: choosing tokens, bookkeeping."""
    gap_s_per_sentence: float = 0.0
    refill_s_fixed: float = 0.0
    """Of joining a batch, whatever the number that joins."""
    refill_s_per_sentence: float = 0.0
    """Of joining it and, once done, of being dropped."""
    leave_s: float = 0.0
    """Added to a step at whose end some sentence is done, whatever their number: dropping them, before anything else."""
    packs: bool = False
    """The encoder is given packed sequences (recurrent); else all are as long as the longest."""
    padding_share: float = 0.0
    """Share of the padding's cost that an encoder pays all the same which is given packed sequences."""
    beam: int = 1
    """Hypotheses of each sentence with which the steps were measured."""
    src_len: int | None = None
    """Source tokens of the longest sentence of a batch, on which attention's part of a step rests; None: not known."""
    s_per_row_src_token: float = 0.0
    """What one more of them adds to a step for each sentence."""
    _encoders: dict[int, Sum] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Seconds by source length, one entry a batch size that was asked for."""

    @property
    def most_batch(self) -> int:
        """The largest batch with which both steps and encoder were measured."""
        return min(self.step.batch_range[1], self.encoder.batch_range[1])

    def source_s(self, batch: int, longest: int) -> float:
        """What is added to each step of so many sentences where the longest source under way has `longest` tokens.

        Steps were measured with sentences that are all alike, of `src_len` tokens, and the decoder attends to padding too: for
        shorter sources it is below 0, though a step keeps half of its time at least. 0 where it was not measured.
        """
        if self.src_len is None or not self.s_per_row_src_token:
            return 0.0
        more_s = self.s_per_row_src_token * batch * (longest - self.src_len)
        return more_s if more_s >= 0.0 else max(more_s, -0.5 * self.steps_at(batch)(0, 0))

    def gap_s(self, batch: int) -> float:
        """What each step of so many sentences takes beside the model."""
        return self.gap_s_fixed + self.gap_s_per_sentence * batch

    def steps_at(self, batch: int) -> Sum:
        """Seconds of the steps at positions first..last, both included, and of their gaps, at a constant batch.

        A closed form on plain numbers, 0 where last < first: what a server holds per batch size.
        """
        usual_s, times, gap_s = self.step.at_batch(batch), self.mean_over_usual, self.gap_s(batch)

        def with_gaps(first: int, last: int) -> float:
            return times * usual_s(first, last) + (last - first + 1) * gap_s if last >= first else 0.0

        return with_gaps

    def encode_s(self, src_lens: Sequence[int]) -> float:
        """One call of the encoder for sentences of these source lengths; 0 for none.

        Packed, the batch shrinks as sentences end: the shortest's length at the whole batch, then up to each next length what
        that many more tokens cost the batch that is left; and of what padding would cost beyond that, `padding_share`.
        """
        if not src_lens:
            return 0.0
        left, longest = len(src_lens), max(src_lens)
        padded_s = self._encoder(left)(longest, longest)
        if not self.packs or left == 1:
            return padded_s
        total_s, before = 0.0, None
        for length, alike in groupby(sorted(src_lens)):
            seconds = self._encoder(left)
            at = seconds(length, length)
            # Noise of neighbouring cells must not make a longer sentence cheaper.
            total_s += at if before is None else max(at - seconds(before, before), 0.0)
            before, left = length, left - sum(1 for _ in alike)
        return total_s + self.padding_share * max(padded_s - total_s, 0.0)

    def refill_s(self, joining: int) -> float:
        """So many encoded sentences join what is active; 0 for none."""
        return self.refill_s_fixed + self.refill_s_per_sentence * joining if joining > 0 else 0.0

    def solo_s(self, src_len: ArrayLike, tgt_len: ArrayLike) -> NDArray[np.float64]:
        """One sentence alone in the server: encoded, joined, decoded at batch 1 and dropped; broadcasts over its arguments."""
        src, tgt = np.asarray(src_len, np.float64), np.asarray(tgt_len, np.float64)
        besides_s = np.maximum(tgt, 0.0) * (self.gap_s(1) + self._sources_s(src)) + np.where(tgt > 0.0, self.leave_s, 0.0)
        steps_s = self.mean_over_usual * self.step.steps_s(1, 0, tgt - 1.0)
        return self.encoder.seconds(1, src) + self.refill_s(1) + steps_s + besides_s

    def __reduce__(self) -> tuple[Any, ...]:
        # What is remembered of the encoder are closures, which cannot be pickled.
        return type(self), tuple(getattr(self, each.name) for each in fields(self) if each.init)

    def _sources_s(self, src_len: NDArray[np.float64]) -> NDArray[np.float64]:
        """`source_s` of batches of one."""
        if self.src_len is None:
            return np.zeros_like(src_len)
        return np.maximum(self.s_per_row_src_token * (src_len - self.src_len), -0.5 * self.steps_at(1)(0, 0))

    def _encoder(self, batch: int) -> Sum:
        known = self._encoders.get(batch)
        if known is None:
            known = self._encoders[batch] = self.encoder.surface.at_batch(batch)
        return known
