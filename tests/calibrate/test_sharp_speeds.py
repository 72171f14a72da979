"""The sharp decoder's ladder and products, and fused decoding, measured in small."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from simnmt.calibrate import decoder_speeds as fused_speeds_module
from simnmt.calibrate import sharp_speeds
from simnmt.calibrate.decoder_speeds import fused_speeds
from simnmt.calibrate.sharp_models import random_candidates, random_models
from simnmt.calibrate.sharp_speeds import Setting, rung_settings
from simnmt.nmt.architecture import SHARP_MODELS, AttentionalArchitecture
from simnmt.nmt.models import LoadedModel, load_model
from simnmt.nmt.output_layer import MaskedBias
from simnmt.profile.decoder_settings import RUNGS, DecoderSettings

SMALL = AttentionalArchitecture(
    kind="attentional", hidden=16, embedding=8, source_layers=1, source_hidden=8, src_vocab=36, tgt_vocab=36
)


def test_each_rung_adds_one_technique_to_those_before() -> None:
    rungs = list(rung_settings(6, 500, "table").values())
    changed = [
        {name for name in DecoderSettings.model_fields if getattr(rung, name) != getattr(before, name)}
        for before, rung in pairwise(rungs)
    ]
    assert changed == [{"gemm"}, {"embeddings"}, {"attention"}, {"activations"}, {"merge"}]
    assert [rung.exact for rung in rungs] == [False] * 6, "the candidate list is not an identity"
    assert rung_settings(6, None, "table")["baseline"].exact


def test_random_models_and_candidates_have_the_sizes_of_the_paper() -> None:
    for weights in random_models(("sharp-s1", "sharp-s4"), vocab=600).values():
        assert weights.target.state.shape == (4 * 1_024, 1_024) and np.abs(weights.target.state).max() <= 1.0
        assert [side.width for side, _ in weights.source.layers] == [512] * 3 and weights.source.width == 1_024, "SHARP-16"
    candidates = random_candidates(600, 100, frequent=400)
    assert len(set(candidates.tolist())) == 100 and 0 in candidates and (candidates < 400).mean() == 0.95


def test_all_parts_are_timed_with_their_counted_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHARP_MODELS, "small", SMALL)
    monkeypatch.setattr(sharp_speeds, "LADDER_MODEL", "small")
    monkeypatch.setattr(sharp_speeds, "SYSTEMS", {"S1": ("small", 1), "E1": ("small", 2)})
    monkeypatch.setattr(sharp_speeds, "last_cache_bytes", lambda: 4_096)
    small = {"src_len": 4, "tgt_len": 3, "candidates": 12, "vocab": 40, "product_batches": (2,), "product_size": 16}
    setting = Setting(beam=3, rounds=2, systems=("S1", "E1"), **small)  # type: ignore[arg-type]
    progress: list[tuple[int, int, str]] = []
    speeds = sharp_speeds.sharp_speeds(setting, lambda *step: progress.append(step))
    assert progress == [(place, 4, what) for place, what in enumerate(sharp_speeds.STEPS)]
    rungs, counts = speeds.ladder("polynomial"), speeds.counts
    assert rungs == list(RUNGS)
    assert speeds.ladder("table") == [*RUNGS[:4], "activations, table", "merge, table"], "the first are timed once for both"
    counted = counts["multiply_adds"][rungs].tolist()
    assert counted[1] == counted[0] and counted[2] < counted[1] and counted[3] < counted[2] and counted[5] < counted[4]
    single, double = counts.loc["S1"], counts.loc["E1"]
    assert double["multiply_adds"] == pytest.approx(2 * single["multiply_adds"])
    assert double["activations"] == 2 * single["activations"]
    assert single["activations"] == 3 * (3 * 16 + 16) + 2 * 3 * 8 * 4 / 3, "gates and query, and the source side"
    assert single["source_recurrent"] == 2 * 3 * 8 * 8 * (4 - 1) / 3, "both directions, from the second position on"
    decoders = [*rungs, "activations, table", "merge, table", "S1", "E1"]
    assert {*speeds.sentences} == {*speeds.sources} == {*counts.index} == {*decoders}
    assert ((speeds.sources > 0) & (speeds.sources < speeds.sentences))[speeds.sentences.notna()].sum().min() >= 2, "SHARP-11"
    assert speeds.ratio("E1", "S1") < 1.5
    names = ("int16", "float32", "torch", "numpy")
    assert {*speeds.products} == {(name, 2, cold) for name in names for cold in (False, True)}
    assert [*speeds.activations] == ["library", "table", "polynomial"]


@pytest.fixture
def model(tmp_path: Path) -> str:
    file = tmp_path / "tiny.yaml"
    file.write_text("{kind: gru, layers: 1, hidden: 16, embedding: 16, src_vocab: 60, tgt_vocab: 60}")
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
