"""Set up the account of energy and money of a unit: power and price of its devices, and the links between them."""

from __future__ import annotations

from statistics import fmean

from simnmt.base.suggestions import format_list
from simnmt.experiment.cases import Case, Unit
from simnmt.network.link import bytes_per_token
from simnmt.policies.decision import Resource
from simnmt.profile.power import SECONDS_PER_HOUR, BoxPower, RequestCost
from simnmt.results.device_accounts import Log, RunEnergy, TargetCosts, account_energy
from simnmt.results.requests import Trail
from simnmt.scenario.configuration import END_NODE, ScenarioConfiguration


def box_powers(scenario: ScenarioConfiguration, case: Case) -> dict[str, BoxPower | None]:
    """Return the power of a box of each device: the scenario's, else the profile's; None if it is unknown."""
    return {
        name: BoxPower.of(part.power, target.profile.energy_cost)
        for (name, part), target in zip(scenario.devices.items(), case.targets, strict=True)
    }


def target_costs(unit: Unit) -> list[TargetCosts]:
    """Return what energy and money depend on, by target."""
    scenario, powers, costs = unit.scenario, box_powers(unit.scenario, unit.case), list[TargetCosts]()
    names = list(powers)
    hops = unit.links.hops | {names[-1]: (unit.links.link,)}
    sizes = [bytes_per_token(profile.model.vocab) for profile in unit.case.profiles]
    access = [(sizes[0], hops[names[0]])] if names[0] in hops and names[0] != END_NODE else []
    for number, (name, part) in enumerate(scenario.devices.items()):
        path = [*access, *((sizes[number], hops[on]) for on in names[1 : number + 1])]
        token_j = sum(size * fmean(link.j_per_byte for link in hop) for size, hop in path)
        token_price = sum(size * fmean(link.price_per_gb for link in hop) for size, hop in path) / 1e9
        token = (sum(size for size, _ in path), token_j, token_price)
        boxes = scenario.count_of(name, unit.case.name)
        costs.append(TargetCosts(name, boxes, part.workers, powers[name], part.price_per_hour or 0.0, token))
    return costs


def unit_energy(unit: Unit, log: Log, trail: Trail) -> RunEnergy | None:
    """Return the joules and the money of a policy's run; None if neither power nor a price is known."""
    if not unit.scenario.has_costs and not any(box_powers(unit.scenario, unit.case).values()):
        return None
    unanswered_s = [] if trail.faults is None else [float(work.sum()) for work in trail.faults.extra_work]
    return account_energy(log, target_costs(unit), trail.batches, unanswered_s)


def request_costs(unit: Unit) -> dict[Resource, tuple[RequestCost, ...]]:
    """Return the joules and the money of a request alone on each target, as policies predict them; energy if it is known."""
    targets = target_costs(unit)
    money = [RequestCost(of.price_per_hour / SECONDS_PER_HOUR / of.workers, of.token[2]) for of in targets]
    costs: dict[Resource, tuple[RequestCost, ...]] = {"cost": tuple(money)}
    joules = [RequestCost((of.power.busy_w - of.power.idle_w) / of.workers, of.token[1]) for of in targets if of.power]
    if len(joules) == len(targets):
        costs["energy"] = tuple(joules)
    return costs


def unknown_spending(scenario: ScenarioConfiguration, case: Case, column: str) -> tuple[str, str] | None:
    """Return why a run would not know a column of energy or money, and the remedy; None if it would know it."""
    unknown = [name for name, power in box_powers(scenario, case).items() if power is None]
    if "cost" in column and not scenario.has_prices:
        return "the scenario has no price", f"give devices.{list(scenario.devices)[-1]}.price_per_hour"
    if "cost" not in column and unknown:
        remedy = f"give devices.{unknown[0]}.power, such as {{idle_w: 5, busy_w: 15}}"
        return f"the power of {format_list(unknown, 'and')} is unknown", remedy
    return None
