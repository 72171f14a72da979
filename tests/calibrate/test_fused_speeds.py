"""A real decoder with the fused output layer and without it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from simnmt.calibrate import decoder_speeds as fused_speeds_module
from simnmt.calibrate.decoder_speeds import fused_speeds
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.models import LoadedModel, load_model
from simnmt.nmt.step_model import MaskedBias

TINY = """
kind: gru
layers: 1
hidden: 16
embedding: 16
src_vocab: 60
tgt_vocab: 60
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    return str(file)


def test_fused_and_plain_decoding_give_the_same_words_for_all_mixes_and_beams(model: str) -> None:
    seen: list[tuple[int, int]] = []
    speeds = fused_speeds(model, 6, (1, 5), rounds=2, batch=3, progress=lambda done, of: seen.append((done, of)))
    assert [(speed.test_set, speed.beam) for speed in speeds] == [
        ("europarl", 1), ("europarl", 5), ("opensubtitles", 1), ("opensubtitles", 5),
    ]  # fmt: skip
    assert seen[0] == (0, 4) and seen[-1] == (4, 4)
    for speed in speeds:
        assert len(speed.plain_s) == len(speed.fused_s) == 2 and speed.batch == 3 and speed.vocab == 60
        assert (speed.equal, speed.near_ties, speed.disagreements) == (6, 0, 0), "fusing is exact (FNI-11)"
        assert speed.weights == "random"
        assert sum(speed.shares.values()) == pytest.approx(1.0) and 0.0 < speed.three_share < speed.layer_share < 1.0
        assert speed.layer_s > 0.0 and speed.fused_layer_s > 0.0 and math.isfinite(speed.ratio)
        assert speed.layer_s + speed.stages_s["body"] < 3 * max(speed.plain_s), (
            "stages over all steps are of the size of the whole"
        )


def test_zero_sentences_are_refused(model: str) -> None:
    with pytest.raises(CalibrationError, match="0 sentences"):
        fused_speeds(model, 0, (1,))


def test_a_fused_layer_without_the_bias_is_detected(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FNI-11: with forced lengths such a fault could pass as the rounding of a random model."""

    def with_bias(name: str) -> LoadedModel:
        loaded = load_model(name)
        torch.nn.init.normal_(loaded.model.projection.bias)
        return loaded

    monkeypatch.setattr(fused_speeds_module, "load_model", with_bias)
    assert all(speed.equal == 6 for speed in fused_speeds(model, 6, (1, 2), rounds=1, batch=3))
    monkeypatch.setattr(MaskedBias, "now", lambda masked: torch.zeros_like(masked._bias))
    assert all(speed.disagreements > 0 for speed in fused_speeds(model, 6, (1, 2), rounds=1, batch=3))


def test_both_decoders_are_warmed_up_and_stages_are_timed_once_for_all_mixes(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first decoding of all took longer than the second, and a line from 1 to 4 sentences foretold 12 % too little."""
    decoded: list[bool] = []
    timed: list[tuple[int, int]] = []
    decode, stages = fused_speeds_module.decode_batched, fused_speeds_module.output_stages_s

    def seen(*given: Any, **named: Any) -> Any:
        decoded.append(named["fused"])
        return decode(*given, **named)

    def at(decoder: Any, batch: int, beam: int, **named: Any) -> Any:
        timed.append((batch, beam))
        return stages(decoder, batch, beam, **named)

    monkeypatch.setattr(fused_speeds_module, "decode_batched", seen)
    monkeypatch.setattr(fused_speeds_module, "output_stages_s", at)
    fused_speeds(model, 6, (1,), rounds=2, batch=4)
    warm, rounds, freely = [False, True], [False, True, True, False], [False, True]
    assert decoded == 2 * [*warm, *rounds, *freely]
    assert timed == [(batch, 1) for batch in (1, 2, 3, 4)]
