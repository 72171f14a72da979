"""Device profiles with batched decoding and a fused output layer, and the reasons why their figures decide no verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.papers.fni.published import BATCH, BEAM, SETS
from simnmt.papers.kit.study import read_distinct
from simnmt.profile.blocks import Overhead, ProfileError
from simnmt.profile.cost import CostTable, DecodingCost
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import against_step, profile_doubts
from simnmt.profile.profile_file import read_profile
from simnmt.profile.profile_variant import DecoderChoice, with_decoder
from simnmt.results.run import group_doubts

BEAMS = (1, BEAM)
LONG_OUTPUT = {"europarl": 100, "opensubtitles": 40}
"""Tokens of a long output. About one sentence in three hundred is longer, so a batch that is topped up usually holds one."""
UNCHARGED = "steps of the beam beyond its best output were not counted and are not charged"
"""Remark on a beam whose profile does not count such steps, or was measured with another beam."""
MOST_PROLONGED = 0.10
"""Largest relative change of a full batch's step from the last measured position to that of a long output."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """One device with one model and one beam."""

    device: str
    """Name of the profile of beam 1, or of the only profile of the device."""
    box: str
    model: str
    beam: int
    profile: str
    """Name of the profile with the step costs."""
    kind: str
    """Origin of the step costs: measured, inferred or synthetic."""
    cost: DecodingCost
    batch: int
    """Sentences of a mini-batch: the paper's, or the largest measured batch if that is smaller."""
    guessed: bool = False
    """True if the beam was not measured: its steps are those of as many rows with beam 1."""
    refills_known: bool = False
    """True if the profile has both costs of topping up, joining a batch and the gap between two steps."""
    why_batch: str = ""
    """Reason why mini-batches are smaller than the paper's; empty if they are not."""
    remarks: tuple[str, ...] = ()
    """Differences from the paper, and figures beyond what was measured."""
    doubts: tuple[str, ...] = ()
    """Reasons to doubt the step costs."""

    @property
    def shown_kind(self) -> str:
        """`kind` for readers: `measured, doubtful` if the profile has warnings."""
        return f"{self.kind}, doubtful" if self.doubts else self.kind

    def prolonged(self, test_set: str) -> float:
        """Return the relative change of a full batch's step from the last measured position to that of a long output."""
        last, long = self.cost.step.length_range[1], LONG_OUTPUT[test_set]
        seconds = self.cost.steps_at(self.batch)
        return 0.0 if long <= last else seconds(long, long) / seconds(last, last) - 1.0

    def extrapolates(self, test_set: str) -> bool:
        """Return whether figures on a test set rest on more than measured costs."""
        return self.guessed or abs(self.prolonged(test_set)) > MOST_PROLONGED


def with_beam(cost: DecodingCost, beam: int) -> DecodingCost:
    """Return the costs of sentences with `beam` hypotheses, each as dear as a sentence of beam 1.

    The cost of choosing among the hypotheses is left out. Encoding takes one row per sentence with any beam.
    """
    step = CostTable(cost.step.batches / beam, cost.step.lengths, cost.step.cells)
    per_sentence = ("gap_s_per_sentence", "refill_s_per_sentence", "s_per_row_src_token")
    return replace(cost, step=step, beam=beam, **{name: getattr(cost, name) * beam for name in per_sentence})


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


def decoders(profiles: Sequence[DeviceProfile], batch: int = BATCH, beams: Sequence[int] = BEAMS) -> list[Decoder]:
    """Return one decoder per device, model and beam. Profiles without batched step costs are skipped.

    Batches are of `batch` sentences, or of the most that were measured. A beam without a profile uses the rows of beam 1,
    with a remark.
    """
    groups: list[tuple[tuple[str, ...], dict[int, tuple[DeviceProfile, DecodingCost]]]] = []
    for profile in profiles:
        try:
            cost = profile.decoding_cost
        except ProfileError:
            continue
        key = _box_and_model(profile)
        # A second profile of the same beam counts as a separate device, even if it names the same box.
        group = next((by_beam for other, by_beam in groups if other == key and cost.beam not in by_beam), None)
        if group is None:
            groups.append((key, group := {}))
        group[cost.beam] = profile, cost
    device_decoders = []
    for _, group in groups:
        first, plain = group[min(group)]
        for beam in beams:
            if beam in group:
                device_decoders.append(_decoder(first.name, *group[beam], batch))
            elif plain.beam == 1:
                device_decoders.append(_decoder(first.name, first, with_beam(plain, beam), batch))
    return device_decoders


def _box_and_model(profile: DeviceProfile) -> tuple[str, ...]:
    """Return the key that profiles of several beams of one device and model share."""
    engine = profile.engine
    how = (engine.backend, engine.compute_type, str(engine.threads), str(sorted(engine.architecture.items()))) if engine else ()
    return (profile.device.name, profile.model.name, *how)


