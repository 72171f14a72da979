"""How many words a trained model still says with what rounds, and how a calibration takes it into a profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simnmt.base.errors import InputError
from simnmt.calibrate import sharp_agreement as agreeing
from simnmt.calibrate.calibration import calibrate
from simnmt.calibrate.measurement import Silent
from simnmt.calibrate.settings import (
    CalibrationError,
    Settings,
)
from simnmt.calibrate.variant_bench import decoder_block
from simnmt.nmt.architecture import AttentionalArchitecture
from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.models import build_model
from simnmt.nmt.subwords import SOURCE_TOKENIZER, learn_vocabulary
from simnmt.profile.decoder_block import DecoderBlock
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.profile_variant import choose
from tests.calibrate.test_decoder_variants import PLAIN, Sharplike
from tests.nmt import toy_language

VOCAB = 36
SMALL = AttentionalArchitecture(
    kind="attentional", hidden=16, embedding=8, source_layers=1, source_hidden=8, src_vocab=VOCAB, tgt_vocab=VOCAB
)
SHARP = Settings("fr-en", backend="sharp", mode="quick", threads=1, parts=("execution", "decoder"))
INT16, POLYNOMIAL = DecoderSettings(gemm="int16"), DecoderSettings(activations="polynomial")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt nothing, as training would write it, and a text."""
    made = tmp_path_factory.mktemp("model")
    save_checkpoint(made, build_model(SMALL, seed=3), SMALL)
    sources = [text for pair in toy_language.pairs(300) for text in pair]
    marks = {"pad": 0, "unk": 1, "start": 2, "eos": 3}
    (made / SOURCE_TOKENIZER).write_bytes(learn_vocabulary(sources, VOCAB, side="whole", **marks))
    (made / "text.txt").write_text("\n".join(source for source, _ in toy_language.pairs(5)), encoding="utf-8")
    return made


def test_only_rounding_changes_the_agreement_which_equals_that_of_the_ladder(folder: Path) -> None:
    """Identities, beam and candidates aside: all are held teacher-forced against the same translations."""
    merged = DecoderSettings(beam=2, gemm="int16", merge=True, candidates=5)
    noise = agreeing.noise_agreement(str(folder), folder / "text.txt", [INT16, merged, POLYNOMIAL], 3)
    (rung,) = [rung for rung in agreeing.sharp_agreement(str(folder), folder / "text.txt", 3) if rung.key == "int16"]
    assert noise.share[INT16] == noise.share[merged] == rung.share
    assert (noise.tokens, noise.sentences) == (rung.tokens, 5)
    assert 0.0 < noise.share[POLYNOMIAL] <= 1.0


def test_each_variant_that_rounds_has_its_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    """XP-03: with a candidate list or not."""
    asked: list[DecoderSettings] = []

    def agreement(model: str, text: Path, variants: list[DecoderSettings], beam: int) -> agreeing.NoiseAgreement:
        assert (model, text.name, beam) == ("fr-en", "t.txt", 1)
        asked.extend(variants)
        return agreeing.NoiseAgreement({variant: 0.999 ** len(variant.noise) for variant in variants}, 1_234, 5)

    monkeypatch.setattr(agreeing, "noise_agreement", agreement)
    content, remarks = decoder_block(Sharplike(), replace(SHARP, text="t.txt"), 16, Silent)
    assert remarks == []
    assert content is not None
    block = DecoderBlock.model_validate_json(DecoderBlock.model_validate(content, strict=False).model_dump_json())
    assert block.notes[-1] == "agreement: 1,234 words of 5 sentences of t.txt, candidates aside"
    for variant in block.variants:
        assert variant.agreement == (0.999 ** len(variant.settings.noise) if variant.settings.noise else None)
        assert (variant.settings in asked) == bool(variant.settings.noise)
    choice = choose(block, PLAIN.model_copy(update={"gemm": "int16"}), name="box")
    assert (choice.how, choice.fidelity.agreement) == ("measured", pytest.approx(0.999))


def test_a_trained_folder_is_calibrated_with_its_agreement(folder: Path, tmp_path: Path) -> None:
    settings = replace(SHARP, model=str(folder), text=str(folder / "text.txt"), max_src_len=10, max_tgt_len=10)
    profile = calibrate(settings, tmp_path / "box.json").profile
    if profile.decoder is None:
        pytest.skip("only compiled kernels measure the stages of a step")
    for variant in profile.decoder.variants:
        assert (variant.agreement is None) == (not variant.settings.noise)
    assert any("words of 5 sentences of text.txt" in note for note in profile.decoder.notes)


def test_unusable_texts_are_refused_before_anything_is_measured(folder: Path, tmp_path: Path) -> None:
    for wrong in ({"backend": "torch"}, {"parts": ("execution",)}):
        with pytest.raises(CalibrationError, match=r"give --backend sharp and the part decoder, .*, or leave --text out"):
            replace(SHARP, text="t.txt", **wrong)
    (tmp_path / "small.json").write_text(SMALL.model_dump_json())
    (empty := tmp_path / "empty.txt").write_text("\n")
    cases = {
        (str(tmp_path / "small.json"), str(folder / "text.txt")): "random weights, whose translations cannot be compared",
        (str(folder), str(tmp_path / "none.txt")): "none.txt",
        (str(folder), str(empty)): "no sentence",
    }
    for (model, text), message in cases.items():
        with pytest.raises(InputError, match=message):
            calibrate(replace(SHARP, model=model, text=text), tmp_path / "box.json")
    assert not list(tmp_path.glob("box.json*"))
    with pytest.raises(InputError, match="text"):
        calibrate(replace(SHARP, model=str(folder), text=str(folder / "text.txt")), folder / "text.txt")
