"""The output layer's bench: what is timed is the same step, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from simnmt.calibrate import projection_steps
from simnmt.calibrate.projection_bench import ProjectionBench, ProjectionCost, Setting, read_bench
from simnmt.calibrate.projection_steps import COLUMNS, SCATTERED, active_steps, dense_steps, random_layer, random_steps
from simnmt.calibrate.settings import CalibrationError
from simnmt.calibrate.vocabulary_bench import vocabulary_bench
from simnmt.cli.vocab import app
from simnmt.kernels.projection_cost import ProductMethod, StageCost

STAGES = [name for name, field in ProjectionCost.model_fields.items() if field.annotation is StageCost]
SMALL = Setting(
    vocabs=(900,),
    widths=(24,),
    rows=(1, 6),
    shares=(0.05, 0.2),
    heldout_rows=(3,),
    heldout_shares=(0.1,),
    clusters=30,
    rounds=2,
)


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pushes all else out of the cache takes milliseconds each time."""
    monkeypatch.setattr(projection_steps, "last_cache_bytes", lambda: 4_096)


@pytest.fixture(scope="module")
def benched() -> Iterator[ProjectionBench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projection_steps, "last_cache_bytes", lambda: 4_096)
        yield vocabulary_bench(SMALL)


@pytest.mark.parametrize("method", ["row_wise", "gather"])
def test_every_whole_step_finds_the_same_tokens(method: ProductMethod) -> None:
    """Straight into the search, and scattered as published (XP-02); with all columns active those of dense."""
    layer = random_layer(900, 24, 30)
    logits = torch.empty(6, 900)
    for share in (0.1, 1.0):
        steps = random_steps(layer, 6, share)
        runs = active_steps(layer, steps, method, logits)
        tokens = {name: runs[name]() for name in (COLUMNS, SCATTERED)}
        assert torch.equal(tokens[COLUMNS], tokens[SCATTERED])
        dense = {name: run().columns for name, run in dense_steps(layer, steps[0].hidden).items()}  # type: ignore[attr-defined]
        assert set(dense) == {"whole", "linear", "pieces"}
        for columns in dense.values():
            assert torch.equal(columns, dense["whole"])
            assert torch.equal(columns, tokens[COLUMNS].long()) == (share == 1.0)


@pytest.mark.parametrize(("rows", "share"), [(1, 0.02), (1, 0.2), (8, 0.06), (40, 0.12), (100, 0.2)])
def test_drawn_sets_have_the_requested_share_and_overlap(rows: int, share: float) -> None:
    layer = random_layer(20_000, 24, 200)
    for step in random_steps(layer, rows, share):
        assert len(step.columns) == pytest.approx(share * 20_000, rel=0.15)
        assert torch.equal(step.columns, step.columns.unique())
        assert torch.equal(layer.centroids.nearest(step.hidden), step.chosen), "each row falls into its cluster"
        assert torch.equal(step.columns, step.sets.union(step.chosen))
        overlap = step.indices / len(step.columns)
        assert overlap == 1.0 if rows == 1 else 1.2 < overlap < rows


def test_the_bench_times_each_setting_and_judges_its_fit(benched: ProjectionBench) -> None:
    assert sorted(step.rows for step in benched.steps if step.fitted) == [1, 1, 6, 6]
    assert sorted(step.rows for step in benched.heldout) == [1, 3, 6], "the share between, and the rows between"
    for step in benched.steps:
        assert set(step.stages_s) == {*STAGES, "search_all"} and min(step.stages_s.values()) > 0.0
        assert min(step.dense_s, step.columns_s, step.scattered_s) > 0.0
        assert step.predicted_s is not None and step.error == step.predicted_s / step.columns_s - 1.0
    errors = [abs(step.error) for step in benched.heldout if step.error is not None]
    assert benched.heldout_error == pytest.approx(sum(errors) / 3)
    [cost] = benched.costs
    for name in STAGES:
        assert getattr(cost, name).heldout_points > 0
    assert [(limit.vocab, limit.width, limit.rows) for limit in benched.break_even] == [(900, 24, 1), (900, 24, 6)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rounds": 0}, "rounds"),
        ({"shares": (0.0,)}, "share"),
        ({"vocabs": (1_000_000_000,)}, "GB are free"),
    ],
)
def test_invalid_settings_are_refused(changed: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CalibrationError, match=message) as caught:
        vocabulary_bench(Setting(**changed))  # type: ignore[arg-type]
    assert caught.value.remedy


def test_the_verb_prints_tables_and_writes_the_document(tmp_path: Path) -> None:
    sizes = "--vocab 400 --width 8 --rows 1 --rows 6 --share 5 --share 20 --clusters 10 --rounds 1"
    done = CliRunner().invoke(app, ["bench", *sizes.split(), "--out", str(tmp_path / "bench.json")], catch_exceptions=False)
    assert "Whole steps" in done.stdout
    written = read_bench(tmp_path / "bench.json")
    assert written.setting.vocabs == (400,) and written.kind == "measured"
