"""The part `decoder` on engines made of numbers: whose stages are known, and what a drifting box must not change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate import sharp_agreement as agreeing
from simnmt.calibrate.calibration import calibrate
from simnmt.calibrate.harness import Silent
from simnmt.calibrate.parts.decoder import decoder_block
from simnmt.calibrate.settings import Settings
from simnmt.kernels.beam_search import StageSeconds
from simnmt.nmt.architecture import AttentionalArchitecture
from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.engine import EngineAccount, Timing, Work
from simnmt.nmt.errors import OutOfMemory
from simnmt.nmt.models import build_model
from simnmt.nmt.subwords import SOURCE_TOKENIZER, TARGET_TOKENIZER, learn_vocabulary
from simnmt.nmt.torch_engine import STAGES
from simnmt.profile.decoder_block import DecoderBlock
from simnmt.profile.decoder_settings import DecoderSettings
from tests.calibrate.engines import FakeEngine
from tests.kernels.implementations import needs_compiled
from tests.nmt import toy_language
from tests.profile.made_decoder import stages_s

QUICK = Settings("gru", mode="quick", threads=1)
FULL = Settings("gru", threads=1, max_batch=24)
BOOKKEEPING_S, BY_BLOCKS = 0.0003, 0.9
"""Seconds between two steps, and what is left of the product where the fused layer takes it block by block."""
PLAIN = DecoderSettings(gemm="float32", candidates=500)


class Torchlike(FakeEngine):
    """Takes the stages of `made_decoder`, and beside them some time between two steps."""

    def __init__(self, *, most_rows: int = 10**6, **account: Any) -> None:
        super().__init__(noise=0.0, **account)
        self._most_rows, self.asked = most_rows, list[tuple[int, int]]()

    def stage_timer(self, batch: int, beam: int, *, src_len: int = 20) -> Callable[[], dict[str, float]]:
        self.asked.append((batch, beam))
        if batch * beam > self._most_rows:
            raise OutOfMemory("no room")
        body, product, three = stages_s(DecoderSettings(beam=beam), batch)
        seconds = (body, product, 0.1 * three, 0.6 * three, 0.3 * three, BY_BLOCKS * product, 0.2 * three)
        return lambda: dict(zip(STAGES, seconds, strict=True))

    def run(self, work: Work) -> Timing:
        stages = self.stage_timer(work.batch, work.beam)()
        three = stages["fused"] if self.account.fused else stages["bias"] + stages["softmax"] + stages["search"]
        product = stages["fused_product"] if self.account.fused else stages["product"]
        step_s = stages["body"] + product + three + BOOKKEEPING_S
        return Timing(0.1 + work.tgt_len * step_s, 0.05, None)


class Sharplike:
    """A decoder that can be written in any way, on a box that slows down as it goes on."""

    def __init__(self, drift: Callable[[int], float] = lambda call: 1.0, lacks: DecoderSettings | None = None) -> None:
        self.account: EngineAccount = replace(
            FakeEngine().account, backend="sharp", decoder=PLAIN.model_dump(mode="json", exclude={"beam"})
        )
        self._drift, self._lacks, self.calls = drift, lacks, 0

    def stages_s(self, settings: DecoderSettings, *, src_len: int, tgt_len: int) -> StageSeconds:
        if settings == self._lacks:
            raise OutOfMemory("no room")
        times = self._drift(self.calls) * tgt_len
        self.calls += 1
        body, product, search = (times * part for part in stages_s(settings))
        once = 0.25 * body * 25 / tgt_len  # of a translation of 25 words, whatever is timed
        return StageSeconds(once, 0.75 * body, product, search)


def block_of(engine: Any, settings: Settings = QUICK, most: int = 16) -> DecoderBlock:
    block, remarks = decoder_block(engine, settings, most, Silent)
    assert remarks == []
    assert block is not None
    return block


@pytest.mark.parametrize("fused", [False, True])
def test_each_beam_is_measured_fused_and_not_at_small_and_large_batches(fused: bool) -> None:
    block = block_of(Torchlike(fused=fused))
    assert block.base == DecoderSettings(fused=fused)
    assert list(block.steps(block.base)) == [1, 4, 16]
    assert {settings.describe() for settings in block.measured} == {
        "beam 1, plain", "beam 1, fused", "beam 5, plain", "beam 5, fused",
    }  # fmt: skip
    for variant in block.variants:
        body, product, search = stages_s(variant.settings, variant.batch)
        assert variant.body_s == pytest.approx(body + BOOKKEEPING_S), "what lies between two steps is no stage of its own"
        product *= BY_BLOCKS if variant.settings.fused else 1.0
        assert (variant.product_s, variant.search_s) == (pytest.approx(product), pytest.approx(search))
        assert variant.step_s == pytest.approx(body + product + search + BOOKKEEPING_S)
    larger = block_of(Torchlike(), FULL, most=24)
    assert list(larger.steps(larger.base)) == [1, 2, 4, 8, 16, 24]


def test_ratios_of_rungs_are_exact_while_the_box_slows_down() -> None:
    """Each variant is timed in turn with the base: a box that ends at half its speed changes no ratio."""
    block = block_of(Sharplike(lambda call: 1.0 + call / 600), FULL)
    base = block.steps(PLAIN)[1]
    for variant in block.variants:
        measured, expected = variant.step_s / base.step_s, sum(stages_s(variant.settings)) / sum(stages_s(PLAIN))
        assert measured == pytest.approx(expected, rel=0.02), variant.settings.describe()
        assert variant.shares == pytest.approx([part / sum(stages_s(variant.settings)) for part in stages_s(variant.settings)])


VOCAB = 36
SMALL = AttentionalArchitecture(
    kind="attentional", hidden=16, embedding=8, source_layers=1, source_hidden=8, src_vocab=VOCAB, tgt_vocab=VOCAB
)
SHARP = Settings("fr-en", backend="sharp", mode="quick", threads=1, parts=("execution", "decoder"))
INT16, POLYNOMIAL = DecoderSettings(gemm="int16"), DecoderSettings(activations="polynomial")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt nothing, as training would write it, and a text with references."""
    made = tmp_path_factory.mktemp("model")
    save_checkpoint(made, build_model(SMALL, seed=3), SMALL)
    sources = [text for pair in toy_language.pairs(300) for text in pair]
    marks = {"pad": 0, "unk": 1, "start": 2, "eos": 3}
    for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER):
        (made / name).write_bytes(learn_vocabulary(sources, VOCAB, side="whole", **marks))
    for name, side in (("text.txt", 0), ("references.txt", 1)):
        (made / name).write_text("\n\n".join(pair[side] for pair in toy_language.pairs(5)), encoding="utf-8")
    return made


