"""The sharp decoder's ladder, products and agreement, measured in small."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simnmt.calibrate import decoder_speeds as fused_speeds_module
from simnmt.calibrate import sharp_agreement as agreeing
from simnmt.calibrate import sharp_speeds
from simnmt.calibrate.decoder_speeds import fused_speeds
from simnmt.calibrate.settings import CalibrationError
from simnmt.calibrate.sharp_speeds import Setting, random_weights, rung_settings
from simnmt.kernels import packed_products
from simnmt.kernels.sharp.model_shapes import DecoderShape, operations, random_sentence
from simnmt.nmt.architecture import SHARP_MODELS, AttentionalArchitecture
from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.models import LoadedModel, build_model, load_model
from simnmt.nmt.output_layer import MaskedBias
from simnmt.nmt.subwords import SOURCE_TOKENIZER, TARGET_TOKENIZER, learn_vocabulary
from simnmt.profile.decoder_settings import RUNGS, DecoderSettings
from tests.kernels.sharp_models import PAPER
from tests.nmt import toy_language

VOCAB = 36
SMALL = AttentionalArchitecture(
    kind="attentional", hidden=16, embedding=8, source_layers=1, source_hidden=8, src_vocab=VOCAB, tgt_vocab=VOCAB
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


def test_random_weights_have_the_shapes_of_the_papers_models() -> None:
    """Counted multiply-adds are those of SHARP-15's decoders."""
    names = {f"sharp-s{number}": f"S{number}" for number in (1, 4)}
    for name, weights in random_weights(names, vocab=600).items():
        shape, plain = DecoderShape.of(weights.target, 500), DecoderSettings(beam=6, gemm="float32")
        assert operations(shape, plain, 25).step == operations(PAPER[names[name]], plain, 25).step
        assert np.abs(weights.target.bottom.state).max() <= 1.0
        assert [layer.width for layer in weights.source.layers] == [512] * 3 and weights.source.width == 1_024, "SHARP-16"


def test_a_sentences_candidates_are_mostly_frequent_and_hold_the_end() -> None:
    (weights,) = random_weights(["sharp-s1"], vocab=1_000).values()
    states, candidates = random_sentence(weights.target, 25, 100, 0.95, 400)
    assert states.shape == (25, 1_024) and np.abs(states).max() <= 1.0
    assert len(set(candidates.tolist())) == 100 and 0 in candidates and (candidates < 400).mean() == 0.95


def test_all_parts_are_timed_with_their_counted_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHARP_MODELS, "small", SMALL)
    monkeypatch.setattr(sharp_speeds, "LADDER_MODEL", "small")
    monkeypatch.setattr(sharp_speeds, "SYSTEMS", {"S1": ("small", 1), "E1": ("small", 2)})
    monkeypatch.setattr(packed_products, "last_cache_bytes", lambda: 4_096)
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt nothing, as training would write it."""
    made = tmp_path_factory.mktemp("model")
    save_checkpoint(made, build_model(SMALL, seed=3), SMALL)
    sources = [text for pair in toy_language.pairs(300) for text in pair]
    marks = {"pad": 0, "unk": 1, "start": 2, "eos": 3}
    for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER):
        (made / name).write_bytes(learn_vocabulary(sources, VOCAB, side="whole", **marks))
    for name, side in (("text.txt", 0), ("references.txt", 1)):
        (made / name).write_text("\n\n".join(pair[side] for pair in toy_language.pairs(5)), encoding="utf-8")
    return made


def test_exact_rungs_change_no_word_of_a_model(folder: Path) -> None:
    rungs = agreeing.sharp_agreement(str(folder), folder / "text.txt", 3, references=folder / "references.txt")
    assert [rung.key for rung in rungs][:2] == ["baseline", agreeing.IDENTITIES]
    assert [rung.key for rung in rungs].count("merge") == 2, "with the table and with the polynomial"
    for rung in rungs:
        assert rung.sentences == 5 and 0 < rung.tokens_same <= rung.tokens and 0.0 < rung.distinct_share <= 1.0
        if rung.settings.exact:
            assert rung.share == 1.0 and rung.sentences_same == 5 and rung.bleu == rungs[0].bleu is not None, "SHARP-10"


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
    decode, stages = fused_speeds_module.decode, fused_speeds_module.stage_timer

    def seen(*given: Any, **named: Any) -> Any:
        decoded.append(named["output"].fused)
        return decode(*given, **named)

    def at(decoder: Any, batch: int, beam: int, **named: Any) -> Any:
        timed.append((batch, beam))
        return stages(decoder, batch, beam, **named)

    monkeypatch.setattr(fused_speeds_module, "decode", seen)
    monkeypatch.setattr(fused_speeds_module, "stage_timer", at)
    fused_speeds(model, 6, (1,), rounds=2, batch=4)
    warm, rounds, freely = [False, True], [False, True, True, False], [False, True]
    assert decoded == 2 * [*warm, *rounds, *freely]
    assert timed == [(batch, 1) for batch in (1, 2, 3, 4)]
