"""How often 90 % prediction intervals hold the truth of synthetic boxes that are calibrated, predicted and run as they are.

`make check-deep` predicts 300 pairs of boxes by whole runs, and judges the calibration alone on 300 boxes. The suite judges the
calibration alone on a few.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simnmt.base.arrays import Floats
from simnmt.calibrate.harness import STRETCH_CALLS
from simnmt.calibrate.parts import execution_cells
from simnmt.calibrate.parts.execution import ROUNDS, execution_block
from simnmt.calibrate.settings import Settings
from simnmt.experiment.cases import RunPlan, Unit
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.run import run_plan
from simnmt.experiment.targets import Target
from simnmt.experiment.units import run_unit
from simnmt.profile.calibration_error import CalibrationDraws
from simnmt.profile.device_profile import checked_profile
from simnmt.results.statistics import PREDICTED, prediction_interval
from simnmt.scenario.document import document_of
from simnmt.scenario.validation import validate
from tests.campaigns.harness import SCALE, SEED

SETTINGS = Settings("gru", mode="full", threads=1, max_src_len=100, max_tgt_len=100)
CELLS = execution_cells(SETTINGS)
DRAWS, REPLICATIONS, REQUESTS = 40, 4, 400
TRUTH_REPLICATIONS = 40
LENGTHS = {"lognormal": {"src_mean": 20, "src_sd": 12, "sentences": 5_000}}
VARIANTS = ("plane", "drift", "curved", "heavy tail", "all")


@dataclass(frozen=True)
class Box:
    """The true times of a box, in seconds."""

    plane: tuple[float, float, float]
    """Seconds per source token, per target token, fixed."""
    curvature: tuple[float, float]
    """Growth of a target token's cost over 100 target tokens, and over 100 source tokens."""
    noise: float
    """Standard deviation of the logarithm of a time."""
    tail: float
    """Share of the executions that are disturbed, by half on average."""
    drift: float
    """Standard deviation of the logarithm of the speed of a stretch."""

    @staticmethod
    def drawn(variant: str, speed: float, random: np.random.Generator) -> Box:
        """Draw a box; `speed`: how much faster it is than a small one."""
        plane = random.uniform((0.2e-3, 2e-3, 2e-3), (0.8e-3, 4e-3, 10e-3)) / speed
        curved, heavy, drifts = (variant in (name, "all") for name in ("curved", "heavy tail", "drift"))
        return Box(
            plane=tuple(plane.tolist()),
            curvature=tuple((0.12 * random.standard_normal(2) * curved).tolist()),
            noise=float(random.uniform(0.01, 0.06)),
            tail=float(random.uniform(0.01, 0.05)) * heavy,
            drift=float(random.uniform(0.005, 0.015)) * drifts,
        )

    def mean_s(self, src_len: Any, tgt_len: Any) -> Floats:
        """Mean of undisturbed executions."""
        src, tgt = np.asarray(src_len, float), np.asarray(tgt_len, float)
        by_src, by_tgt, fixed = self.plane
        return by_src * src + by_tgt * tgt * (1.0 + self.curvature[0] * tgt / 100 + self.curvature[1] * src / 100) + fixed

    def factors(self, standard_normal: Floats) -> Floats:
        """Noise of executions by standard normal numbers; their last digits decide which ones are disturbed."""
        factor = np.exp(self.noise * standard_normal - 0.5 * self.noise**2)
        if not self.tail:
            return factor
        uniform = np.mod(np.abs(standard_normal) * 1e6, 1.0)
        return factor * np.where(uniform < self.tail, 1.0 - 0.5 * np.log(np.maximum(uniform / self.tail, 1e-12)), 1.0)

    def profile(self, name: str, random: np.random.Generator) -> dict[str, Any]:
        """The content of the profile that a calibration of the box would write."""
        order = np.concatenate([random.permutation(len(CELLS)) for _ in range(ROUNDS)])
        columns = {name: np.array([getattr(work, name) for work in CELLS])[order] for name in ("src_len", "tgt_len")}
        stretch = np.arange(order.size) // STRETCH_CALLS
        speed = np.exp(self.drift * random.standard_normal(stretch[-1] + 1))[stretch]
        seconds = speed * self.mean_s(**columns) * self.factors(random.standard_normal(order.size))
        rows = pd.DataFrame({**columns, "seconds": seconds, "stretch": stretch, "attempt": 0})
        execution = execution_block(rows, SETTINGS)
        content = {
            "schema_version": 2,
            "name": name,
            "device": {"name": name, "details": "made up"},
            "model": {"name": "a model", "vocab": 32_000},
            "length_unit": {"src": "subword", "tgt": "subword", "end_of_sentence": "target"},
            "valid_range": {"src_len": [1, 100], "tgt_len": [1, 100]},
            "execution": execution.model_dump(mode="json"),
            "provenance": {"source": "made up", "date": "2026-01-01", "tool": "a test"},
        }
        return checked_profile(content).model_dump(mode="json")


@dataclass(frozen=True, slots=True)
class TrueTarget(Target):
    """A target that takes the true times of a box."""

    box: Box | None = None

    def in_memory_s(self, src_len: Any, tgt_len: Any, noise: Floats) -> Floats:
        assert self.box is not None
        return self.box.mean_s(src_len, tgt_len) * self.box.factors(noise)


