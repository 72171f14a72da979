"""Set up the account of energy and money of a unit: power and price of its devices, and the links between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from simnmt.base.suggestions import format_list
from simnmt.experiment.cases import Case, Unit
from simnmt.experiment.targets import box_power
from simnmt.network.configuration import Network, links_of
from simnmt.network.link import Link, bytes_per_token
from simnmt.policies.decision import Resource
from simnmt.profile.power import SECONDS_PER_HOUR, RequestCost
from simnmt.results.energy_accounts import account_energy
from simnmt.results.number_text import digits, format_power
from simnmt.results.request_log import Log
from simnmt.results.requests import Trail
from simnmt.results.run_energy import BYTES_PER_GB, Leg, Path, PowerUse, RunEnergy
from simnmt.scenario.configuration import END_NODE, Scenario


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


def paths(network: Network, devices: Sequence[str], token_bytes: Sequence[int]) -> list[Path]:
    """Return the links between the end nodes and each target; `token_bytes`: of a token that each device reads and writes."""
    links = network.hops | {devices[-1]: (network.link,)}
    access = () if devices[0] == END_NODE else links.get(devices[0], ())

    def leg(hop: Sequence[Link], of_token: int) -> Leg:
        per_byte, per_gb = ([getattr(link, name) for link in hop] for name in ("j_per_byte", "price_per_gb"))
        return Leg(of_token, np.array(per_byte), np.array(per_gb))

    first = [leg(access, token_bytes[0])] if access else []
    return [
        (*first, *(leg(links[device], of_token) for device in devices[1 : target + 1]))
        for target, of_token in enumerate(token_bytes)
    ]


def unit_paths(unit: Unit) -> list[Path]:
    """Return the links between the end nodes and each target of a unit."""
    token_bytes = [bytes_per_token(profile.model.vocab) for profile in unit.case.profiles]
    return paths(unit.links, list(unit.scenario.devices), token_bytes)


def unit_energy(unit: Unit, log: Log, trail: Trail) -> RunEnergy | None:
    """Return the joules and the money of a policy's run; None if neither power nor a price is known."""
    case, uses = unit.case, power_uses(unit.scenario, unit.case)
    if not unit.scenario.has_costs and all(use.power is None for use in uses):
        return None
    per_src_token = None if case.characters is None else case.characters.per_src_token
    extra_work = None if trail.faults is None else trail.faults.extra_work
    return account_energy(log, uses, unit_paths(unit), trail.batches, per_src_token, extra_work)


def request_costs(unit: Unit) -> dict[Resource, tuple[RequestCost, ...]]:
    """Return the joules and the money of a request alone on each target, as policies predict them.

    Energy is left out if the power of a device is unknown. Of several links that are dealt to end nodes, the mean counts.
    """
    joules, money = list[RequestCost | None](), list[RequestCost]()
    devices = unit.scenario.devices.values()
    for use, part, path in zip(power_uses(unit.scenario, unit.case), devices, unit_paths(unit), strict=True):
        per_token_j = sum(leg.token_bytes * float(leg.j_per_byte.mean()) for leg in path)
        per_token_price = sum(leg.token_bytes * float(leg.price_per_gb.mean()) / BYTES_PER_GB for leg in path)
        per_s = (part.price_per_hour or 0.0) / SECONDS_PER_HOUR / part.workers
        money.append(RequestCost(per_s, per_token_price, per_token_price))
        transfer = RequestCost(per_src_token=per_token_j, per_tgt_token=per_token_j)
        joules.append(None if use.power is None else use.power.alone.plus(transfer))
    costs: dict[Resource, tuple[RequestCost, ...]] = {"cost": tuple(money)}
    known = tuple(cost for cost in joules if cost is not None)
    return costs | {"energy": known} if len(known) == len(joules) else costs


def unknown_spending(scenario: Scenario, case: Case, column: str) -> tuple[str, str] | None:
    """Return why a run would not know a column of energy or money, and the remedy; None if it would know it."""
    unknown = [use.name for use in power_uses(scenario, case) if use.power is None]
    if "cost" in column and not scenario.has_prices:
        return "the scenario has no price", f"give devices.{list(scenario.devices)[-1]}.price_per_hour"
    if "cost" not in column and unknown:
        remedy = f"give devices.{unknown[0]}.power, such as {{idle_w: 5, busy_w: 15}}"
        return f"the power of {format_list(unknown, 'and')} is unknown", remedy
    if "characters" in column and case.characters is None:
        remedy = f"give workloads.{case.name}.characters_per_src_token"
        return f"the lengths of workload {case.name} are no text", remedy
    return None


def describe_energy(scenario: Scenario, cases: Mapping[str, Case]) -> Iterator[str]:
    """Yield the sentences on what energy and money rest on; none if neither power nor a price is known."""
    uses = {name: power_uses(scenario, case) for name, case in cases.items()}
    if not scenario.has_costs and all(use.power is None for of_case in uses.values() for use in of_case):
        return
    yield (
        "Energy and money are modelled: powers and prices, given or from profiles, times simulated times. Boxes draw their "
        "idle power and are paid from the begin of a run to its last answer, whatever they do, which all requests share "
        "evenly; a request adds what its device draws above that while it executes, and its bytes on the links."
    )
    if scenario.has_faults:
        yield (
            "Executions that answered no request are in the energy of the run, but no request is charged for them. Bytes of "
            "second copies, and of messages that were lost or sent again, are not in the energy."
        )
    for name, of_case in uses.items():
        described = [f"{use.name} {_describe_power(use)}" for use in of_case]
        yield f"{name}: power of a box: {'; '.join(described)}."
        unknown = [use.name for use in of_case if use.power is None]
        if unknown:
            yield (
                f"{name}: energy is unknown, since the power of {format_list(unknown, 'and')} is: give "
                f"devices.{unknown[0]}.power, such as {{idle_w: 5, busy_w: 15}}."
            )
        yield f"{name}: {_describe_characters(cases[name])}."
    links = [link for network in scenario.networks.values() for _, link in links_of(network)]
    if all(link.joules_per_byte is None for link in links):
        yield "Links take no energy, since no network has joules_per_byte."
    elif any(link.joules_per_byte is None for link in links):
        yield "Links without joules_per_byte take no energy."
    if scenario.has_prices:
        free = [name for name, part in scenario.devices.items() if part.price_per_hour is None]
        yield f"Without a price, and so free: {format_list(free, 'and')}." if free else "Every device has a price, as given."


def _describe_power(use: PowerUse) -> str:
    power = use.power
    return "unknown" if power is None else f"{format_power(power.idle_w, power.busy_w, power.load_w)} ({power.kind})"


def _describe_characters(case: Case) -> str:
    characters = case.characters
    if characters is None:
        return (
            "nothing is shown per million characters, since its lengths are no text: give "
            f"workloads.{case.name}.characters_per_src_token"
        )
    how = "counted on the text" if characters.kind == "counted" else "as given"
    return f"a source token stands for {digits(characters.per_src_token)} characters, {how}, with the blanks between words"
