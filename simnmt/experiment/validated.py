"""A run as a live validation could hold for it: engines, batching, policy, load and network; and the badge of each cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simnmt.experiment.cases import Case, RunPlan
from simnmt.experiment.targets import Target
from simnmt.network.configuration import Network
from simnmt.results.envelope import Deployment, EngineKind, badge, validated_cells
from simnmt.results.summary import Row, by_cell
from simnmt.scenario.configuration import Scenario


def deployment(scenario: Scenario, case: Case, network: Network, policy: str, offered_rps: float | None) -> Deployment:
    """Return the deployment of a workload on a network under a policy. `offered_rps`: None if the answers set the pace."""
    boxes = tuple(scenario.count_of(name, case.name) * part.workers for name, part in scenario.devices.items())
    batching = [scenario.devices[target.device].batching for target in case.targets]
    alone_s = case.targets[0].mean_alone_s(case.table)
    return Deployment(
        engines=tuple(map(_engine, case.targets)),
        boxes=boxes,
        batching=tuple("alone" if settings is None else settings.kind for settings in batching),
        policy=scenario.policies[policy].kind,
        load=None if offered_rps is None else offered_rps * alone_s / boxes[0],
        mean_rtt_s=network.link.rtt.mean_s,
    )


def _engine(target: Target) -> EngineKind | None:
    engine = target.profile.engine
    if engine is None or target.streaming is not None or target.kind != "measured":
        return None
    architecture = engine.architecture or {}
    return EngineKind(str(architecture.get("kind", "unknown")), engine.backend, engine.compute_type, engine.threads)


def badges(plan: RunPlan, rows: Sequence[Row], recommendations: Sequence[Row]) -> Iterator[Row]:
    """Yield the badge of each workload and network: that of the recommended policy, or of the first if none is."""
    cells, chosen = validated_cells(), {(row["workload"], row["network"]): row["policy"] for row in recommendations}
    for (workload, network), of_cell in by_cell(rows).items():
        row = next((row for row in of_cell if row["policy"] == chosen.get((workload, network))), of_cell[0])
        place = deployment(plan.scenario, plan.cases[workload], plan.networks[network], row["policy"], row.get("offered_rps"))
        yield {"workload": workload, "network": network, "policy": row["policy"]} | badge(place, cells).document()
