"""Device profiles with batched decoding, plain and with a fused output layer, and why their figures decide no verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from simnmt.base import shipped_files
from simnmt.papers.kit.paper import read_paper
from simnmt.papers.kit.study import read_distinct
from simnmt.profile.blocks import ProfileError
from simnmt.profile.cost import DecodingCost
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile, read_profile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.profile_variant import DecoderChoice, with_decoder
from simnmt.results.run import group_doubts

TOPUP, FUSED = read_paper("topup"), read_paper("fused")
BATCH, COLLECTED, BEAM, VOCAB = (TOPUP[name] for name in ("batch", "collected", "beam", "vocab"))
SETS = {row["set"]: SimpleNamespace(**row) for row in TOPUP.table("table-1").rows}
"""Table 1 by set: name, sentences, subwords, and their mean and standard deviation a sentence."""
BEAMS = (1, BEAM)
LONG_OUTPUT = {"europarl": 100, "opensubtitles": 40}
"""Tokens of a long output. About one sentence in three hundred is longer, so a batch that is topped up usually holds one."""
MOST_PROLONGED = 0.10
"""Largest relative change of a full batch's step from the last measured position to that of a long output."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """One device with one model and one measured beam."""

    device: str
    """Name of the device's first profile."""
    profile: DeviceProfile
    cost: DecodingCost
    batch: int
    """Sentences of a mini-batch: the paper's, or the largest measured batch if that is smaller."""
    doubts: tuple[str, ...] = ()
    """Reasons to doubt the step costs."""
    choice: DecoderChoice | None = None
    """Stages of a decoder with or without the fused output layer; None: the profile's decoder as it is."""

    @property
    def fused(self) -> bool:
        return self.choice is not None and self.choice.settings.fused

    @property
    def beam(self) -> int:
        return self.cost.beam

    @property
    def kind(self) -> str:
        """Origin of the step costs: measured, inferred or synthetic."""
        assert self.profile.step is not None, "its cost was computed"
        return self.profile.step.kind

    @property
    def shown_kind(self) -> str:
        """`kind` for readers: `measured, doubtful` if the profile has warnings."""
        return f"{self.kind}, doubtful" if self.doubts else self.kind

    @property
    def refills_known(self) -> bool:
        """True if both costs of topping up were measured: of joining a batch, and of each sentence between two steps."""
        names = ("step_gap_s_per_sentence", "refill_s_fixed", "refill_s_per_sentence")
        gap, *joining = (name in self.profile.overheads_s for name in names)
        return gap and any(joining)

    def prolonged(self, test_set: str) -> float:
        """Return the relative change of a full batch's step from the last measured position to that of a long output."""
        last, long = self.cost.step.length_range[1], LONG_OUTPUT[test_set]
        seconds = self.cost.steps_at(self.batch)
        return 0.0 if long <= last else seconds(long, long) / seconds(last, last) - 1.0

    def extrapolates(self, test_set: str) -> bool:
        """Return whether figures on a test set rest on more than measured costs."""
        return abs(self.prolonged(test_set)) > MOST_PROLONGED


def case_name(beam: int, test_set: str) -> str:
    return f"{SETS[test_set].name}, beam {beam}"


def chosen_profiles(names: Sequence[str] | None) -> list[DeviceProfile]:
    """Read profiles by file or `@name`, by default all shipped ones; raise `InputError` for a repeated name."""
    paths = (
        shipped_files.find("calibration", name) if not names or name.startswith("@") else Path(name)
        for name in names or shipped_files.names("calibration")
    )
    return read_distinct(paths, read_profile, lambda profile: profile.name, "profiles")


def decoders(profiles: Sequence[DeviceProfile]) -> list[Decoder]:
    """Return one decoder per profile with batched step costs, device by device and with rising beam.

    Profiles of one box and model with different beams are one device, named after the first of them.
    """
    devices: dict[str, dict[int, Decoder]] = {}
    for profile in profiles:
        try:
            cost = profile.decoding_cost
        except ProfileError:
            continue
        engine = profile.engine
        engine_key = engine and (engine.backend, engine.compute_type, engine.threads, engine.architecture)
        # A second profile of the same beam is a separate device, even if it names the same box.
        place = 0
        while cost.beam in devices.get(key := repr((profile.device.name, profile.model.name, engine_key, place)), {}):
            place += 1
        device = devices.setdefault(key, {})
        name = next((decoder.device for decoder in device.values()), profile.name)
        device[cost.beam] = Decoder(name, profile, cost, min(BATCH, cost.most_batch), _doubts(profile))
    return [device[beam] for device in devices.values() for beam in sorted(device)]


def fused_decoders(profiles: Sequence[DeviceProfile]) -> tuple[list[Decoder], list[str]]:
    """Return the plain and the fused decoder per profile and beam, and messages about the profiles without both.

    Batches are the paper's, or of the most sentences that the variants were measured with.
    """
    known, not_fused, left_out = list[Decoder](), list[str](), list[str]()
    for profile in profiles:
        if profile.decoder is None or not any(variant.fused for variant in profile.decoder.measured):
            not_fused.append(profile.name)
            continue
        for beam in BEAMS:
            settings = [DecoderSettings(beam=beam, fused=fused, candidates=None) for fused in (False, True)]
            try:
                variants = [with_decoder(profile, variant) for variant in settings]
                costs = [moved.decoding_cost for moved, _ in variants]
            except ProfileError as error:
                left_out.append(f"Left out: {profile.name}, beam {beam}: {error.what}.")
                continue
            # The steps of the base may be known for larger batches than the variants, and batches decide speeds.
            batch = min(BATCH, max(profile.decoder.steps(profile.decoder.base)), *(cost.most_batch for cost in costs))
            doubts = _doubts(profile, "decoder")
            known += [
                Decoder(profile.name, moved, cost, batch, doubts, choice)
                for (moved, choice), cost in zip(variants, costs, strict=True)
            ]
    if not_fused:
        left_out.append(f"Profiles without a fused variant of their decoder are passed over: {', '.join(not_fused)}.")
    return known, left_out


def _doubts(profile: DeviceProfile, *more: str) -> tuple[str, ...]:
    return tuple(doubt.message for doubt in profile_doubts(profile, ("step", "encoder", "overheads", *more)))


def doubtful_profiles(decoders: Iterable[Decoder]) -> list[dict[str, Any]]:
    return group_doubts((decoder.device, decoder.profile.name, decoder.kind, decoder.doubts) for decoder in decoders)
