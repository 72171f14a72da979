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


def test_both_mixes_and_beams_are_decoded_both_ways_to_the_same_words(model: str) -> None:
    seen: list[tuple[int, int]] = []
    found = fused_speeds(model, 6, (1, 5), rounds=2, batch=3, progress=lambda done, of: seen.append((done, of)))
    assert [(each.test_set, each.beam) for each in found] == [
        ("europarl", 1), ("europarl", 5), ("opensubtitles", 1), ("opensubtitles", 5),
    ]  # fmt: skip
    assert seen[0] == (0, 4) and seen[-1] == (4, 4)
    for each in found:
        assert len(each.plain_s) == len(each.fused_s) == 2 and each.batch == 3 and each.vocab == 60
        assert (each.equal, each.near_ties, each.disagreements) == (6, 0, 0), "fusing is exact (FNI-11)"
        assert each.weights == "random"
        assert sum(each.shares.values()) == pytest.approx(1.0) and 0.0 < each.three_share < each.layer_share < 1.0
        assert each.layer_s > 0.0 and each.fused_layer_s > 0.0 and math.isfinite(each.ratio)
        assert each.layer_s + each.stages_s["body"] < 3 * max(each.plain_s), (
            "stages over all steps are of the size of the whole"
        )


def test_no_sentence_is_refused(model: str) -> None:
    with pytest.raises(CalibrationError, match="0 sentences"):
        fused_speeds(model, 0, (1,))


def test_a_fused_layer_that_forgets_the_bias_is_found_out(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FNI-11: with forced lengths such a fault could pass as the rounding of a random model."""

    def with_bias(name: str) -> LoadedModel:
        loaded = load_model(name)
        torch.nn.init.normal_(loaded.model.projection.bias)
        return loaded

    monkeypatch.setattr(fused_speeds_module, "load_model", with_bias)
    assert all(each.equal == 6 for each in fused_speeds(model, 6, (1, 2), rounds=1, batch=3))
    monkeypatch.setattr(MaskedBias, "now", lambda masked: torch.zeros_like(masked._bias))
    assert all(each.disagreements > 0 for each in fused_speeds(model, 6, (1, 2), rounds=1, batch=3))


def test_both_ways_are_warmed_up_before_they_are_timed_and_stages_once_for_all_mixes(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first decoding of all took longer than the second, and a line from 1 to 4 sentences foretold 12 % too little."""
    decoded: list[bool] = []
    timed: list[tuple[int, int]] = []
    decode, stages = fused_speeds_module.decode_batched, fused_speeds_module.output_stages_s

    def seen(*given: Any, **named: Any) -> Any:
        decoded.append(named["fused"])
        return decode(*given, **named)

    def at(own: Any, batch: int, beam: int, **named: Any) -> Any:
        timed.append((batch, beam))
        return stages(own, batch, beam, **named)

    monkeypatch.setattr(fused_speeds_module, "decode_batched", seen)
    monkeypatch.setattr(fused_speeds_module, "output_stages_s", at)
    fused_speeds(model, 6, (1,), rounds=2, batch=4)
    warm, rounds, freely = [False, True], [False, True, True, False], [False, True]
    assert decoded == 2 * [*warm, *rounds, *freely]
    assert timed == [(batch, 1) for batch in (1, 2, 3, 4)]
