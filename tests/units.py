"""Units of whole scenarios for tests: what the world is handed for each policy, and what comes of it."""

from __future__ import annotations

import hashlib
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.experiment import units as unit_module
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.units import Unit, UnitResult, run_unit
from simnmt.results.requests import Trail
from simnmt.scenario.document import document_of
from simnmt.scenario.validation import validate
from simnmt.world.inputs import PolicySetup, World


@dataclass(frozen=True)
class Run:
    """What the world was handed for one policy, and what came of it."""

    world: World
    policy: PolicySetup
    judged_share: float
    trail: Trail


def plan_of(scenario: dict[str, Any]) -> RunPlan:
    """A scenario with all read that it names; its devices, links and policies are not checked against each other."""
    return read_inputs(validate(document_of(scenario)), Path())


def unit_of(plan: RunPlan, replication: int = 0) -> Unit:
    """Of the only workload and network."""
    (case,), ((network, links),) = plan.cases.values(), plan.networks.items()
    return Unit(plan.scenario, case, network, links, replication)


def watched(patch: pytest.MonkeyPatch, unit: Unit) -> tuple[list[Run], UnitResult]:
    """Run a unit and look on; the runs are those of the policies, then those of a gap analysis."""
    runs: list[Run] = []
    simulate = unit_module.simulate

    def noting(world: World, policy: PolicySetup, judged_share: float, engine: Any) -> Trail:
        before = replace(world, kinds=deepcopy(world.kinds))
        trail = simulate(world, policy, judged_share, engine)
        runs.append(Run(before, policy, judged_share, trail))
        return trail

    with patch.context() as patched:
        patched.setattr(unit_module, "simulate", noting)
        return runs, run_unit(unit)


def arrays_of(value: Any) -> list[np.ndarray]:
    """All columns of a dataclass of columns, of tuples of them too."""
    if value is None:
        return []
    if isinstance(value, tuple):
        return [column for part in value for column in arrays_of(part)]
    if is_dataclass(value):
        return [column for field in fields(value) for column in arrays_of(getattr(value, field.name))]
    return [np.asarray(value[:])] if hasattr(value, "__getitem__") else []


def digest(*values: Any) -> str:
    """Of the bytes of all columns in the values."""
    return hashlib.sha256(b"|".join(column.tobytes() for value in values for column in arrays_of(value))).hexdigest()
