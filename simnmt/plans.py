"""The public function of plans: the capacity of a deployment under a service level, or the least deployment for a rate."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from simnmt.api import Scenario, check_jobs
from simnmt.base.errors import InputError
from simnmt.experiment.criteria import check_assertion, check_criteria, with_metrics
from simnmt.experiment.inputs import InputCache, read_inputs
from simnmt.experiment.run import Progress
from simnmt.results.service_level import Assertion, Requirement
from simnmt.scenario.document import Override, overrides_of_call
from simnmt.scenario.source import open_source
from simnmt.scenario.varied_keys import VariedKey, parse_varied_key

if TYPE_CHECKING:
    from simnmt.experiment.cases import RunPlan
    from simnmt.experiment.plan.candidates import Minimised
    from simnmt.experiment.plan.capacity import Capacities
    from simnmt.experiment.plan.deployment import DeploymentPlan


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
        jobs: processes by which the highest rate is found; None: one per processor. The least deployment is found by one.
        slo: requirements that all must hold, such as `"p95_ms<=300"`; empty: those of the scenario's `slo`.
        rate: requests per second of every workload; None: the highest one is found, of the scenario as it stands.
        minimise: what is to be least at that rate: `servers` (if None), `cost`, `energy` or `latency`.
        vary: keys with the values of the candidates, such as `"devices.cloud.count=1:8"`; empty: boxes of the last device.
        precision: without a rate, replications are added, up to 20, until the interval reaches no further than this share;
            None: 0.02.
        certainty: with a rate, probability from which a deployment counts as keeping the service level, at most 0.999; None:
            0.95.
        progress: called with the number of finished policies or candidates, a part of one included, and of all.

    Raises `InputError` for any fault of the input, also for arrivals that have no rate.

    Example:
        >>> simnmt.plan("@load-sweep", "p95_ms<=300").best.rate_rps  # doctest: +SKIP
        >>> simnmt.plan("@load-sweep", "p95_ms<=300", rate=200).choice  # doctest: +SKIP
    """
    from simnmt.experiment.plan.candidates import default_key, make_candidates, objective
    from simnmt.experiment.plan.capacity import find_capacities
    from simnmt.experiment.plan.deployment import find_deployment, find_sure_rate
    from simnmt.experiment.plan.trial import Level, check_rate

    check_jobs(jobs)
    needless = (
        {"precision": precision} if rate is not None else {"minimise": minimise, "vary": vary or None, "certainty": certainty}
    )
    for name, value in needless.items():
        if value is not None:
            raise InputError(
                f"{name} has no effect {'with' if rate is not None else 'without'} a rate", remedy=f"give no {name}"
            )
    if rate is not None and not 0.0 < rate < 1e9:
        raise InputError(f"a rate of {rate:g} requests/s", remedy="give a number above 0")
    precision, certainty = 0.02 if precision is None else precision, 0.95 if certainty is None else certainty
    if not 0.0 < precision < 1.0 or not 0.0 < certainty <= 0.999:
        raise InputError("precision is above 0 and below 1, certainty above 0 and at most 0.999", remedy="give 0.02 and 0.95")
    requirements = [Requirement.parse(text) for text in ([slo] if isinstance(slo, str) else slo)]
    keys = [parse_varied_key(key) if isinstance(key, str) else key for key in vary]
    given = overrides_of_call(overrides, requests=requests, replications=replications, seed=seed)
    if isinstance(scenario, Scenario):
        source, allow_code = scenario.open(given), scenario._allow_code
    else:
        source = open_source(scenario, given, allow_code=allow_code)
    level = Level(requirements or source.scenario.requirements)
    if not level.requirements:
        raise InputError("no service level", remedy="give one as slo, such as 'p95_ms<=300', or in the scenario")
    asserted = [Assertion(requirement) for requirement in level.requirements]
    cache = InputCache()

    def open_plan(further: Iterable[Override]) -> RunPlan:
        candidate, document = source.with_overrides(further, allow_code=allow_code)
        inputs = with_metrics(read_inputs(candidate, Path.cwd(), document, cache), asserted)
        for workload in inputs.cases:
            check_rate(inputs, workload, document)
        return inputs

    inputs = open_plan(())
    check_criteria(inputs, source.document)
    for assertion in asserted:
        check_assertion(inputs, assertion)
    minimised = objective(minimise or "servers", source.scenario)
    if rate is None:
        capacities = find_capacities(inputs, level, precision=precision, jobs=jobs or os.cpu_count() or 1, progress=progress)
        return replace(capacities, sure=find_sure_rate(inputs, capacities, level, minimised, open_plan))
    warnings = []
    if not keys:
        key, warning = default_key(inputs, rate)
        keys, warnings = [key], [warning] if warning else []
    candidates = make_candidates(keys, open_plan, rate)
    return find_deployment(
        candidates, open_plan, level, minimised, rate_rps=rate, certainty=certainty, progress=progress, warnings=warnings
    )
