"""Executions measured in service conditions, on a box made of numbers whose times depend on the idle gap before them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.base.errors import InputError
from simnmt.calibrate import in_situ as in_situ_module
from simnmt.calibrate.in_situ import Executions, Idling, fit_service, measure_in_situ, service_works
from simnmt.calibrate.settings import CalibrationError, Gaps, Settings
from simnmt.nmt.engine import Timing, Work
from simnmt.profile.execution_fit import fit_mean_plane
from simnmt.profile.profile_file import read_profile
from simnmt.profile.profile_summary import facts
from tests.calibrate.engines import PLANE, FakeEngine
from tests.calibrate.whole_box import QUICK

IN_SITU = replace(QUICK, parts=("execution", "in_situ"))


class Box:
    """An engine and a clock: an execution after idling pays for waking up, and one in ten is disturbed."""

    def __init__(self, *, wake_s: float = 0.004, tail: float = 0.5, seed: int = 0) -> None:
        self.now_s, self.ended_s = 0.0, 0.0
        self.slept: list[float] = []
        self.runs: list[Work] = []
        self._wake_s, self._tail, self._random = wake_s, tail, np.random.default_rng(seed)

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds + 1e-4

    def expected_s(self, work: Work, idled: bool) -> float:
        src, tgt, fixed = PLANE
        return src * work.src_len + tgt * work.tgt_len + fixed + self._wake_s * idled

    def run(self, work: Work) -> Timing:
        idled = self.now_s - self.ended_s > 1e-3
        total_s = self.expected_s(work, idled) * (1.0 + self._tail * (self._random.random() < 0.1))
        self.now_s += total_s
        self.ended_s = self.now_s
        self.runs.append(work)
        return Timing(total_s, None, None)


def executions(box: Box, **keys: Any) -> Executions:
    chosen = replace(IN_SITU, mode="full", **keys)
    works = service_works(chosen)
    return measure_in_situ(box, works, chosen, sleep=box.sleep, clock=box.clock)  # type: ignore[arg-type]


def test_the_fit_recovers_the_mean_level_of_a_box_that_idles() -> None:
    box = Box()
    done = executions(box, gaps="fixed:50ms")
    block = fit_service(done, Gaps.parse("fixed:50ms"), lengths="spread")
    works = service_works(IN_SITU)
    truth_s = np.array([1.05 * box.expected_s(work, True) for work in works])
    fitted_s = block.plane.plane.seconds([work.src_len for work in works], [work.tgt_len for work in works])
    assert fitted_s == pytest.approx(truth_s, rel=0.06), "a tenth of the executions, half as long again, belongs to the mean"
    assert fitted_s.mean() == pytest.approx(truth_s.mean(), rel=0.02)
    assert block.plane.s_fixed > PLANE[2] + 0.003, "waking up is a fixed cost"
    assert block.short_over_plane == pytest.approx(1.0, abs=0.05)
    assert block.heldout_error < 0.06
    assert block.executions == len(done.seconds) == 10 * len(works)
    assert block.conditions.mean_gap_s == pytest.approx(0.0501), "as slept, not as asked for"


def test_a_box_that_never_idles_pays_for_no_waking_up() -> None:
    back_to_back = fit_service(executions(Box(tail=0.0)), Gaps(), lengths="spread")
    assert back_to_back.plane.s_fixed == pytest.approx(PLANE[2], rel=1e-6)
    assert (back_to_back.conditions.load, back_to_back.conditions.idled_share) == (1.0, 0.0)


def test_the_quantiles_of_the_residual_are_those_of_all_executions() -> None:
    block = fit_service(executions(Box(wake_s=0.0)), Gaps(), lengths="spread")
    normal = np.random.default_rng(1).standard_normal(400_000)
    drawn = block.residual.factor(normal)
    assert drawn.mean() == pytest.approx(1.0, abs=0.002)
    assert np.quantile(drawn, 0.5) == pytest.approx(1.0 / 1.05, rel=0.02)
    assert np.quantile(drawn, 0.97) == pytest.approx(1.5 / 1.05, rel=0.03)
    assert 0.06 < (drawn > 1.25).mean() < 0.14, "one execution in ten was disturbed"
    assert drawn.std() == pytest.approx(block.residual.relative_sd, rel=0.01)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**16), sigma=st.floats(0.05, 0.8))
def test_mean_times_with_a_heavy_tail_are_fitted_without_bias(seed: int, sigma: float) -> None:
    """Weights of measured times would put the plane far below the mean; ours are checked against equal weights per pair."""
    random = np.random.default_rng(seed)
    src, tgt = (axis.ravel() for axis in np.meshgrid((2.0, 20.0, 80.0), (1.0, 4.0, 16.0, 64.0)))
    mean_s = 0.0004 * src + 0.003 * tgt + 0.005
    # Both factors of each pair together have the mean one, so that the truth is known without chance.
    high = 1.0 + sigma * random.uniform(0.1, 1.0, src.size)
    time_s = np.concatenate([mean_s * high, mean_s * (2.0 - high)])
    fit = fit_mean_plane(np.tile(src, 2), np.tile(tgt, 2), time_s)
    assert fit.plane.seconds(src, tgt) == pytest.approx(mean_s, rel=1e-5)
    assert fit.factor.mean() == pytest.approx(1.0)
    assert fit.heldout_error == pytest.approx(0.0, abs=1e-5)


def test_the_reference_is_executed_between_the_others_and_records_the_pace_of_the_box() -> None:
    box = Box(tail=0.0)
    done = executions(box, gaps="fixed:100ms")
    assert done.reference == Work(8, 4)
    begin_s = 0.0
    spans_s = []
    for work in box.runs[3:]:
        begin_s += box.expected_s(work, True) + 0.1
        if work == done.reference:
            spans_s.append(begin_s)
            begin_s = 0.0
    assert len(done.reference_s) > 50
    assert max(spans_s[1:]) < 2.0, "half a second and the longest execution"
    block = fit_service(done, Gaps.parse("fixed:100ms"), lengths="spread")
    assert block.reference.repeats == len(done.reference_s)
    assert block.reference.median_s == pytest.approx(box.expected_s(done.reference, False)), "it follows an execution at once"


@settings(max_examples=25)
@given(rate=st.floats(0.5, 200.0), execution_s=st.floats(0.001, 0.5), seed=st.integers(0, 2**16))
def test_a_poisson_workload_leaves_the_box_idle_as_long_as_it_is_not_busy(rate: float, execution_s: float, seed: int) -> None:
    """Of an M/D/1 queue, the load is known: arrivals times execution."""
    idling = Idling(Gaps("poisson", rate_rps=rate), np.random.default_rng(seed))
    gaps_s = np.array([idling.after(execution_s) for _ in range(4000)])
    load = rate * execution_s
    assert gaps_s.min() >= 0.0
    busy = execution_s / (execution_s + gaps_s.mean())
    if load > 1.5:
        assert gaps_s[1000:].sum() == 0.0, "a box that cannot keep up never idles"
    elif load < 0.8:
        assert busy == pytest.approx(load, rel=0.15, abs=0.01)
        assert (gaps_s > 0.0).mean() == pytest.approx(1.0 - load, abs=0.08)


def test_without_gaps_nothing_is_slept() -> None:
    box = Box()
    executions(box)
    assert box.slept == []


def test_no_round_is_begun_that_would_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_situ_module, "WITHIN_S", 60.0)
    heard: list[str] = []

    class Ear:
        def say(self, text: str) -> None:
            heard.append(text)

        def measured(self, part: str, done_s: float, left_s: float) -> None:
            assert left_s >= 0.0

    box, chosen = Box(), replace(IN_SITU, mode="full", gaps="fixed:300ms")
    works = service_works(chosen)
    done = measure_in_situ(
        box,  # type: ignore[arg-type]
        works,
        chosen,
        sleep=box.sleep,
        clock=box.clock,
        listener=Ear(),
    )
    assert len(done.works) % len(works) == 0
    assert 2 * len(works) <= len(done.works) < 10 * len(works)
    assert box.now_s < 60.0 + box.now_s / (len(done.works) / len(works))
    assert len(heard) == 1


def test_works_are_the_pairs_of_the_table_with_its_shortest_targets(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    lines = ["# simnmt length table, version 1", "# name: mine", "# source: made up", "# src_unit: word", "# tgt_unit: word"]
    pairs = [f"{src},{tgt},{10 if (src, tgt) != (30, 1) else 1}" for src, tgt in itertools.product((5, 10, 30), (1, 8, 20, 40))]
    table.write_text("\n".join([*lines, "src_len,tgt_len,count", *pairs, ""]))
    works = service_works(replace(IN_SITU, lengths=str(table)))
    assert {(work.src_len - 1, work.tgt_len - 1) for work in works} == set(itertools.product((5, 10, 30), (1, 8, 20, 40)))
    assert min(work.tgt_len for work in service_works(replace(IN_SITU, lengths="@de-en-news"))) < 5
    spread = service_works(IN_SITU)
    assert {1, 100} <= {work.tgt_len for work in spread}
    assert sum(work.tgt_len < 5 for work in spread) >= 6


def test_a_table_of_three_pairs_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    lines = ["# simnmt length table, version 1", "# name: mine", "# source: made up", "# src_unit: word", "# tgt_unit: word"]
    table.write_text("\n".join([*lines, "src_len,tgt_len,count", "5,5,1", "6,6,1", "7,9,3", ""]))
    with pytest.raises(CalibrationError, match="3 distinct pairs of lengths do not determine a plane"):
        service_works(replace(IN_SITU, lengths=str(table)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("poisson", "not a kind of gaps"),
        ("poisson:0", "not a rate"),
        ("poisson:-3", "not a kind of gaps"),
        ("poisson:1e9", "not a kind of gaps"),
        ("poisson:5ms", "not a kind of gaps"),
        ("fixed:50", "not a kind of gaps"),
        ("fixed:0ms", "not a gap"),
        ("fixed:3600s", "not a gap"),
        ("uniform:3", r"give none, poisson:RATE .*, or fixed:TIME"),
    ],
)
def test_gaps_that_cannot_be_kept_are_refused(text: str, message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        Settings("gru", parts=("execution", "in_situ"), gaps=text)


def test_conditions_without_the_part_that_has_them_are_refused() -> None:
    with pytest.raises(CalibrationError, match="add in_situ to --part"):
        Settings("gru", gaps="poisson:3")


def test_a_calibration_in_situ_writes_its_block_and_completes_a_profile(
    measured: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_situ_module.time, "sleep", lambda seconds: None)
    bench = measured(replace(QUICK, parts=("execution",)), FakeEngine()).profile
    assert bench.in_service is None
    slower = FakeEngine(disturbance=lambda call: 1.2)
    done = measured(replace(QUICK, parts=("in_situ",), gaps="poisson:2000"), slower)
    profile = read_profile(tmp_path / "box.json")
    assert profile == done.profile
    assert profile.execution == bench.execution
    assert profile.in_service.conditions.gaps == "poisson"
    assert profile.in_service.kind == "measured"
    assert profile.service_level == pytest.approx(1.2, rel=0.02)
    assert profile.conditions.later[-1].parts == ("in_situ",)
    lines = dict(facts(profile))
    assert lines["in service"].startswith("executions take 1.2 times as long as in the bench; measured: ")
    assert "Poisson arrivals of 2000/s" in lines["in service holds for"]
    with pytest.raises(InputError, match="would lose its in_situ"):
        measured(replace(QUICK, parts=("execution",)))


def test_an_interrupted_calibration_does_not_measure_in_situ_twice(
    measured: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = replace(QUICK, parts=("execution", "in_situ", "disk"))

    def fails(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("simnmt.calibrate.parts.measure_disk", fails)
        with pytest.raises(KeyboardInterrupt):
            measured(wanted, FakeEngine())
    engine = FakeEngine()
    profile = measured(wanted, engine).profile
    assert profile.in_service is not None
    assert engine.calls == [], "all of it was in the journal"
