"""Lengths of text against what a trained model does with it: the end-of-sentence token is read, and costs a step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from simnmt.batching import top_up
from simnmt.calibrate.calibration import calibrate
from simnmt.calibrate.settings import Settings
from simnmt.nmt.training.recipe import CorpusFiles
from simnmt.nmt.training.trainer import Budget
from simnmt.nmt.training.translation import train_translation as train
from simnmt.nmt.translation import Translator
from simnmt.profile.device_profile import DeviceProfile, checked_profile
from simnmt.profile.doubts import alone_vs_plane
from simnmt.profile.profile_summary import facts
from simnmt.workload.length_table import LengthTable
from simnmt.workload.length_units import unit_and_counter
from simnmt.world.engine import decode_all
from tests.calibrate.conftest import nobody_else  # noqa: F401  (used by every test)
from tests.calibrate.engines import FakeEngine
from tests.nmt import toy_language
from tests.nmt.test_training import QUICK
from tests.profile.made_profile import whole_profile

READ_S, STEP_S = 0.001, 0.01
"""A source token, and a decode step, of a made-up device."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ends")
    torch.set_num_threads(1)
    text = CorpusFiles(*toy_language.write(folder, 1_000))
    train(text, folder / "model", replace(QUICK, heldout=30), budget=Budget(steps=90), threads=1)
    return folder / "model"


def device() -> DeviceProfile:
    """Each token read takes `READ_S`, each step `STEP_S`, alone or in a batch; as `simnmt calibrate` counts them."""
    content = whole_profile()
    content["length_unit"] = {"src": "word", "tgt": "word", "end_of_sentence": "both"}
    content["execution"]["plane"] = {"s_per_src_token": READ_S, "s_per_tgt_token": STEP_S, "s_fixed": 0.0}
    grid = {"kind": "synthetic", "batch": [1, 8]}
    content["step"] = grid | {"position": [0, 50], "seconds": [[STEP_S, STEP_S]] * 2}
    content["encoder"] = grid | {"src_len": [1, 50], "seconds": [[READ_S, 50 * READ_S]] * 2}
    return checked_profile(content)


@pytest.mark.deep
def test_simulated_requests_cost_the_steps_and_tokens_of_real_decoding(trained: Path) -> None:
    """Lengths as a corpus has them, in the pieces of the model's own tokenisers; without the end each is one short."""
    translator = Translator.load(trained)
    lines = [source for source, _ in toy_language.pairs(40, seed=9)]
    done = [translation for translation in translator.translate(lines) if translation.ended]
    assert len(done) >= 30
    assert [translation.steps for translation in done] == [translation.tgt_len + 1 for translation in done]
    pieces = unit_and_counter(f"sentencepiece:{trained / 'source.model'}")[1]
    text_len = [pieces(line) for line, translation in zip(lines, translator.translate(lines), strict=True) if translation.ended]
    assert [translation.src_len for translation in done] == [length + 1 for length in text_len]

    table = LengthTable.of_pairs("corpus", "a test", "word", "word", text_len, [translation.tgt_len for translation in done])
    profile = device()
    charged = table.counting(profile.length_unit.end_of_sentence)
    really_s = READ_S * sum(translation.src_len for translation in done) + STEP_S * sum(
        translation.steps for translation in done
    )
    assert profile.plane.seconds(charged.src_len, charged.tgt_len) @ charged.count == pytest.approx(really_s)
    src_len, tgt_len = charged.src_len.repeat(charged.count), charged.tgt_len.repeat(charged.count)
    decoded = decode_all(top_up(1, 0), profile.decoding_cost, src_len, tgt_len)
    assert decoded.account.steps.sum() == sum(translation.steps for translation in done)
    assert (profile.plane.seconds(table.src_len, table.tgt_len) @ table.count) < really_s, (
        "lengths of text alone charge too little"
    )


def test_a_calibration_with_a_beam_records_steps_per_token_and_the_simulation_uses_them(trained: Path, tmp_path: Path) -> None:
    """Counted over the same sentences; a plane, and steps, of forced lengths know nothing of them."""
    settings = Settings(
        str(trained), beam=4, text=str(trained.parent / "one.txt"), mode="quick", threads=1, parts=("execution", "step")
    )
    engine = FakeEngine(weights="checkpoint", model=str(trained))
    profile = calibrate(settings, tmp_path / "box.json", load=lambda *_, **__: engine).profile
    lines = (trained.parent / "one.txt").read_text().splitlines()[:200]
    done = [translation for translation in Translator.load(trained, beam=4).translate(lines) if translation.ended]
    factor = sum(translation.steps for translation in done) / sum(translation.tgt_len + 1 for translation in done)
    assert profile.beam_overrun is not None and profile.beam_overrun.kind == "measured"
    assert profile.beam_overrun.steps_per_token == pytest.approx(factor) and factor > 1.02
    assert profile.beam_overrun.sentences == len(done)
    forced = profile.of_forced_lengths
    assert profile.plane.s_per_tgt_token == pytest.approx(factor * forced.plane.s_per_tgt_token)
    assert profile.plane.s_per_src_token == forced.plane.s_per_src_token
    assert profile.decoding_cost.steps_at(4)(0, 9) == pytest.approx(factor * forced.decoding_cost.steps_at(4)(0, 9))
    deviation = alone_vs_plane(profile)
    assert deviation is not None and abs(deviation) < 0.02, "plane and steps agree with it as without"
    assert dict(facts(profile))["beam"].startswith(
        f"measured; {factor:.4g} steps a token, charged in addition; {len(done)} sentences"
    )
