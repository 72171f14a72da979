"""The rate that a deployment keeps with the error of its calibration: below the capacity, which takes profiles as exact.

The test is that of a deployment plan (`deployment.is_sure`): each run has random numbers and profiles of its own. Rates
are tried downwards from the capacity; those that are too high end after a few runs.
"""

from __future__ import annotations

from simnmt.experiment.cases import RunPlan
from simnmt.experiment.plan.candidates import Deployment, Open
from simnmt.experiment.plan.capacity import Capacities, SureRate
from simnmt.experiment.plan.deployment import CERTAINTY, DRAWS, draw_profiles, is_sure
from simnmt.experiment.plan.objectives import objective
from simnmt.experiment.plan.search import Search
from simnmt.experiment.plan.trial import Level, Site

STEP = 0.95
"""Factor between neighbouring rates that are tried."""
STEPS = 13
"""Steps below the capacity that are tried: to 0.51 of it."""


def find_sure_rate(plan: RunPlan, capacities: Capacities, level: Level, open_plan: Open) -> SureRate | None:
    """Return the rate at which a run keeps the level with the probability `CERTAINTY`, the calibration's error included.

    It is that of the best policy in the place where it takes least. None if no rate keeps the level, or if the error of no
    calibration is known; a rate of None if it lies below all that are tried.
    """
    best, scenario = capacities.best, plan.scenario
    site = Site(plan, best.workload, best.network, best.policy)
    drawn = draw_profiles((), open_plan, DRAWS) if best.is_met else None
    if drawn is None:
        return None
    simulated = 0

    for step in range(1, STEPS + 1):
        rate_rps = float(f"{best.rate_rps * STEP**step:.3g}")  # as a user would type it
        search = Search([], level, objective("servers", scenario), replications=scenario.replications, requests=best.requests)
        candidate = search.add(Deployment({}, (), best.policy, (site.at_rate(rate_rps),), (), "", {}))
        sure = is_sure(search, candidate, lambda _: drawn, CERTAINTY, DRAWS, most_draws=1)
        simulated += search.requests_simulated
        if sure and candidate.certainty is not None:
            return SureRate(rate_rps, CERTAINTY, candidate.certainty.runs, candidate.certainty.runs_met, simulated)
    return SureRate(None, CERTAINTY, 0, 0, simulated)
