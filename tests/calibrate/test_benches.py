"""The benches of the output layer (FVP-09, FVP-15) and of the sharp decoder, measured in small."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from simnmt.calibrate import sharp_speeds
from simnmt.calibrate import vocabulary_bench as benching
from simnmt.calibrate.projection_bench import StagePoint, fit_stage, read_bench
from simnmt.calibrate.sharp_speeds import Setting
from simnmt.calibrate.vocabulary_bench import active_steps, dense_steps, random_layer, random_step
from simnmt.cli.vocab import app
from simnmt.nmt.architecture import SHARP_MODELS, AttentionalArchitecture
from simnmt.profile.decoder_settings import DecoderSettings, ladder
from tests.kernels.implementations import needs_compiled
from tests.papers.vocab_stand_ins import cost, stage


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pushes all else out of the cache takes milliseconds each time."""
    monkeypatch.setattr(benching, "last_cache_bytes", lambda: 4_096)


def test_every_whole_step_finds_the_same_tokens() -> None:
    """Straight into the search, and scattered as published (XP-02); with all columns active those of dense."""
    layer = random_layer(900, 24, 30)
    for share in (0.1, 1.0):
        drawn = random_step(layer, 6, share)
        runs = active_steps(layer, drawn, torch.empty(6, 900))
        straight, scattered = runs["columns"](), runs["scattered"]()
        assert torch.equal(straight, scattered)  # type: ignore[arg-type]
        dense = {name: run().columns for name, run in dense_steps(layer, drawn.hidden).items()}  # type: ignore[attr-defined]
        assert set(dense) == {"whole", "linear", "pieces"}
        for columns in dense.values():
            assert torch.equal(columns, dense["whole"])
            assert torch.equal(columns, straight.long()) == (share == 1.0)  # type: ignore[attr-defined]


def test_the_verb_times_each_setting_judges_its_fit_and_writes_the_document(tmp_path: Path) -> None:
    sizes = "--vocab 900 --width 24 --rows 1 --rows 6 --share 5 --share 20 --clusters 30 --rounds 1"
    done = CliRunner().invoke(app, ["bench", *sizes.split(), "--out", str(tmp_path / "bench.json")], catch_exceptions=False)
    assert "steps:\n" in done.stdout and "dense is faster above:\n" in done.stdout
    written = read_bench(tmp_path / "bench.json")
    assert written.setting.vocabs == (900,) and written.kind == "measured"
    assert sorted(one.rows for one in written.steps if one.fitted) == [1, 1, 6, 6]
    assert sorted(one.rows for one in written.steps if not one.fitted) == [1, 1, 4, 4, 6, 6], "shares and rows between"
    for one in written.steps:
        assert min(*one.stages_s.values(), one.dense_s, one.columns_s, one.ratio, one.scattered_ratio) > 0.0
        assert one.predicted_s == pytest.approx(written.costs[0].step_s(round(one.columns), one.rows, 30))
    assert [(cost.vocab, cost.width, cost.product.rows) for cost in written.costs] == [(900, 24, (1, 6))]


@pytest.mark.parametrize(
    ("fixed_us", "us_per_percent", "dense_us", "expected"), [(150.3, 12.05, 720.0, 0.4728), (165.2, 4.02, 600.0, None)]
)
def test_break_even_of_the_published_lines(
    fixed_us: float, us_per_percent: float, dense_us: float, expected: float | None
) -> None:
    """FVP-09: 150.3 us + 12.05 us for each percent against 720 us dense; FVP-15's two models' own lines."""
    product = stage(s_per_column=1e-6 * us_per_percent / 2_500)
    known = cost(assign=stage(1e-6 * fixed_us), product=product, dense=stage(1e-6 * dense_us))
    assert known.break_even(40, 2000) == (None if expected is None else pytest.approx(expected, abs=1e-4))


@given(st.floats(1e-6, 1e-3), st.floats(0.0, 1e-6), st.lists(st.integers(100, 50_000), min_size=2, max_size=9, unique=True))
def test_costs_are_found_again(fixed_s: float, s_per_column: float, columns: list[int]) -> None:
    """The lines that made the times, for each number of rows, in any order."""
    points = [StagePoint(rows, many, rows * (fixed_s + s_per_column * many)) for many in columns for rows in (8, 1)]
    fitted = fit_stage(points)
    assert fitted.rows == (1, 8)
    for rows, many, seconds in points:
        assert fitted.seconds(rows, many) == pytest.approx(seconds, rel=1e-6)
    assert fitted.seconds(4, 1e3) == pytest.approx(4 * (fixed_s + s_per_column * 1e3), rel=1e-5)
    assert fit_stage(points[:1]).seconds(8, 1e6) == pytest.approx(points[0].seconds), "a constant, where columns do not differ"


SMALL = AttentionalArchitecture(
    kind="attentional", hidden=16, embedding=8, source_layers=1, source_hidden=8, src_vocab=36, tgt_vocab=36
)


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