@needs_compiled
def test_only_rounding_changes_the_agreement_which_equals_that_of_the_ladder(folder: Path) -> None:
    """Identities, beam and candidates aside: all are held teacher-forced against the same translations."""
    merged = DecoderSettings(beam=2, gemm="int16", merge=True, candidates=5)
    agreements = agreeing.noise_agreement(str(folder), folder / "text.txt", [INT16, merged, POLYNOMIAL], 3)
    (rung,) = [rung for rung in agreeing.sharp_agreement(str(folder), folder / "text.txt", 3) if rung.key == "int16"]
    assert agreements[INT16].share == agreements[merged].share == rung.share and 0.0 < agreements[POLYNOMIAL].share <= 1.0
    assert (agreements[INT16].tokens, agreements[INT16].sentences) == (rung.tokens, 5)


@needs_compiled
def test_a_trained_folder_is_calibrated_with_its_agreement(folder: Path, tmp_path: Path) -> None:
    settings = replace(SHARP, model=str(folder), text=str(folder / "text.txt"), max_src_len=10, max_tgt_len=10)
    profile = calibrate(settings, tmp_path / "box.json").profile
    assert profile.decoder is not None
    for variant in profile.decoder.variants:
        assert (variant.agreement is None) == (not variant.settings.noise)
    assert any("words of 5 sentences of text.txt" in note for note in profile.decoder.notes)
