"""Times and agreement of parts of the vocabulary on real text, and their place in a profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.batching import mini
from simnmt.calibrate.calibration import calibrate
from simnmt.calibrate.settings import Settings
from simnmt.calibrate.vocabulary_variants import TextDecoding
from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.decoder import decode
from simnmt.nmt.output_layer import Output
from simnmt.nmt.subwords import SOURCE_TOKENIZER, TARGET_TOKENIZER, learn_vocabulary
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet, save_clusters
from simnmt.nmt.vocabulary.contexts import cluster, collect
from simnmt.nmt.vocabulary.restricted_vocabulary import clustered, listed
from simnmt.profile.decoder_block import DecoderVariant
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.profile_variant import choose
from tests.nmt import toy_language
from tests.nmt.made_subsets import MadeLists, all_active
from tests.nmt.tiny import GRU, VOCAB, lively, sources

TRAINED = Settings(
    "?", mode="quick", threads=1, parts=("execution", "decoder"), max_batch=8, max_src_len=10, max_tgt_len=10, src_unit="word"
)
CLUSTERED, LISTED = DecoderSettings(vocabulary="clustered"), DecoderSettings(vocabulary="candidates")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says something, as training would write it, a text, and clusters of its contexts."""
    made = tmp_path_factory.mktemp("model")
    save_checkpoint(made, lively("gru"), GRU)
    texts = [text for pair in toy_language.pairs(300) for text in pair]
    texts += [" ".join(chr(97 + (start + step) % 26) * 2 for step in range(6)) for start in range(26)]
    for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER):
        marks = {"pad": GRU.pad_token, "unk": GRU.unk_token, "start": GRU.start_token, "eos": GRU.eos_token}
        (made / name).write_bytes(learn_vocabulary(texts, VOCAB, side="whole", **marks))
    lines = [source for source, _ in toy_language.pairs(60)]
    (made / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    translator = Translator.load(made)
    contexts = collect(translator.model, translator.encode(lines[:40]), 1)
    clusters = ClusterSet.of("one", contexts, cluster(contexts, 6, seed=1), translator.model)
    save_clusters(clusters, made / "one.clusters", translator.model)
    return made


def settings(folder: Path, **other: Any) -> Settings:
    chosen = {"model": str(folder), "text": str(folder / "text.txt"), "vocabulary": (str(folder / "one.clusters"),)}
    return replace(TRAINED, **(chosen | other))


def full(batch: int = 1, beam: int = 1, *, fused: bool = False) -> DecoderVariant:
    """A step with the whole vocabulary."""
    settings = DecoderSettings(beam=beam, fused=fused)
    return DecoderVariant(settings=settings, batch=batch, body_s=0.004, product_s=0.005, search_s=0.001)


@pytest.mark.parametrize("beam", [1, 2])
@pytest.mark.parametrize("batch", [1, 4])
def test_with_all_columns_active_nothing_changes(batch: int, beam: int) -> None:
    model, (alone, _, _) = lively("gru"), sources(GRU, [3, 9, 5, 7, 4, 12, 2, 6] * (1 if batch == 1 else 2))
    part = clustered(all_active(VOCAB, model.weight.shape[1]))
    plain, fused = TextDecoding(model, alone, {"clustered": part}, quick=True).variants(full(batch, beam))
    assert (plain.settings, plain.batch) == (DecoderSettings(beam=beam, vocabulary="clustered"), batch)
    assert fused == plain.model_copy(update={"settings": fused.settings}) and fused.settings.fused
    assert (plain.likeliest_active, plain.identical, plain.active_share) == (1.0, 1.0, 1.0)


def test_shares_and_agreement_equal_those_of_a_plain_decoding() -> None:
    """Lists of a few tokens: known columns in each step, and sentences that go astray."""
    model, (alone, _, _) = lively("gru"), sources(GRU, [3, 9, 5, 7, 4, 12, 2, 6] * 2)
    lists = MadeLists([[GRU.eos_token, 7, 8, 9], [GRU.eos_token, *range(20, 29)]], VOCAB)
    part = listed(lists)
    listed_variant = TextDecoding(model, alone, {"candidates": part}, quick=True).variants(full(fused=True))[0]
    most = [2 * len(source) + 10 for source in alone]
    whole = decode(model, alone, mini(1), max_len=most)
    restricted = decode(model, alone, mini(1), output=Output(vocabulary=replace(part, audit=True)), max_len=most)
    assert restricted.subset is not None
    same = [one.tokens == other.tokens for one, other in zip(restricted.hypotheses, whole.hypotheses, strict=True)]
    assert listed_variant.identical == sum(same) / len(same) < 1.0
    assert listed_variant.likeliest_active == 1.0 - restricted.subset.miss_rate < 1.0
    shares = restricted.subset.share
    assert set(shares) == {4 / VOCAB, 10 / VOCAB}
    assert listed_variant.active_share == pytest.approx(shares.mean())


@pytest.mark.deep
def test_a_trained_folder_is_calibrated_with_its_vocabulary(folder: Path, tmp_path: Path) -> None:
    profile = calibrate(settings(folder), tmp_path / "box.json").profile
    assert profile.decoder is not None
    known = {variant.settings for variant in profile.decoder.variants if variant.batch == 1}
    assert {CLUSTERED, CLUSTERED.model_copy(update={"fused": True})} <= known
    assert any("one.clusters" in note for note in profile.decoder.notes)
    choice = choose(profile, CLUSTERED)
    assert choice.how == "measured"
    assert choice.shares["agreement"] is None, "no step of it was teacher-forced"
    assert choice.shares["likeliest_active"] is not None and choice.shares["identical"] is not None
    assert 0.0 < choice.as_json()["active_share"]["1"] < 1.0
    variants = {(variant.settings, variant.batch): variant for variant in profile.decoder.variants}
    for batch in profile.decoder.steps(profile.decoder.base):
        if (CLUSTERED, batch) in variants:
            assert variants[CLUSTERED, batch].active_share is not None
        else:
            assert any(f"batch {batch}" in omission for omission in profile.decoder.left_out)
