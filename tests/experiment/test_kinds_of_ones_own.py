"""A policy and an arrival process of one's own are a class each: a unit runs them, and no room asks of what kind they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.experiment.units import run_unit
from simnmt.policies import Decide
from simnmt.policies.decision import Knowledge, PolicySettings
from simnmt.workload.arrivals.process import ArrivalProcess
from tests.units import plan_of, unit_of

MakeScenario = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class LongOnesAway:
    """Sends what is longer than a limit to the last target, and predicts as many tokens as it reads."""

    limit: int
    last: int

    def prepare(self, src_len: NDArray[np.int64]) -> Decide:
        away = (src_len > self.limit).tolist()
        return lambda request, delay_s: self.last if away[request] else 0

    def predicted_tgt_len(self, src_len: NDArray[np.int64]) -> NDArray[np.float64]:
        return src_len.astype(np.float64)


class LongAway(PolicySettings):
    """The longer half of the fit pairs away."""

    kind: Literal["long_away"] = "long_away"

    def policy(self, knowledge: Knowledge) -> LongOnesAway:
        return LongOnesAway(round(knowledge.fit_pairs.mean_src_len), len(knowledge.devices) - 1)


class Ticks(ArrivalProcess):
    """A request every second."""

    discipline = "open"

    def times(self, size: int, seed: int, replication: int, name: str) -> NDArray[np.float64]:
        return np.arange(1.0, size + 1.0)


def test_a_policy_runs_by_its_settings_alone(make_scenario: MakeScenario) -> None:
    plan = plan_of(make_scenario(requests=500, replications=1))
    scenario = plan.scenario.model_copy(update={"policies": {"mine": LongAway()}})
    result = run_unit(replace(unit_of(plan), scenario=scenario))
    assert result.truth is not None
    src_len, target = result.truth.src_len[:], result.trails["mine"].target[:]
    limit = round(result.learnt.fit_pairs.mean_src_len)
    np.testing.assert_array_equal(target == len(plan.scenario.devices) - 1, src_len > limit)
    assert 0.2 < (target > 0).mean() < 0.8
    predicted = result.trails["mine"].tgt_len_by_src_len
    assert predicted is not None and predicted[7] == 7.0


def test_an_arrival_process_runs_as_its_case_has_it(make_scenario: MakeScenario) -> None:
    unit = unit_of(plan_of(make_scenario(requests=100, replications=1)))
    case = replace(unit.case, arrivals=Ticks())
    result = run_unit(replace(unit, case=case))
    for trail in result.trails.values():
        np.testing.assert_array_equal(trail.arrival_s[:], np.arange(1.0, 101.0))
