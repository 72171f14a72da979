"""Device profiles that cover batched decoding and a fused output layer, and when their numbers decide no verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.papers.fni.published import BATCH, BEAM, SETS
from simnmt.profile.batch_cost import BatchCost, DecodingCost, LinearSurface, TableSurface
from simnmt.profile.blocks import Overhead, ProfileError
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import against_step, profile_doubts
from simnmt.profile.profile_file import read_profile
from simnmt.profile.profile_variant import DecoderChoice, with_decoder
from simnmt.results.result import group_doubts

BEAMS = (1, BEAM)
LONG_OUTPUT = {"europarl": 100, "opensubtitles": 40}
"""Tokens; about one sentence in three hundred is longer. A batch that is topped up is rarely without a long one."""
UNCHARGED = "steps of the beam beyond its best output were not counted and are not charged"
"""The remark of a beam whose profile does not count them, or has another beam."""
MOST_PROLONGED = 0.10
"""By how much the step of a full batch may change from the last position that was measured to that of a long output."""


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
    batch: int
    """Sentences of a mini-batch: the paper's, or the most that were measured where that is less."""
    guessed: bool = False
    """Its beam was not measured: its steps are those of as many rows with beam 1."""
    refills_known: bool = False
    """Whether its profile has both costs of topping up, joining a batch and the gap between two steps; else one is 0 s."""
    why_batch: str = ""
    """Why its mini-batches are smaller than the paper's; empty where they are not."""
    remarks: tuple[str, ...] = ()
    """What is other than in the paper, or beyond what was measured."""
    doubts: tuple[str, ...] = ()
    """What makes the step costs of its profile doubtful."""

    @property
    def shown_kind(self) -> str:
        """`kind` as people read it: `measured, doubtful` where the profile has warnings."""
        return f"{self.kind}, doubtful" if self.doubts else self.kind

    def prolonged(self, test_set: str) -> float:
        """By how much of itself a full batch's step changes from the last position measured to that of a long output."""
        last, long = self.cost.step.length_range[1], LONG_OUTPUT[test_set]
        seconds = self.cost.steps_at(self.batch)
        return 0.0 if long <= last else seconds(long, long) / seconds(last, last) - 1.0

    def extrapolates(self, test_set: str) -> bool:
        """Whether numbers on a set rest on more than what was measured."""
        return self.guessed or abs(self.prolonged(test_set)) > MOST_PROLONGED


