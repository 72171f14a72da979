"""Device profiles with batched decoding and a fused output layer, and the reasons why their figures decide no verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.papers.fni.published import BATCH, BEAM, SETS
from simnmt.papers.kit.study import read_distinct
from simnmt.profile.blocks import Overhead, ProfileError
from simnmt.profile.cost import DecodingCost
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import against_step, profile_doubts
from simnmt.profile.profile_file import read_profile
from simnmt.profile.profile_variant import DecoderChoice, with_decoder
from simnmt.results.run import group_doubts

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

    @property
    def beam(self) -> int:
        """Hypotheses per sentence."""
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
    def unknown_costs(self) -> list[str]:
        """Remarks on the costs of topping up that were not measured."""
        known, remarks = self.profile.overheads, []
        if known is None or not _is_known(known.step_gap_s_per_sentence):
            remarks.append("the cost of each sentence between two steps was not measured and counts as 0 s")
        if known is None or not (_is_known(known.refill_s_fixed) or _is_known(known.refill_s_per_sentence)):
            remarks.append("the cost of joining a batch was not measured and counts as 0 s")
        return remarks

    @property
    def refills_known(self) -> bool:
        """True if both costs of topping up were measured."""
        return not self.unknown_costs

    def prolonged(self, test_set: str) -> float:
        """Return the relative change of a full batch's step from the last measured position to that of a long output."""
        last, long = self.cost.step.length_range[1], LONG_OUTPUT[test_set]
        seconds = self.cost.steps_at(self.batch)
        return 0.0 if long <= last else seconds(long, long) / seconds(last, last) - 1.0

    def extrapolates(self, test_set: str) -> bool:
        """Return whether figures on a test set rest on more than measured costs."""
        return abs(self.prolonged(test_set)) > MOST_PROLONGED

    @property
    def remarks(self) -> list[str]:
        """Differences from the paper, and figures beyond what was measured."""
        last, remarks = self.cost.step.length_range[1], []
        if self.batch < BATCH:
            remarks.append(f"batches of {self.batch} sentences, no more were measured")
        if self.beam > 1 and self.profile.beam_overrun is None:
            remarks.append("steps of the beam beyond its best output were not counted and are not charged")
        long_outputs = [
            f"{SETS[key].name}: no step was measured beyond the {last + 1}th token of an output; a step's time changes by "
            f"{100 * self.prolonged(key):+.0f} % from there to the {long}th"
            for key, long in LONG_OUTPUT.items()
            if long > last
        ]
        return [*remarks, *self.unknown_costs, *long_outputs]


def _is_known(overhead: Overhead | None) -> bool:
    return overhead is not None and overhead.value is not None


def shipped_profiles() -> list[DeviceProfile]:
    """Return all profiles that come with simnmt, by name."""
    return [read_profile(shipped_files.find("calibration", name)) for name in shipped_files.names("calibration")]


def named_profiles(names: Sequence[str]) -> list[DeviceProfile]:
    """Read profiles by file or `@name`. Raise `InputError` for one unreadable, without batch costs, or with a repeated name."""

    def read(path: Path) -> DeviceProfile:
        profile = read_profile(path)
        try:
            profile.decoding_cost  # noqa: B018
        except ProfileError as error:
            raise InputError(error.what, path=path, remedy=error.remedy) from None
        return profile

    paths = (shipped_files.find("calibration", name) if name.startswith("@") else Path(name) for name in names)
    return read_distinct(paths, read, lambda profile: profile.name, "profiles")


