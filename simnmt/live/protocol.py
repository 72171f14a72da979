"""The protocol of a validation, fixed before anything is measured, and the bench: the scenario with what is measured of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simnmt.base.errors import InputError
from simnmt.experiment.cases import Unit
from simnmt.experiment.inputs import read_inputs
from simnmt.live.cell_comparison import Cell, Rules
from simnmt.scenario.configuration import Scenario
from simnmt.scenario.document import Override
from simnmt.scenario.source import Source, open_source

Progress = Callable[[str], None]
ALONE = "alone"
"""Name of the batching of a server that executes one sentence after another."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a validation runs. Raises `InputError` for settings out of range."""

    loads: tuple[float, ...] = (0.2, 0.5, 0.8)
    """Requests a second over the measured capacity of the gateway alone."""
    policies: tuple[str, ...] = ()
    """Names of policies; empty: all of the scenario that can be deployed."""
    batchings: tuple[str, ...] = (ALONE,)
    """`alone`, or batchings of the server such as `{kind: mini, size: 8}`, in YAML."""
    repeats: int = 5
    seconds: float = 12.0
    """Length of a live run, but for the least and the greatest number of requests."""
    requests: tuple[int, int] = (40, 600)
    calibration: int = 120
    """Requests from which each device is measured in service, in each round."""
    draws: int = 20
    """Simulations of each run with other random numbers."""
    seed: int = 1
    text: str = ""
    """File of sentences that are sent in turn and decoded freely; empty: random words, and the workload's lengths forced."""
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        if not self.loads or not all(0.0 < load <= 2.0 for load in self.loads):
            raise InputError("loads are shares of the capacity above 0, 2 at most", remedy="give such as 0.2,0.5,0.8")
        if self.repeats < 1 or self.draws < 2 or self.calibration < 20 or not self.seconds > 0.0:
            raise InputError("too few repeats or seconds for a validation", remedy="give 1 or more of each")
        if not 1 <= self.requests[0] <= self.requests[1]:
            raise InputError(f"{self.requests[0]} requests of a live run", remedy="give 1 or more")


@dataclass(slots=True)
class Bench:
    """The scenario under validation, opened with overrides."""

    scenario: str
    overrides: Sequence[str]
    protocol: Protocol
    folder: Path
    allow_code: bool = False
    measured: dict[str, Any] = field(default_factory=dict)
    """Overrides by the measurements of this validation: profiles and overheads."""

    def source(self, *more: Override) -> Source:
        """Return the scenario, with further overrides. Raises `ScenarioError`."""
        return open_source(self.scenario, [*self.overrides, *more], allow_code=self.allow_code)

    def unit(self, cell: Cell, rate_rps: float, requests: int) -> Unit:
        """Return the unit of a cell."""
        source = self.source()
        workload = next(iter(source.scenario.workloads))
        values: dict[tuple[str, ...], Any] = {
            ("requests",): requests,
            ("replications",): 1,
            ("seed",): self.protocol.seed,
            ("fit", "inferences"): 0,
            ("workloads", workload, "arrivals"): {"kind": "poisson", "rate_rps": rate_rps},
            ("workloads", workload, "end_nodes"): 1,
            **{tuple(key.split(".")): value for key, value in self.measured.items()},
        }
        more = [Override.of(location, value) for location, value in values.items()]
        if cell.batching != ALONE:
            more.append(server_batching(source.scenario, cell.batching))
        source = self.source(*more)
        plan = read_inputs(source.scenario, Path.cwd(), source.document)
        case = plan.cases[workload]
        return Unit(plan.scenario, case, cell.link, plan.networks[cell.link], 0)


def server_batching(scenario: Scenario, text: str) -> Override:
    """Return the override of a scenario by which its server batches like this. Raises `InputError` for another text."""
    return Override.parse(f"devices.{list(scenario.devices)[1]}.batching={text}", "--batching")
