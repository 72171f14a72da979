"""Check before a run that it will know the metrics by which it is judged, and that its requests suffice for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from simnmt.base.errors import InputError
from simnmt.experiment.cases import Case, RunPlan
from simnmt.experiment.energy_setup import unknown_spending
from simnmt.results.metrics import Assertion, Metric, columns_of, metric, objective_metric
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Document
from simnmt.scenario.errors import Location, ScenarioError, format_location


def check_criteria(plan: RunPlan, document: Document | None = None) -> None:
    """Check the objective, the service level and the further metrics of a scenario.

    Raises `ScenarioError` with the key, and with its place where there is a `document`, for a metric that the run of a
    deployable policy would not know.
    """
    deployable = [name for name, policy in plan.scenario.policies.items() if not policy.knows_truth]
    for location, known, is_limited in _metrics(plan.scenario):
        policies = deployable if is_limited or known.label else []
        error = next(filter(None, (_fault(plan, known, policy) for policy in [None, *policies])), None)
        if error is not None:
            if document is not None:
                raise document.error(location, error.what, remedy=error.remedy, key=True)
            raise ScenarioError(f"{format_location(location)}: {error.what}", remedy=error.remedy)


def check_assertion(plan: RunPlan, assertion: Assertion) -> None:
    """Raise `InputError` for an assertion on a metric that the run will not know, of the named policy or of any."""
    known = assertion.requirement.metric
    policies = [assertion.policy] if assertion.policy is not None else list(plan.scenario.policies)
    faults = [_fault(plan, known, policy) for policy in policies]
    if faults[0] is not None and None not in faults:
        raise InputError(f"{assertion}: {faults[0].what}", remedy=faults[0].remedy)


def with_metrics(plan: RunPlan, assertions: Iterable[Assertion]) -> RunPlan:
    """Return the plan whose scenario also names the metrics of assertions that it would not measure."""
    scenario = plan.scenario
    measured = {*columns_of(scenario.measured_metrics)}
    asserted = dict.fromkeys(assertion.requirement.metric for assertion in assertions)
    added = [known.name for known in asserted if known.column not in measured]
    if not added:
        return plan
    return replace(plan, scenario=scenario.model_copy(update={"metrics": [*scenario.metrics, *added]}))


def _metrics(scenario: ScenarioConfiguration) -> Iterator[tuple[Location, Metric, bool]]:
    """Yield the location of each metric in the scenario, the metric, and whether it is part of the service level."""
    yield ("objective",), objective_metric(scenario.objective), False
    for name, requirement in zip(scenario.slo or {}, scenario.requirements, strict=True):
        yield ("slo", name), requirement.metric, True
    for number, name in enumerate(scenario.metrics):
        yield ("metrics", number), metric(name), False


def _fault(plan: RunPlan, known: Metric, policy: str | None) -> InputError | None:
    """Return why a run would not know a metric, of a policy or whatever the policy; None if it would know it."""
    scenario, name = plan.scenario, f"{known.name} is not known"
    try:
        known.check_requests(scenario.requests - scenario.warm_up_requests)
    except InputError as error:
        return error
    if policy is None:
        return None
    for case in plan.cases.values():
        if known.label and (unknown := unknown_spending(scenario, case, known.column)) is not None:
            return InputError(f"{name}: {unknown[0]}", remedy=unknown[1])
        if known.name == "deadline_met_share" and scenario.workloads[case.name].deadline_ms is None:
            what = f"{name}: workload {case.name} has no deadline"
            return InputError(what, remedy=f"give workloads.{case.name}.deadline_ms, or leave it out")
        for device in scenario.policies[policy].devices_of(list(scenario.devices)) if known.sample == "first_token" else ():
            if not _knows_first_tokens(case, device):
                what = f"{known.name} of {policy} is not known: {device} executes requests of {case.name} one by one"
                remedy = "let it batch in an open or closed loop, or leave out the policy or the metric"
                return InputError(what, remedy=remedy)
    return None


def _knows_first_tokens(case: Case, device: str) -> bool:
    """Return whether a device decodes step by step, so that the end of the first step is known."""
    target = next(target for target in case.targets if target.device == device)
    return target.streamed is not None or (case.batches and target.decoding is not None)
