"""Check that a run will know the metrics by which it is to be judged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from simnmt.base.errors import InputError
from simnmt.base.suggestions import format_list
from simnmt.experiment.accounts import unknown_spending
from simnmt.experiment.cases import RunPlan
from simnmt.results.metrics import OF_DOCUMENTS, OF_QUALITY, Assertion, Metric, columns_of, metric, objective_metric
from simnmt.results.places import class_of
from simnmt.scenario.document import Document
from simnmt.scenario.errors import Location


def check_criteria(plan: RunPlan, document: Document | None = None) -> None:
    """Check the objective, the service level and the further metrics of a scenario.

    Raises `ScenarioError` with the key, and with its place where there is a `document`, for a metric that the run of a
    deployable policy would not know.
    """
    scenario = plan.scenario
    workloads = list(scenario.workloads)
    criteria: list[tuple[Location, Metric, list[str]]] = [(("objective",), objective_metric(scenario.objective), [])]
    criteria += [
        (("workloads", name, "objective"), objective_metric(objective), []) for name, objective in scenario.objectives.items()
    ]
    criteria += [(("slo", name), metric(name), workloads) for name in scenario.slo or {}]
    criteria += [
        (("workloads", workload, "slo", name), metric(name), [workload])
        for workload, part in scenario.workloads.items()
        for name in part.slo or {}
    ]
    criteria += [
        (
            ("classes", name, "slo", limited),
            metric(limited),
            [of for of in workloads if scenario.workloads[of].request_class == name],
        )
        for name, part in scenario.classes.items()
        for limited in part.slo or {}
    ]
    criteria += [(("metrics", number), metric(name), []) for number, name in enumerate(scenario.metrics)]
    deployable = [name for name, policy in scenario.policies.items() if policy.is_deployable]
    for location, known, limited in criteria:
        faults = [_lacks_documents(plan, known, _judged_alone(plan, location))]
        policies = [None, *(deployable if limited or known.label else [])]
        faults += [_fault(plan, known, policy, limited or workloads) for policy in policies]
        for error in filter(None, faults):
            raise (document or Document(None)).error(location, error.what, remedy=error.remedy, key=True)


def _judged_alone(plan: RunPlan, location: Location) -> list[str]:
    """Return the workloads whose own rows are judged by the metric of a key."""
    scenario, (key, *rest) = plan.scenario, location
    if key == "workloads":
        return [str(rest[0])]
    if key == "slo":
        limited = [name for name in scenario.workloads if scenario.requirements_of(name) == scenario.requirements]
        return [name for name in limited if scenario.workloads[name].slo is None]
    if key == "objective" and not plan.is_mixed:
        return [name for name in scenario.workloads if name not in scenario.objectives]
    return []


def _lacks_documents(plan: RunPlan, known: Metric, workloads: Iterable[str]) -> InputError | None:
    """Return the fault of a metric of documents by which workloads without any are judged; None if there is none."""
    every = plan.scenario.workloads
    without = [name for name in workloads if every[name].documents is None]
    if known.sample not in OF_DOCUMENTS or not without or not plan.scenario.has_documents:
        return None
    others = [name for name, part in every.items() if part.documents is not None]
    remedy = f"give workloads.{without[0]}.documents, or limit {format_list(others, 'or')} alone"
    return InputError(f"{known.name} is not known: workload {without[0]} has no documents", remedy=remedy)


def check_assertion(plan: RunPlan, assertion: Assertion) -> None:
    """Raise `InputError` for an assertion on a metric that the run will not know, of the named policy or of any."""
    known, name = assertion.requirement.metric, assertion.workload
    policies = [assertion.policy] if assertion.policy is not None else list(plan.scenario.policies)
    of_class = None if name is None else class_of(name)
    if of_class is None:
        workloads = [name] if name is not None else list(plan.cases)
    else:
        workloads = [one for one, part in plan.scenario.workloads.items() if part.request_class == of_class]
    faults = [_fault(plan, known, policy, workloads) for policy in policies]
    if of_class is None and (error := _lacks_documents(plan, known, workloads)) is not None:
        faults = [error]
    if faults[0] is not None and None not in faults:
        raise InputError(f"{assertion}: {faults[0].what}", remedy=faults[0].remedy)


def with_metrics(plan: RunPlan, assertions: Iterable[Assertion]) -> RunPlan:
    """Return the plan whose scenario also names the metrics of assertions that it would not measure."""
    scenario = plan.scenario
    measured = {*columns_of(scenario.measured_metrics)}
    asserted = dict.fromkeys(assertion.requirement.metric for assertion in assertions)
    added = [known.name for known in asserted if known.column not in measured]
    update = {"metrics": [*scenario.metrics, *added]}
    sites = tuple(replace(site, scenario=site.scenario.model_copy(update=update)) for site in plan.sites)
    return replace(plan, scenario=scenario.model_copy(update=update), sites=sites)


def _fault(plan: RunPlan, known: Metric, policy: str | None, workloads: Iterable[str]) -> InputError | None:
    """Return why a run would not know a metric of these workloads, of a policy or whatever the policy; None if it would."""
    scenario, name = plan.scenario, f"{known.name} is not known"
    try:
        known.check_requests(scenario.requests - scenario.warm_up_requests)
    except InputError as error:
        return error
    if known.sample in OF_DOCUMENTS and all(scenario.workloads[one].documents is None for one in workloads):
        return InputError(f"{name}: no workload has documents", remedy="give workloads.NAME.documents, or leave it out")
    if known.name in OF_QUALITY and (unscored := [one for one in workloads if plan.cases[one].quality is None]):
        remedy = f"give quality: {{{', '.join(f'{device}: FILE' for device in scenario.devices)}}}, or leave it out"
        return InputError(f"{name}: the translations of workload {unscored[0]} have no scores", remedy=remedy)
    if policy is None:
        return None
    for case in map(plan.cases.__getitem__, workloads):
        if known.label and (unknown := unknown_spending(scenario, case, known.column)) is not None:
            return InputError(f"{name}: {unknown[0]}", remedy=unknown[1])
        if known.name == "deadline_met_share" and scenario.workloads[case.name].deadline_ms is None:
            what = f"{name}: workload {case.name} has no deadline"
            return InputError(what, remedy=f"give workloads.{case.name}.deadline_ms, or leave it out")
        if known.name == "hit_share" and not scenario.has_caches:
            device = next(iter(scenario.devices))
            return InputError(f"{name}: {device} has no cache", remedy=f"give devices.{device}.cache, or leave it out")
        used = scenario.policies[policy].devices_of(list(scenario.devices)) if known.sample == "first_token" else ()
        for target in case.targets:
            # Only a device that decodes step by step knows the end of the first step.
            stepwise = target.streamed is not None or (case.batches and target.together is not None)
            if target.device in used and not stepwise:
                what = f"{known.name} of {policy} is not known: {target.device} executes requests of {case.name} one by one"
                remedy = "let it batch, or give it slots, in an open or closed loop, or leave out the policy or the metric"
                return InputError(what, remedy=remedy)
    return None
