"""Set up the account of energy and money of a unit: power and price of its devices, and the links between them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simnmt.experiment.draws import Drawn
from simnmt.experiment.inputs import Case, Unit
from simnmt.experiment.routes import Routes
from simnmt.experiment.targets import Target
from simnmt.network.link import Hop
from simnmt.profile.power import BoxPower
from simnmt.results.energy_accounts import account_energy
from simnmt.results.request_log import Log
from simnmt.results.requests import Trail
from simnmt.results.run_energy import Leg, Path, PowerUse, RunEnergy
from simnmt.scenario.configuration import DeviceConfiguration, Scenario


def box_power(target: Target, part: DeviceConfiguration, *, batches: bool) -> BoxPower | None:
    """Return the power of one box of a device: as the scenario gives it, else as its profile has it; None if it is unknown.

    `batches`: whether requests may share a batch; back to back they never do.
    """
    capacity = part.workers
    if target.decoding is not None:
        capacity = target.decoding.batching.size if batches else 1
    if part.power is not None:
        return BoxPower.given(part.power, capacity)
    power = BoxPower.of_profile(target.profile.energy_cost, capacity)
    # Joules by lengths were measured with the whole model in memory, one request at a time.
    by_power = target.streaming is not None or (target.decoding is not None and batches)
    return replace(power, measured=None) if power is not None and by_power else power


def power_uses(scenario: Scenario, case: Case) -> list[PowerUse]:
    """Return boxes, power and price by target."""
    return [
        PowerUse(
            name,
            scenario.count_of(name, case.name),
            box_power(target, part, batches=case.batches),
            part.price_per_hour,
        )
        for (name, part), target in zip(scenario.devices.items(), case.targets, strict=True)
    ]


def paths(routes: Routes) -> list[Path]:
    """Return the links between the end nodes and each target."""

    def leg(hop: Hop, token_bytes: int) -> Leg:
        per_byte, per_gb = ([getattr(link, name) for link in hop.links] for name in ("j_per_byte", "price_per_gb"))
        return Leg(token_bytes, np.array(per_byte), np.array(per_gb))

    access = () if routes.access is None else (leg(routes.access, routes.token_bytes[0]),)
    return [
        (*access, *(leg(hop, token_bytes) for hop in routes.hops[:target]))
        for target, token_bytes in enumerate(routes.token_bytes)
    ]


def unit_energy(unit: Unit, drawn: Drawn, log: Log, trail: Trail) -> RunEnergy | None:
    """Return the joules and the money of a policy's run; None if neither power nor a price is known."""
    case, uses = unit.case, power_uses(unit.scenario, unit.case)
    if not unit.scenario.has_costs and all(use.power is None for use in uses):
        return None
    per_src_token = None if case.characters is None else case.characters.per_src_token
    return account_energy(log, uses, paths(drawn.routes), trail.batches, case.carbon, per_src_token)