def decoders(profiles: Sequence[DeviceProfile]) -> list[Decoder]:
    """Return one decoder per profile with batched step costs, device by device and with rising beam.

    Profiles of one box and model with different beams are one device, named after the first of them.
    """
    devices: list[tuple[object, list[Decoder]]] = []
    for profile in profiles:
        try:
            cost = profile.decoding_cost
        except ProfileError:
            continue
        engine = profile.engine
        how = engine and (engine.backend, engine.compute_type, engine.threads, engine.architecture)
        key = profile.device.name, profile.model.name, how
        # A second profile of the same beam is a separate device, even if it names the same box.
        same = (known for other, known in devices if other == key and cost.beam not in [decoder.beam for decoder in known])
        device = next(same, None)
        if device is None:
            devices.append((key, device := []))
        name = device[0].device if device else profile.name
        device.append(Decoder(name, profile, cost, min(BATCH, cost.most_batch), step_doubts(profile)))
    return [decoder for _, device in devices for decoder in sorted(device, key=lambda decoder: decoder.beam)]


def step_doubts(profile: DeviceProfile, *more: str) -> tuple[str, ...]:
    """Return the reasons to doubt the costs of a profile's steps; `more`: further cost models that are used."""
    return tuple(doubt.message for doubt in profile_doubts(profile, ("step", "encoder", "overheads", *more)))


def doubtful_profiles(decoders: Iterable[Decoder]) -> list[dict[str, Any]]:
    """Return each doubtful profile of some decoders once."""
    return group_doubts((decoder.device, decoder.profile.name, decoder.kind, decoder.doubts) for decoder in decoders)


@dataclass(frozen=True, slots=True)
class FusedDecoder:
    """One device with one model and one beam, with the fused output layer and without."""

    plain: Decoder
    fused: Decoder
    plain_choice: DecoderChoice
    """Stages of the plain decoder, and the origin of their times."""
    fused_choice: DecoderChoice
    profile: DeviceProfile

    @property
    def device(self) -> str:
        """Name of the profile."""
        return self.plain.device

    @property
    def beam(self) -> int:
        """Hypotheses per sentence."""
        return self.plain.beam

    @property
    def remarks(self) -> list[str]:
        """Differences from the paper, and figures beyond what was measured."""
        assert self.profile.decoder is not None
        src_len, ratios = self.profile.decoder.src_len, against_step(self.profile).values()
        remarks = [] if src_len is None else [f"stages measured with sources of {src_len} tokens"]
        if ratios:
            span = " to ".join(dict.fromkeys(f"{ratio:.2f}" for ratio in (min(ratios), max(ratios))))
            remarks.append(
                f"steps among the variants took {span} times the calibrated ones: shares are theirs, seconds are not"
            )
        return [*remarks, *self.fused.remarks]


def fused_decoders(profiles: Sequence[DeviceProfile]) -> tuple[list[FusedDecoder], list[str]]:
    """Return both variants per profile and beam, and messages about the profiles without both.

    Batches are the paper's, or of the most sentences that the variants were measured with.
    """
    known: list[FusedDecoder] = []
    not_fused: list[str] = []
    left_out: list[str] = []
    for profile in profiles:
        if profile.decoder is None or not any(variant.fused for variant in profile.decoder.measured):
            not_fused.append(profile.name)
            continue
        for beam in BEAMS:
            try:
                variants = [
                    with_decoder(profile, DecoderSettings(beam=beam, fused=fused, candidates=None)) for fused in (False, True)
                ]
                costs = [moved.decoding_cost for moved, _ in variants]
            except ProfileError as error:
                left_out.append(f"Left out: {profile.name}, beam {beam}: {error.what}.")
                continue
            # The steps of the base may be known for larger batches than the variants, and batches decide speeds.
            batch = min(BATCH, max(profile.decoder.steps(profile.decoder.base)), *(cost.most_batch for cost in costs))
            doubts = step_doubts(profile, "decoder")
            plain, fused = (
                Decoder(profile.name, moved, cost, batch, doubts) for (moved, _), cost in zip(variants, costs, strict=True)
            )
            known.append(FusedDecoder(plain, fused, variants[0][1], variants[1][1], profile))
    if not_fused:
        left_out.append(f"Profiles without a fused variant of their decoder are passed over: {', '.join(not_fused)}.")
    return known, left_out
