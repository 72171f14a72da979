"""The sharp decoder's ladder and products, measured in small."""

from __future__ import annotations

from itertools import pairwise

import pytest

from simnmt.calibrate import sharp_speeds
from simnmt.calibrate.sharp_speeds import Setting, rung_settings
from simnmt.nmt.architecture import SHARP_MODELS, AttentionalArchitecture
from simnmt.profile.decoder_settings import DecoderSettings, ladder
from tests.kernels.implementations import needs_compiled

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


@needs_compiled
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
    expected = list(ladder(DecoderSettings()))
    assert rungs == expected
    assert speeds.ladder("table") == [*expected[:4], "activations, table", "merge, table"], "the first are timed once for both"
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
