"""What a plan minimises: servers, latency, cost or energy of a deployment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Literal

from simnmt.base.errors import InputError
from simnmt.experiment.plan.candidates import Deployment
from simnmt.results.metrics import Metric, metric, objective_metric
from simnmt.results.summary import Numbers, known
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
    """Return what `--minimise NAME` minimises.

    Its value raises `InputError` if runs of the scenario have no such number.
    """
    if name == "servers":
        return Objective(name, "servers", "", 1.0, lambda deployment, _: float(deployment.servers))
    if name == "latency":
        # A scenario may be judged by what it spends, which is another objective here.
        latency: str = scenario.objective if objective_metric(scenario.objective).sample == "latency" else "mean"
        value = _mean_of(objective_metric(latency), name, "gives no latency")
        return Objective(name, f"{latency} latency", "ms", 1e3, value)
    if name == "cost":
        value = _mean_of(metric("cost_per_request"), name, "gives no prices")
        return Objective(name, "cost per million requests", "", 1e6, value)
    return Objective(name, "energy per request", "J", 1.0, _mean_of(metric("energy_j"), name, "gives no power of its devices"))


def _mean_of(measured: Metric, name: Minimised, lacking: str) -> Callable[[Deployment, Sequence[Numbers]], float]:
    """Return the mean of a metric over the sites of a deployment."""

    def value(deployment: Deployment, numbers: Sequence[Numbers]) -> float:
        values = [of_site.get(measured.column) for of_site in numbers]
        if None in values:
            raise InputError(f"minimise {name}: the scenario {lacking}", remedy="minimise servers or latency")
        return mean(known(value) for value in values)

    return value


SPENT = {
    "mean_cost": "cost",
    "mean_energy_j": "energy_j",
    "mean_static_j": "static_j",
    "mean_dynamic_j": "dynamic_j",
    "mean_transfer_j": "transfer_j",
}
"""Columns of money and joules by their names in a plan, per request."""


def spending(runs: Sequence[Sequence[Numbers]]) -> dict[str, float]:
    """Return the money and joules of a deployment that are known, means over replications and sites.

    `runs`: numbers of each site in each replication.
    """
    amounts = {}
    for column, name in SPENT.items():
        values = [of_site.get(column) for of_replication in runs for of_site in of_replication]
        if values and None not in values:
            amounts[name] = mean(known(value) for value in values)
    return amounts
