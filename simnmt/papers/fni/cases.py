"""Judge a claim on a device case by case, a beam and a test set each; the worst decided case counts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from simnmt.papers.fni.devices import Decoder
from simnmt.papers.fni.published import SETS, case_name
from simnmt.papers.fni.simulation import LEAST_BATCHES, Gain, Key, gain
from simnmt.papers.kit.claims import Effect, Facts, Result, Undecided

KINDS = ("synthetic", "published", "inferred", "measured")
"""Origins of figures, the least certain first."""
Case = tuple[str, Effect]
"""Our figures as text, and the effect that decides."""


@dataclass(frozen=True)
class DeviceFacts(Facts):
    """The speeds of one device, by which claims are judged."""

    decoders: Sequence[Decoder]
    """By beam; of a fused output layer the plain ones."""
    timed: pd.DataFrame
    """See `simulation.by_key`."""
    sentences: int | None = None
    """Most sentences timed per set; None: the paper's."""

    @property
    def device(self) -> str:  # type: ignore[override]
        """Name of the device."""
        return self.decoders[0].device

    @property
    def basis(self) -> str:  # type: ignore[override]
        """Origin of the least certain step costs."""
        return min((decoder.kind for decoder in self.decoders), key=KINDS.index)

    def gain(self, beam: int, test_set: str, ours: str, theirs: str, *fused: bool) -> Gain:
        """Return the gain of one strategy over another; `fused`: whether each of them has a fused output layer."""
        keys: list[Key] = [
            (self.device, beam, test_set, strategy, is_fused)
            for strategy, is_fused in zip((ours, theirs), fused or (False, False), strict=True)
        ]
        return gain(self.timed, *keys)

    def undecided(self, decoder: Decoder, test_set: str, *, costs: bool = True, refills: bool = True) -> Undecided | None:
        """Return the reason why speeds on a set decide no verdict; None if they do.

        Args:
            decoder: the device with its beam.
            test_set: key of the set.
            costs: False: outputs beyond the last measured step are no reason.
            refills: the speeds depend on the cost of refills.
        """
        if costs and decoder.extrapolates(test_set):
            return Undecided("extrapolated")
        if refills and not decoder.refills_known:
            return Undecided("without the cost of refills and of the gaps between steps, which was not measured")
        if self.sentences is not None and self.sentences < LEAST_BATCHES * decoder.batch:
            return Undecided(f"of fewer than {LEAST_BATCHES} batches")
        return None

    def by_case(
        self,
        judge: Callable[[int, str], Case],
        sets: Iterable[str] = tuple(SETS),
        beams: Collection[int] = (),
        undecided: Callable[[Decoder, str], Undecided | None] = lambda decoder, test_set: None,
        why: str = "",
    ) -> Result:
        """Return the result over all beams and sets; `beams`: those that count, empty: all."""
        pairs = [(decoder, key) for decoder in self.decoders if not beams or decoder.beam in beams for key in sets]
        judged = {case_name(decoder.beam, key): judge(decoder.beam, key) for decoder, key in pairs}
        reasons = {case_name(decoder.beam, key): reason for decoder, key in pairs if (reason := undecided(decoder, key))}
        return result_of(judged, reasons, why)


def result_of(judged: Mapping[str, Case], reasons: Mapping[str, Undecided], why: str = "") -> Result:
    """Return the result of cases by name, of which those with a reason are undecided."""
    if not judged:
        raise Undecided("nothing that could decide it was measured")
    ours = "; ".join(f"{name}: {text}" for name, (text, _) in judged.items() if name not in reasons)
    effects = {name: reasons.get(name, effect) for name, (_, effect) in judged.items()}
    return Result(effects, ours, why)
