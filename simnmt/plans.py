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
    """Return how many requests per second a deployment takes under a service level or, for a rate, the least deployment.

    Args:
        scenario, overrides, requests, replications, seed, allow_code: as of `run`.
        slo: requirements that all must hold, such as `"p95_ms<=300"`; empty: those of the scenario's `slo`.
        rate: requests per second of every workload; None: the highest one is found, of the scenario as it stands.
        minimise: what is to be least at that rate: `servers` (if None), `cost`, `energy` or `latency`.
        vary: keys with the values of the candidates, such as `"devices.cloud.count=1:8"`; empty: boxes of the last device.
        precision: without a rate, replications are added until the interval reaches no further than this share; None: 0.02.
        certainty: with a rate, probability from which a deployment counts as keeping the service level; None: 0.95.
        jobs: processes by which the highest rate is found; None: one per processor.
        progress: called with the number of finished policies or candidates, a part of one included, and of all.

    Raises `InputError` for any fault of the input, also for arrivals that have no rate.

    Example:
        >>> simnmt.plan("@load-sweep", "p95_ms<=300").best.rate_rps  # doctest: +SKIP
        >>> simnmt.plan("@load-sweep", "p95_ms<=300", rate=200).choice  # doctest: +SKIP
    """
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
