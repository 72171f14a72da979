"""Which device profiles tell of a fused output layer, and what sentences cost with and without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from simnmt.costs import DeviceProfile
from simnmt.costs.decoder_choice import DecoderChoice
from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.costs.decoder_words import against_step
from simnmt.costs.profile_error import ProfileError
from simnmt.reproduce.topup.devices import BEAMS, Decoder, decoders, step_doubts
from simnmt.reproduce.topup.published import BATCH


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
        """One of the two."""
        return self.fused if fused else self.plain


def fused_decoders(profiles: Sequence[DeviceProfile], batch: int = BATCH) -> tuple[list[FusedDecoder], list[str]]:
    """Per profile and beam both variants, and what is to be said of the profiles that do not tell of both.

    Batches are of `batch` sentences, or of the most that the variants were measured with.
    """
    found: list[FusedDecoder] = []
    silent: list[str] = []
    left_out: list[str] = []
    for profile in profiles:
        if profile.decoder is None or not any(each.fused for each in profile.decoder.measured):
            silent.append(profile.name)
            continue
        for beam in BEAMS:
            own = _known(profile, beam, batch)
            if isinstance(own, str):
                left_out.append(f"Left out: {profile.name}, beam {beam}: {own}.")
            else:
                found.append(own)
    if silent:
        left_out.append(f"Profiles without a fused variant of their decoder are passed over: {', '.join(silent)}.")
    return found, left_out


def _known(profile: DeviceProfile, beam: int, batch: int) -> FusedDecoder | str:
    """Both variants, or why they are not known."""
    try:
        (plain, plain_choice), (fused, fused_choice) = (_variant(profile, beam, fused, batch) for fused in (False, True))
    except ProfileError as error:
        return error.what
    assert profile.decoder is not None
    # Steps of the base may be known up to larger batches than the variants, and batches decide speeds.
    most = min(plain.batch, fused.batch, max(profile.decoder.batches))
    doubts = step_doubts(profile, "decoder")
    plain, fused = (replace(speed, batch=most, doubts=doubts) for speed in (plain, fused))
    return FusedDecoder(
        plain,
        fused,
        plain_choice,
        fused_choice,
        profile.model.vocab,
        profile.decoder.src_len,
        against_step(profile),
    )


def _variant(profile: DeviceProfile, beam: int, fused: bool, batch: int) -> tuple[Decoder, DecoderChoice]:
    moved, choice = profile.with_decoder(DecoderSettings(beam=beam, fused=fused, candidates=None))
    moved.decoding_cost  # noqa: B018 - says what the profile lacks
    (decoder,) = decoders([moved], batch, (beam,))
    return decoder, choice
