"""What a plan minimises: servers, latency, cost or energy of a deployment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Literal

from simnmt.base.errors import InputError
from simnmt.experiment.plan.candidates import Deployment
from simnmt.results.summary import OBJECTIVES, Numbers, known, objective_name
from simnmt.scenario.configuration import Scenario

Minimised = Literal["servers", "cost", "energy", "latency"]


@dataclass(frozen=True, slots=True)
class Objective:
    """A number of a deployment that is to be as small as possible."""

    name: Minimised
    what: str
    """What it is, such as `p95 latency`."""
    unit: str
    per_si_unit: float
    """Factor from the SI unit to `unit`."""
    value: Callable[[Deployment, Sequence[Numbers]], float]
    """The number of a deployment from the numbers of its sites in one replication, in SI units."""

    @property
    def is_exact(self) -> bool:
        """Whether the number is known without a simulation."""
        return self.name == "servers"


def objective(name: Minimised, scenario: Scenario) -> Objective:
    """Return what `--minimise NAME` minimises. Raises `InputError` for a number that the scenario cannot have."""
    if name == "servers":
        return Objective(name, "servers", "", 1.0, lambda deployment, _: float(deployment.servers))
    if name == "latency":
        column = OBJECTIVES[scenario.objective]
        return Objective(name, objective_name(scenario.objective), "ms", 1e3, _mean_of(column))
    what = "gives no prices" if name == "cost" else "gives no power of its devices"
    raise InputError(f"--minimise {name}: the scenario {what}", remedy="minimise servers or latency")


def _mean_of(column: str) -> Callable[[Deployment, Sequence[Numbers]], float]:
    def value(deployment: Deployment, numbers: Sequence[Numbers]) -> float:
        return mean(known(of_site[column]) for of_site in numbers)

    return value