def with_beam(cost: DecodingCost, beam: int) -> DecodingCost:
    """Costs of sentences with so many hypotheses, had every hypothesis the cost of a sentence of beam 1: what choosing among
    them takes is not in it. Encoding is one row a sentence in either case."""
    surface, (low, high) = cost.step.surface, cost.step.batch_range
    rows: LinearSurface | TableSurface
    if isinstance(surface, LinearSurface):
        rows = replace(surface, s_per_row=surface.s_per_row * beam, s_per_row_token=surface.s_per_row_token * beam)
    else:
        rows = TableSurface(surface.batches / beam, surface.lengths, surface.cells)
    # Without `alone`: a sentence alone has as many rows as hypotheses, and its row is not that of batch 1.
    step = BatchCost(rows, (max(low // beam, 1), high // beam), cost.step.length_range)
    return replace(
        cost,
        step=step,
        gap_s_per_sentence=cost.gap_s_per_sentence * beam,
        refill_s_per_sentence=cost.refill_s_per_sentence * beam,
        s_per_row_src_token=cost.s_per_row_src_token * beam,
        beam=beam,
    )


def shipped_profiles() -> list[DeviceProfile]:
    """All that come with simnmt, by name."""
    return [read_profile(shipped_files.find("calibration", name)) for name in shipped_files.names("calibration")]


def named_profiles(names: Sequence[str]) -> list[DeviceProfile]:
    """Read profiles by file or `@name`. Raise `InputError` for one unreadable, without batch costs, or with a repeated name."""
    by_name: dict[str, DeviceProfile] = {}
    for name in names:
        path = shipped_files.find("calibration", name) if name.startswith("@") else Path(name)
        profile = read_profile(path)
        try:
            profile.decoding_cost  # noqa: B018
        except ProfileError as error:
            raise InputError(error.what, path=path, remedy=error.remedy) from None
        if profile.name in by_name:
            raise InputError(f"a second profile named {profile.name}", path=path, remedy="change its name")
        by_name[profile.name] = profile
    return list(by_name.values())


def decoders(profiles: Sequence[DeviceProfile], batch: int = BATCH, beams: Sequence[int] = BEAMS) -> list[Decoder]:
    """Return one decoder per device, model and beam. Profiles without batched step costs are skipped.

    Batches are of `batch` sentences, or of the most that were measured. A beam without a profile uses the rows of beam 1,
    and a remark says so.
    """
    groups: list[tuple[tuple[str, ...], dict[int, tuple[DeviceProfile, DecodingCost]]]] = []
    for profile in profiles:
        try:
            cost = profile.decoding_cost
        except ProfileError:
            continue
        key = _same_box(profile)
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


def _same_box(profile: DeviceProfile) -> tuple[str, ...]:
    """Return the key that profiles of several beams of one device and model share."""
    engine = profile.engine
    how = (engine.backend, engine.compute_type, str(engine.threads), str(sorted(engine.architecture.items()))) if engine else ()
    return (profile.device.name, profile.model.name, *how)


def _decoder(device: str, profile: DeviceProfile, cost: DecodingCost, batch: int) -> Decoder:
    assert profile.step is not None, "its cost was computed"
    guessed = profile.step.beam != cost.beam
    possible = min(batch, cost.most_batch)
    why_batch = ""
    if possible < batch:
        why_batch = f"batches of {possible} sentences, no more were measured"
        rows = profile.step.cost.batch_range[1]
        if guessed and possible == rows // cost.beam:
            why_batch = f"batches of {possible} sentences: each takes {cost.beam} of the {rows} rows measured with beam 1"
    overheads = profile.overheads
    gap_known = overheads is not None and _is_known(overheads.step_gap_s_per_sentence)
    refill_known = overheads is not None and (_is_known(overheads.refill_s_fixed) or _is_known(overheads.refill_s_per_sentence))
    kind = profile.step.kind if profile.step else "synthetic"
    names = device, profile.device.name, profile.model.name, cost.beam, profile.name, kind
    known = gap_known and refill_known
    decoder = Decoder(*names, cost, possible, guessed, known, why_batch, doubts=step_doubts(profile))
    remarks = {
        f"beam {cost.beam} from the steps of {cost.beam} times as many sentences with beam 1": guessed,
        why_batch: bool(why_batch),
        UNCHARGED: cost.beam > 1 and (guessed or profile.beam_overrun is None),
        "what each sentence adds between two steps was not measured and counts as 0 s": not gap_known,
        "what it takes to join a batch was not measured and counts as 0 s": not refill_known,
    }
    applicable = [remark for remark, applies in remarks.items() if applies]
    return replace(decoder, remarks=(*applicable, *_long_output_remarks(decoder)))


def _long_output_remarks(decoder: Decoder) -> list[str]:
    last = decoder.cost.step.length_range[1]
    return [
        f"{SETS[test_set].name}: no step was measured beyond the {last + 1}th token of an output; a step's time changes by "
        f"{100 * decoder.prolonged(test_set):+.0f} % from there to the {long}th"
        for test_set, long in LONG_OUTPUT.items()
        if long > last
    ]


def step_doubts(profile: DeviceProfile, *more: str) -> tuple[str, ...]:
    """Return what makes the costs of a profile's steps doubtful; `more`: further cost models that are used."""
    # Of the profile's beam, whatever beam is decoded with: doubts are listed by device, so those of a beam that was made of
    # beam 1 would mark what beam 1 shows. Such a beam carries the remark `UNCHARGED` instead; if made of rows, it also counts
    # as extrapolated, which decides no verdict.
    return tuple(doubt.message for doubt in profile_doubts(profile, ("step", "encoder", "overheads", *more)))


def doubtful_profiles(decoders: Iterable[Decoder]) -> list[dict[str, Any]]:
    """Return the doubtful profiles of some decoders, each once."""
    return group_doubts((decoder.device, decoder.profile, decoder.kind, decoder.doubts) for decoder in decoders)


def _is_known(overhead: Overhead | None) -> bool:
    return overhead is not None and overhead.value is not None


@dataclass(frozen=True, slots=True)
class FusedDecoder:
    """One device with one model and one beam, its output layer fused or not."""

    plain: Decoder
    fused: Decoder
    plain_choice: DecoderChoice
    """Stage by stage, and how its times are known."""
    fused_choice: DecoderChoice
    vocab: int
    """Words of the model, which the output layer's time goes with."""
    src_len: int | None
    """Source tokens under the steps whose stages were measured."""
    against_step: dict[int, float] = field(default_factory=dict)
    """By batch size, the base's step as measured among the variants over the calibrated one; empty where that is not known."""

    @property
    def device(self) -> str:
        """The profile's name."""
        return self.plain.device

    @property
    def beam(self) -> int:
        """Hypotheses of a sentence."""
        return self.plain.beam

    @property
    def batch(self) -> int:
        """Sentences of a batch, the same with the fused kernel and without."""
        return self.plain.batch

    @property
    def measured(self) -> bool:
        """Whether both variants were; else one of them is composed."""
        return "composed" not in (self.plain_choice.how, self.fused_choice.how)

    def decoder(self, fused: bool) -> Decoder:
        """Return one of the two variants."""
        return self.fused if fused else self.plain

    @property
    def remarks(self) -> list[str]:
        """What is other than in the paper, or beyond what was measured."""
        ratios = [f"{ratio:.2f}" for ratio in sorted(self.against_step.values())]
        apart = (
            f"steps among the variants took {' to '.join(dict.fromkeys((*ratios[:1], *ratios[-1:])))} times the calibrated ones"
        )
        return [
            *([] if self.src_len is None else [f"stages measured with sources of {self.src_len} tokens"]),
            *([f"{apart}: shares are theirs, seconds are not"] if ratios else []),
            *(
                f"{choice.settings.describe()}: {choice.describe_composition()}"
                for choice in (self.plain_choice, self.fused_choice)
                if choice.how == "composed"
            ),
            *self.fused.remarks,
        ]


def fused_decoders(profiles: Sequence[DeviceProfile], batch: int = BATCH) -> tuple[list[FusedDecoder], list[str]]:
    """Return both variants per profile and beam, and messages about the profiles without both.

    Batches are of `batch` sentences, or of the most that the variants were measured with.
    """
    device_decoders: list[FusedDecoder] = []
    silent: list[str] = []
    left_out: list[str] = []
    for profile in profiles:
        if profile.decoder is None or not any(variant.fused for variant in profile.decoder.measured):
            silent.append(profile.name)
            continue
        for beam in BEAMS:
            decoder_or_reason = _decoder_or_reason(profile, beam, batch)
            if isinstance(decoder_or_reason, str):
                left_out.append(f"Left out: {profile.name}, beam {beam}: {decoder_or_reason}.")
            else:
                device_decoders.append(decoder_or_reason)
    if silent:
        left_out.append(f"Profiles without a fused variant of their decoder are passed over: {', '.join(silent)}.")
    return device_decoders, left_out


def _decoder_or_reason(profile: DeviceProfile, beam: int, batch: int) -> FusedDecoder | str:
    """Return both variants, or why they are not known."""
    try:
        (plain, plain_choice), (fused, fused_choice) = (_variant(profile, beam, fused, batch) for fused in (False, True))
    except ProfileError as error:
        return error.what
    assert profile.decoder is not None
    # Steps of the base may be known up to larger batches than the variants, and batches decide speeds.
    most = min(plain.batch, fused.batch, max(profile.decoder.batches))
    doubts = step_doubts(profile, "decoder")
    plain, fused = (replace(decoder, batch=most, doubts=doubts) for decoder in (plain, fused))
    return FusedDecoder(
        plain, fused, plain_choice, fused_choice, profile.model.vocab, profile.decoder.src_len, against_step(profile)
    )


def _variant(profile: DeviceProfile, beam: int, fused: bool, batch: int) -> tuple[Decoder, DecoderChoice]:
    moved, choice = with_decoder(profile, DecoderSettings(beam=beam, fused=fused, candidates=None))
    moved.decoding_cost  # noqa: B018 - says what the profile lacks
    (decoder,) = decoders([moved], batch, (beam,))
    return decoder, choice