def covered(number: int, folder: Path, seed: int) -> dict[tuple[str, str], bool]:
    """Predict one pair of boxes; return whether each interval holds the truth, by policy and quantity, if it has a width."""
    random = np.random.default_rng([seed, number])
    variant = VARIANTS[number % len(VARIANTS)]
    boxes = {"gateway": Box.drawn(variant, 1.0, random), "cloud": Box.drawn(variant, 3.0, random)}
    for name, box in boxes.items():
        (folder / f"{name}.json").write_text(json.dumps(box.profile(name, random)), encoding="utf-8")
    usual_s = float(boxes["gateway"].mean_s(20, 20))
    rate_rps = random.uniform(0.3, 0.7) / usual_s
    scenario = {
        "version": 1, "name": "boxes", "requests": REQUESTS, "replications": REPLICATIONS, "seed": number + 1,
        "fit": {"inferences": 0},
        "workloads": {"news": {"lengths": LENGTHS, "arrivals": {"kind": "poisson", "rate_rps": rate_rps}}},
        "networks": {"n": {"rtt": {"constant_ms": 1e3 * usual_s * random.uniform(0.3, 0.9)}}},
        "devices": {name: {"profile": str(folder / f"{name}.json"), "outside_range_share": 0.05} for name in boxes},
        "policies": {"edge": {}, "cnmt": {"sees_backlog": True}},
        "profile_uncertainty": {"profiles": DRAWS},
    }  # fmt: skip
    plan = read_inputs(validate(document_of(scenario)), folder)
    rows = run_plan(plan).summary_rows
    truth = true_means(plan, boxes)
    outcomes = {}
    for row in rows:
        for name in PREDICTED:
            low, high = (row[f"{name}_predicted_{end}"] for end in ("low", "high"))
            if low is not None and low < high:
                outcomes[row["policy"], name] = low <= truth[row["policy"], name] <= high
    return outcomes


def true_means(plan: RunPlan, boxes: dict[str, Box]) -> dict[tuple[str, str], float]:
    """Means over many replications on the true boxes, under policies that know the profiles; by policy and quantity."""
    (case,), ((network, links),) = plan.cases.values(), plan.networks.items()
    targets = tuple(
        TrueTarget(target.device, target.profile, target.doubts, box=boxes[target.device]) for target in case.targets
    )
    true_case = replace(case, targets=targets)
    sums: dict[tuple[str, str], list[float]] = {}
    for replication in range(1_000, 1_000 + TRUTH_REPLICATIONS):
        unit = Unit(plan.scenario, true_case, network, links, replication, calibrated=case)
        for place, numbers in run_unit(unit).numbers.items():
            for name in PREDICTED:
                sums.setdefault((place.policy, name), []).append(float(numbers[name] or 0.0))
    return {key: float(np.mean(values)) for key, values in sums.items()}


def execution_covered(number: int, seed: int) -> bool:
    """Calibrate one box; return whether the interval of its drawn profiles holds the true mean execution time."""
    random = np.random.default_rng([seed, number])
    box = Box.drawn(VARIANTS[number % len(VARIANTS)], 1.0, random)
    src_len = np.clip(np.round(random.lognormal(np.log(17), 0.55, 512)), 1, 100)
    tgt_len = np.clip(np.round(src_len * random.lognormal(0.0, 0.12, 512)) + 1, 1, 100)
    error = CalibrationDraws(checked_profile(box.profile("box", random)), src_len, tgt_len)
    drawn_s = np.array([error.draw(random).plane.seconds(src_len, tgt_len).mean() for _ in range(DRAWS)])
    low_s, high_s = prediction_interval(0.0, drawn_s, np.zeros(1), 0.9)
    # A disturbance adds half of the time on average.
    return bool(low_s <= box.mean_s(src_len, tgt_len).mean() * (1.0 + 0.5 * box.tail) <= high_s)


DEEP = SCALE > 1.0
BOXES = round(30 * SCALE) if DEEP else 6


def test_intervals_of_the_calibration_alone_hold_the_mean_execution_time_of_90_percent_of_the_boxes() -> None:
    share = float(np.mean([execution_covered(number, SEED) for number in range(BOXES)]))
    # Of 6 boxes fewer than 4 are covered once in 60 cases.
    assert 0.85 <= share <= 0.95 if DEEP else share >= 0.6


@pytest.mark.deep
def test_prediction_intervals_of_whole_runs_hold_the_truth_of_90_percent_of_the_boxes(tmp_path: Path) -> None:
    outcomes: dict[str, list[bool]] = defaultdict(list)
    for number in range(BOXES):
        folder = tmp_path / str(number)
        folder.mkdir()
        for (_, name), holds in covered(number, folder, SEED).items():
            outcomes[name].append(holds)
    shares = {name: round(float(np.mean(those)), 3) for name, those in outcomes.items()}
    assert 0.85 <= shares["mean_latency_s"] <= 0.95, shares
    assert shares["p95_latency_s"] >= 0.8 and shares["offloaded_share"] >= 0.8, shares
