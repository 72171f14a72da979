"""The benchmark of the real pipeline: every part runs on a small store, and its bars are those that the project asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")

from benchmarks import sti_pipeline, sti_unpack  # noqa: E402
from simnmt.papers.sti.pipeline import PipelineMeasurement  # noqa: E402
from simnmt.profile.streaming_cost import (  # noqa: E402
    BITS,
    ShardGeometry,
    StiCost,
)
from simnmt.streaming.store.shard_store import ShardStore  # noqa: E402
from simnmt.streaming.store.writer import write_store  # noqa: E402
from tests.papers.test_sti_reproduction import pipeline  # noqa: E402
from tests.streaming.made_encoder import made_weights  # noqa: E402

UNPACKED = {"least_ratio": 2.5, "six_over_two": 0.9}


def row(error: float = 0.0, stall: float = 0.0, simulated_stall: float = 0.0, pace_mb: float = 300.0) -> dict[str, Any]:
    changed = {"error": error, "stall_share": stall, "simulated_stall_s": simulated_stall, "pace_mb": pace_mb}
    return pipeline()["grid"][0] | {"simulated_s": 1.0} | changed


def of_bert(grid: list[dict[str, Any]], ratios: tuple[float, ...] = (5.0, 4.5), **changed: Any) -> PipelineMeasurement:
    faster = [pipeline()["faster"][0] | {"ratio": ratio} for ratio in ratios]
    return PipelineMeasurement.model_validate(pipeline(unpack=UNPACKED, faster=faster, grid=grid, **changed))


def reached(grid: list[dict[str, Any]], ratios: tuple[float, ...] = (5.0, 4.5)) -> dict[str, bool]:
    return {bar["bar"].split(",")[0]: bar["reached"] for bar in of_bert(grid, ratios).bars()}


def missed(grid: list[dict[str, Any]]) -> list[str]:
    return [name for name, is_reached in reached(grid).items() if not is_reached]


def test_bars_are_reached_at_what_is_asked_and_not_beyond() -> None:
    ten = [row(0.1, 0.15)] * 10
    assert set(reached(ten).values()) == {True}
    assert missed(ten[:9]) == ["plans predicted not to stall at the paper's skew"]
    assert missed([*ten, row(-0.11)]) == ["largest relative error of a simulated latency"]
    assert missed([*ten, row(stall=0.2)]) == ["their largest share of stall"]
    assert not reached(ten, (9.0, 3.9))["6 bits in a pipeline over 32 bits loaded first"]


def test_only_plans_at_the_skew_that_should_not_stall_are_judged_by_their_stall() -> None:
    others = [row(stall=0.9, simulated_stall=0.5), row(stall=0.9, pace_mb=80.0)]
    assert reached([*[row()] * 10, *others])["their largest share of stall"]


def test_warm_reads_and_other_models_are_held_against_no_bar() -> None:
    assert of_bert([row()] * 10).why_unjudged is None
    for measured in (of_bert([row()], layers=6), of_bert([row() | {"cold": False}])):
        assert measured.why_unjudged is not None and measured.bars() == []


def test_costs_of_rounds_are_medians_that_do_not_fall_with_bits_and_shards() -> None:
    costs = [
        StiCost(
            geometry=ShardGeometry(1, 2, 16, 32),
            io_s={bits: io_s + 0.1 * bits for bits in BITS},
            comp_s={4: comp_s},
            shard_bytes={bits: 10 * bits for bits in BITS},
            slowed=(slowed, 2.0),
        )
        for io_s, comp_s, slowed in ((1.0, (5.0, 4.0), 1.5), (2.0, (3.0, 2.0), 1.1), (9.0, (4.0, 3.0), 1.2))
    ]
    middle = sti_pipeline.middle(costs)
    assert (middle.io_s[2], *middle.comp_s[4], *middle.slowed) == pytest.approx((2.2, 4.0, 4.0, 1.2, 2.0))


def test_all_parts_run_on_a_small_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sti_pipeline, "LENGTH", 4)
    monkeypatch.setattr(sti_pipeline, "SKEW_LENGTH", 8)
    monkeypatch.setattr(sti_pipeline, "PRELOADS_MB", (0.0, 0.01))
    monkeypatch.setattr(sti_pipeline, "SHARES", (0.5, 1.0))
    monkeypatch.setattr(sti_pipeline, "unpacking", lambda: UNPACKED)
    write_store(made_weights(layers=2, heads=2, width=32, ffn=64), tmp_path / "store")
    with ShardStore.open(tmp_path / "store") as store:
        figures = sti_pipeline.measure(store, 1)
    again = json.loads(json.dumps(figures, allow_nan=False))
    assert [each["pace_mb"] for each in again["faster"]] == [80.0, 200.0]
    assert {each["length"] for each in again["grid"]} == {4, 8}
    for each in again["grid"]:
        assert each["measured_s"] > 0.0
        assert each["error"] == pytest.approx(each["simulated_s"] / each["measured_s"] - 1.0)
        assert each["stall_s"] <= each["measured_s"]
    assert again["bars"] == []
    assert [(each["pace_mb"], each["length"]) for each in again["costs"][1:]] == [(80.0, 4), (200.0, 4)]
    assert "No bar is judged: the model is not of BERT's base size." in sti_pipeline.format_figures(figures)


def test_every_way_of_unpacking_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sti_unpack, "_two_threads", lambda rounds: 1.5)
    figures = sti_unpack.unpacking(1, 240)
    assert [each["bits"] for each in figures["by_bits"]] == [2, 3, 4, 5, 6]
    assert figures["least_ratio"] == min(each["ratio"] for each in figures["by_bits"])
    assert all(len(each["others_us"]) == 2 + figures["numba"] for each in figures["by_bits"])
