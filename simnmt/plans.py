"""The public function of plans: the capacity of a deployment under a service level, or the least deployment for a rate."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from simnmt.api import Scenario, check_jobs
from simnmt.base.errors import InputError
from simnmt.experiment.run import Progress
from simnmt.scenario.document import Override, overrides_of_call
from simnmt.scenario.source import open_source
from simnmt.scenario.varied_keys import VariedKey, parse_varied_key

if TYPE_CHECKING:
    from simnmt.experiment.plan.capacity import Capacities
    from simnmt.experiment.plan.deployment import DeploymentPlan, Minimised


def plan(
    scenario: str | os.PathLike[str] | Mapping[str, object] | Scenario,
    slo: str | Iterable[str] = (),
    *,
    rate: float | None = None,
    minimise: Minimised | None = None,
    vary: Iterable[str | VariedKey] = (),
    overrides: Iterable[str | Override] = (),
    requests: int | None = None,
    replications: int | None = None,
    seed: int | None = None,
    precision: float | None = None,
    certainty: float | None = None,
    jobs: int | None = 1,
    progress: Progress | None = None,
    allow_code: bool = False,
) -> Capacities | DeploymentPlan:
    from simnmt.experiment.plan.basis import opener, parse_level
    from simnmt.experiment.plan.capacity import find_capacities
    from simnmt.experiment.plan.deployment import find_deployment

    check_jobs(jobs)
    keys = [parse_varied_key(key) if isinstance(key, str) else key for key in vary]
    needless = (
        {"minimise": minimise, "vary": keys or None, "certainty": certainty} if rate is None else {"precision": precision}
    )
    for name, value in needless.items():
        if value is not None:
            what = f"{name} has no effect {'without' if rate is None else 'with'} a rate"
            raise InputError(what, remedy=f"give no {name}")
    given = overrides_of_call(overrides, requests=requests, replications=replications, seed=seed)
    if isinstance(scenario, Scenario):
        source, allow_code = scenario.open(given), scenario._allow_code
    else:
        source = open_source(scenario, given, allow_code=allow_code)
    level = parse_level([slo] if isinstance(slo, str) else slo, source)
    open_plan = opener(source, level, allow_code=allow_code)
    if rate is None:
        precision = 0.02 if precision is None else precision
        return find_capacities(open_plan, level, precision=precision, jobs=jobs or os.cpu_count() or 1, progress=progress)
    return find_deployment(
        keys,
        open_plan,
        level,
        rate_rps=rate,
        minimised=minimise or "servers",
        certainty=0.95 if certainty is None else certainty,
        progress=progress,
    )