def _decoder(device: str, profile: DeviceProfile, cost: DecodingCost, batch: int) -> Decoder:
    assert profile.step is not None, "its cost was computed"
    guessed = profile.step.beam != cost.beam
    possible = min(batch, cost.most_batch)
    rows = profile.step.cost.batch_range[1]
    why_batch = ""
    if possible < batch and guessed and possible == rows // cost.beam:
        why_batch = f"batches of {possible} sentences: each takes {cost.beam} of the {rows} rows measured with beam 1"
    elif possible < batch:
        why_batch = f"batches of {possible} sentences, no more were measured"
    overheads = profile.overheads
    gap_known = overheads is not None and _is_known(overheads.step_gap_s_per_sentence)
    refill_known = overheads is not None and (_is_known(overheads.refill_s_fixed) or _is_known(overheads.refill_s_per_sentence))
    names = device, profile.device.name, profile.model.name, cost.beam, profile.name, profile.step.kind
    known = gap_known and refill_known
    decoder = Decoder(*names, cost, possible, guessed, known, why_batch, doubts=step_doubts(profile))
    remarks = {
        f"beam {cost.beam} from the steps of {cost.beam} times as many sentences with beam 1": guessed,
        why_batch: bool(why_batch),
        UNCHARGED: cost.beam > 1 and (guessed or profile.beam_overrun is None),
        "the cost of each sentence between two steps was not measured and counts as 0 s": not gap_known,
        "the cost of joining a batch was not measured and counts as 0 s": not refill_known,
    }
    last = cost.step.length_range[1]
    long_outputs = [
        f"{SETS[test_set].name}: no step was measured beyond the {last + 1}th token of an output; a step's time changes by "
        f"{100 * decoder.prolonged(test_set):+.0f} % from there to the {long}th"
        for test_set, long in LONG_OUTPUT.items()
        if long > last
    ]
    return replace(decoder, remarks=(*(remark for remark, applies in remarks.items() if applies), *long_outputs))


def step_doubts(profile: DeviceProfile, *more: str) -> tuple[str, ...]:
    """Return the reasons to doubt the costs of a profile's steps; `more`: further cost models that are used."""
    # The doubts are those of the profile's own beam, since readers see them by device: doubts about a beam that was made from
    # beam 1 would mark the figures of beam 1. Such a beam has the remark `UNCHARGED` and counts as extrapolated, which decides
    # no verdict.
    return tuple(doubt.message for doubt in profile_doubts(profile, ("step", "encoder", "overheads", *more)))


def doubtful_profiles(decoders: Iterable[Decoder]) -> list[dict[str, Any]]:
    """Return each doubtful profile of some decoders once."""
    return group_doubts((decoder.device, decoder.profile, decoder.kind, decoder.doubts) for decoder in decoders)


def _is_known(overhead: Overhead | None) -> bool:
    return overhead is not None and overhead.value is not None


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
    def vocab(self) -> int:
        """Words of the model; the time of the output layer is proportional to them."""
        return self.profile.model.vocab

    def decoder(self, fused: bool) -> Decoder:
        """Return one of the two variants."""
        return self.fused if fused else self.plain

    @property
    def remarks(self) -> list[str]:
        """Differences from the paper, and figures beyond what was measured."""
        assert self.profile.decoder is not None
        remarks = (
            [] if (src_len := self.profile.decoder.src_len) is None else [f"stages measured with sources of {src_len} tokens"]
        )
        if ratios := against_step(self.profile).values():
            span = " to ".join(dict.fromkeys(f"{ratio:.2f}" for ratio in (min(ratios), max(ratios))))
            remarks.append(
                f"steps among the variants took {span} times the calibrated ones: shares are theirs, seconds are not"
            )
        return [*remarks, *self.fused.remarks]


def fused_decoders(profiles: Sequence[DeviceProfile], batch: int = BATCH) -> tuple[list[FusedDecoder], list[str]]:
    """Return both variants per profile and beam, and messages about the profiles without both.

    Batches are of `batch` sentences, or of the most that the variants were measured with.
    """
    device_decoders: list[FusedDecoder] = []
    not_fused: list[str] = []
    left_out: list[str] = []
    for profile in profiles:
        if profile.decoder is None or not any(variant.fused for variant in profile.decoder.measured):
            not_fused.append(profile.name)
            continue
        for beam in BEAMS:
            try:
                (plain, plain_choice), (fused, fused_choice) = (
                    _variant(profile, beam, fused, batch) for fused in (False, True)
                )
            except ProfileError as error:
                left_out.append(f"Left out: {profile.name}, beam {beam}: {error.what}.")
                continue
            # The steps of the base may be known for larger batches than the variants, and batches decide speeds.
            most = min(plain.batch, fused.batch, max(profile.decoder.batches))
            doubts = step_doubts(profile, "decoder")
            plain, fused = (replace(decoder, batch=most, doubts=doubts) for decoder in (plain, fused))
            device_decoders.append(FusedDecoder(plain, fused, plain_choice, fused_choice, profile))
    if not_fused:
        left_out.append(f"Profiles without a fused variant of their decoder are passed over: {', '.join(not_fused)}.")
    return device_decoders, left_out


def _variant(profile: DeviceProfile, beam: int, fused: bool, batch: int) -> tuple[Decoder, DecoderChoice]:
    moved, choice = with_decoder(profile, DecoderSettings(beam=beam, fused=fused, candidates=None))
    moved.decoding_cost  # noqa: B018 - raises the error that names what the profile lacks
    (decoder,) = decoders([moved], batch, (beam,))
    return decoder, choice
