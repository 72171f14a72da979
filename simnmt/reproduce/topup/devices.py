"""Which device profiles can tell of batches, and what a sentence with its beam costs on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt import shipped
from simnmt.costs import DeviceProfile, read_profile
from simnmt.costs.batch_cost import StepCost
from simnmt.costs.batch_decoding import DecodingCost, Sum
from simnmt.costs.profile_error import ProfileError
from simnmt.costs.surfaces import Surface
from simnmt.reproduce.topup.published import BATCH, BEAM

BEAMS = (1, BEAM)


@dataclass(frozen=True, slots=True)
class Decoder:
    """One device with one model and one beam."""

    device: str
    """The name of its profile of beam 1, or of the only one it has."""
    box: str
    model: str
    beam: int
    profile: str
    """Whose steps these are."""
    kind: str
    """How its steps are known: measured, inferred or synthetic."""
    cost: DecodingCost
    remarks: tuple[str, ...] = ()
    """What is extrapolated."""

    @property
    def extrapolated(self) -> bool:
        """Whether any of its numbers lies beyond what was measured."""
        return bool(self.remarks)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A surface over rows, asked by sentences of several hypotheses each."""

    surface: Surface
    rows: int

    def seconds(self, batch: ArrayLike, length: ArrayLike) -> NDArray[np.float64]:
        return self.surface.seconds(np.asarray(batch) * self.rows, length)

    def sum_s(self, batch: ArrayLike, first: ArrayLike, last: ArrayLike) -> NDArray[np.float64]:
        return self.surface.sum_s(np.asarray(batch) * self.rows, first, last)

    def at_batch(self, batch: float) -> Sum:
        return self.surface.at_batch(batch * self.rows)


def with_beam(cost: DecodingCost, beam: int) -> DecodingCost:
    """Costs of sentences with so many hypotheses, had every hypothesis the cost of a sentence of beam 1: what choosing among
    them takes is not in it. Encoding is one row a sentence in either case."""
    low, high = cost.step.batch_range
    step = StepCost(_Rows(cost.step.surface, beam), (max(low // beam, 1), high // beam), cost.step.position_range)
    return replace(
        cost,
        step=step,
        gap_s_per_sentence=cost.gap_s_per_sentence * beam,
        refill_s_per_sentence=cost.refill_s_per_sentence * beam,
        beam=beam,
    )


def shipped_profiles() -> list[DeviceProfile]:
    """All that come with simnmt, by name."""
    return [read_profile(shipped.find("calibration", name)) for name in shipped.names("calibration")]


def decoders(profiles: Sequence[DeviceProfile], batch: int = BATCH, beams: Sequence[int] = BEAMS) -> list[Decoder]:
    """Per device and model one for each beam that its profiles tell of; others' profiles are passed over.

    A beam without a profile of its own is made of the rows of beam 1, and says so.
    """
    groups: dict[tuple[str, ...], dict[int, tuple[DeviceProfile, DecodingCost]]] = {}
    for profile in profiles:
        try:
            cost = profile.decoding_cost
        except ProfileError:
            continue
        engine = profile.engine
        how = (engine.backend, engine.compute_type, str(sorted(engine.architecture.items()))) if engine else ()
        groups.setdefault((profile.device.name, profile.model.name, *how), {}).setdefault(cost.beam, (profile, cost))
    found = []
    for group in groups.values():
        first, plain = group[min(group)]
        for beam in beams:
            if beam in group:
                profile, cost = group[beam]
                remarks = []
            elif plain.beam == 1:
                profile, cost = first, with_beam(plain, beam)
                remarks = [f"beam {beam} from the steps of {beam} times as many sentences with beam 1"]
            else:
                continue
            if cost.step.batch_range[1] < batch:
                remarks.append(f"steps of more than {cost.step.batch_range[1]} sentences prolonged to {batch}")
            if cost.encoder.batch_range[1] < batch:
                remarks.append(f"encoding of more than {cost.encoder.batch_range[1]} sentences prolonged to {batch}")
            kind = profile.step.kind if profile.step else "synthetic"
            box, model = profile.device.name, profile.model.name
            found.append(Decoder(first.name, box, model, beam, profile.name, kind, cost, tuple(remarks)))
    return found
