"""Check what no single key can know: that devices, links, clocks and policies of a scenario fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, product
from math import inf

from simnmt.base.laws import DrawnNumber
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.network.configuration import MOST_MEAN_RTT_MS, links_of
from simnmt.policies.baselines import FixedPolicy
from simnmt.results.places import ALL, BEHIND, CLASS
from simnmt.scenario.configuration import END_NODE, ScenarioConfiguration
from simnmt.scenario.document import Document
from simnmt.scenario.errors import Location, format_location
from simnmt.scenario.parts import DeviceConfiguration
from simnmt.workload.arrivals import BackToBack, Clients

_RESERVED_NAMES = (
    *("offloaded", "misrouted", "deadline_met", "hit"),
    *("answered", "answered_documents", "lost", "refused", "refused_tries", "gave_up", "fallback", "overdue"),
)
"""Words before `_share` in columns of the summary that are about no device."""

Misfit = tuple[Location, str]
"""A key that does not fit the scenario, and the reason."""


_EXCLUSIVE = {
    "sti": (
        ("batching", "decoder", "failures", "max_waiting", "models", "workers"),
        "streams its model and decodes one sentence at a time",
    ),
    "batching": (("workers",), "batches and has one worker; more boxes are its count"),
    "slots": (("batching", "decoder", "execution", "models", "sti", "workers"), "decodes in slots"),
    "memory_gb": (("execution", "failures"), "loads models into its memory"),
    "execution": (("batching", "max_waiting", "sti"), "has the execution kind that it states"),
}
"""Keys of a device, those that do not fit beside them, and what its boxes then do."""


def check_topology(scenario: ScenarioConfiguration, document: Document) -> None:
    """Raise `ScenarioError` at the first key that does not fit the others."""
    for location, what in chain(
        _sites(scenario), _classes(scenario), _quality(scenario), _drawn_lines(scenario), _parts(scenario)
    ):
        raise document.error(location, what, key=True)


def _parts(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    """Yield parts that do not fit the others, as each site has them."""
    if scenario.gap_analysis and scenario.analysed_policy is None:
        yield ("gap_analysis",), "there is no policy of kind cnmt to be analysed"
    for site in scenario.sites or [None]:
        seen = scenario if site is None else scenario.at(site)
        first = 1 if site is not None and scenario.own_device(site) is None else 0
        quality = _gains(seen), _scores(seen, scenario, list(seen.devices)[first:])
        checks = _devices(seen, scenario), _hops(seen), _links(seen), _clocks(seen), _policies(seen), *quality
        for location, what in chain(*checks):
            place = location if site is None else scenario.key_at(site, location)
            if place != location:
                what = what.replace(format_location(location[:2]), format_location(place[:4]))
            yield place, what if site is None or place != location else f"{what} (at site {site})"


def _sites(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    """Yield workloads that cannot share devices, and names at sites that stand for nothing or for two things."""
    first, *behind = scenario.devices
    for workload in scenario.workloads if scenario.shares_devices else ():
        if not scenario.is_open(workload):
            place: Location = ("share_devices",) if scenario.share_devices else ("workloads", workload, "arrivals")
            what = f"answers set the pace of workload {workload}, so no rate says how many of its requests meet those of others"
            yield place, f"{what} (give workloads.{workload}.arrivals a rate)"
    if ALL in scenario.workloads and scenario.shares_devices and (scenario.sites or len(scenario.workloads) > 1):
        yield ("workloads", ALL), f"{ALL} names the sum of the workloads"
    if scenario.sites and not scenario.shares_devices:
        yield ("share_devices",), "sites share the devices behind their first ones (leave share_devices out)"
    for name, site in scenario.sites.items():
        place = ("sites", name)
        if name in (ALL, BEHIND):
            yield place, f"{name} already names {'the sum' if name == ALL else 'the devices that sites share'}"
        for number, workload in enumerate(site.workloads or ()):
            if workload not in scenario.workloads:
                yield (*place, "workloads", number), f"unknown workload ({did_you_mean(workload, scenario.workloads)})"
        for policy, settings in site.policies.items():
            if policy not in scenario.policies:
                yield (*place, "policies", policy), f"unknown policy ({did_you_mean(policy, scenario.policies)})"
            elif settings.is_deployable != scenario.policies[policy].is_deployable:
                yield (*place, "policies", policy), "knows the truth at one site and not at another; choose another name"
        if scenario.own_device(name) is None and len(behind) > 1:
            what = f"without it, no device decides between {format_list(behind, 'or')} (give this site a {first})"
            yield (*place, "devices", first), what
        if scenario.own_device(name) is None and scenario.late_answers is not None:
            what = "late_answers are executed by the first device, and this site has none"
            yield (*place, "devices"), f"{what} (give it one, or leave late_answers out)"
        refuses = any(scenario.devices[device].refuses_above is not None for device in behind)
        if scenario.own_device(name) is None and refuses and scenario.on_refusal != "pass_on":
            what = "refused requests are executed by the first device, and this site has none"
            yield (*place, "devices"), f"{what} (give it one, or set on_refusal: pass_on)"
    for workload in scenario.workloads if scenario.sites else ():
        if not any(workload in scenario.workloads_at(site) for site in scenario.sites):
            yield ("workloads", workload), f"requested at no site (name it in sites.{next(iter(scenario.sites))}.workloads)"


def _classes(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    """Yield classes that nothing is of, or that cannot be served in turn, and workloads without a class."""
    classes = scenario.classes
    for name, workload in scenario.workloads.items():
        place = ("workloads", name, "class")
        if workload.request_class is None and classes:
            yield ("workloads", name), f"of no class (give workloads.{name}.class: one of {', '.join(classes)})"
        elif workload.request_class is not None and workload.request_class not in classes:
            known = did_you_mean(workload.request_class, classes) if classes else "the scenario has no classes"
            yield place, f"unknown class ({known})"
        if classes and name.startswith(CLASS):
            yield ("workloads", name), f"{name} names the sum of a class"
    if classes and not scenario.shares_devices:
        yield ("classes",), "requests of several classes meet only where workloads share devices (give share_devices: true)"
    by_priority: dict[int, str] = {}
    for name, part in classes.items():
        if all(workload.request_class != name for workload in scenario.workloads.values()):
            yield ("classes", name), "no workload is of this class"
        if (other := by_priority.setdefault(part.priority, name)) != name:
            yield ("classes", name, "priority"), f"{other} has the same priority (give each class another)"
    for name, device in scenario.devices.items() if classes else ():
        if device.sti is not None:
            yield ("devices", name, "sti"), "a streamed model serves requests in the order of arrival, without classes"


def _quality(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    """Yield scores of devices that do not exist, devices without scores, and workloads whose requests are no sentences."""
    scored = [name for name in scenario.workloads if scenario.quality_of(name)]
    for name in scored:
        workload, quality, place = scenario.workloads[name], scenario.quality_of(name), scenario.quality_place(name)
        for device in quality:
            if device not in scenario.devices:
                yield (*place, device), f"unknown device ({did_you_mean(device, scenario.devices)})"
        for device in scenario.devices:
            if device not in quality:
                yield place, f"the scores of {device} are unknown (give {format_location((*place, device))})"
        if not workload.text_file:
            what = "quality is known by sentence, and these lengths are of no text"
            yield ("workloads", name, "lengths"), f"{what} (give source and target, tsv or jsonl)"
        if workload.lines_per_request > 1:
            yield ("workloads", name, "lines_per_request"), "quality is known of single sentences (leave it or quality out)"
        if scenario.has_caches:
            yield place, "it is not recorded which model's translation a cache holds (leave quality or the cache out)"
    for name in scenario.workloads if scored and scenario.shares_devices else ():
        if name not in scored:
            yield ("workloads", name), f"shares devices with {scored[0]}, but has no scores (give workloads.{name}.quality)"


def check_scores(scenario: ScenarioConfiguration, base: ScenarioConfiguration, document: Document) -> None:
    """Raise `ScenarioError` at a device that translates otherwise than in `base`, but has the same scores."""
    for location, what in _scores(scenario, base, scenario.devices):
        raise document.error(location, what, key=True)


def _scores(scenario: ScenarioConfiguration, base: ScenarioConfiguration, devices: Iterable[str]) -> Iterator[Misfit]:
    """Yield devices without scores of their profile and decoder, or with those that `base` states for others."""
    for workload, device in product(scenario.workloads, devices):
        if not scenario.quality_of(workload):
            continue
        place, stated = format_location((*scenario.quality_place(workload), device)), scenario.stated_scores(device, workload)
        if scenario.scores_of(device, workload) is None:
            yield ("devices", device), f"no scores in {place} are of its profile and decoder (add them)"
        if workload not in base.workloads or base.quality_of(workload).get(device) != scenario.quality_of(workload)[device]:
            continue
        before = _translating(base.devices[device], workload)
        for key, value in _translating(scenario.devices[device], workload).items():
            part = "decoder" if key == "decoder" else "profile"
            if value != before[key] and all(getattr(one, part) is None for one in stated):
                what = f"{place} has the scores of another {part}"
                yield ("devices", device, key), f"{what} (give them by {part}: [{{{part}: ..., scores: FILE}}, ...])"


def _translating(device: DeviceConfiguration, workload: str) -> dict[str, object]:
    """Return what decides how a device translates a workload, by key."""
    profile = device.profile.get(workload) if isinstance(device.profile, dict) else device.profile
    models = {name: model.pivot or _profile_name(model.profile) for name, model in (device.models or {}).items()}
    return {"profile": _profile_name(profile), "models": models, "decoder": device.decoder}


def _profile_name(profile: object) -> object:
    return getattr(profile, "kind", profile)  # of users' code, which is another object each time


def _drawn_lines(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    """Yield laws of lines without sites that could draw them, and those that draw an RTT out of range."""
    for name, network in {} if scenario.sites else scenario.networks.items():
        for location, link in links_of(network):
            if isinstance(link.rtt_mean_ms, DrawnNumber):
                yield ("networks", name, *location, "rtt_mean_ms"), "each site draws one, and there are no sites"
    for (site, name, link_key), drawn_ms in scenario.drawn_means_ms.items():
        low, high = min(drawn_ms), max(drawn_ms)
        if not 0.0 < low <= high <= MOST_MEAN_RTT_MS:
            what = f"draws {low:.4g} to {high:.4g} ms for {site}, but a mean lies between 0 and {MOST_MEAN_RTT_MS:,}"
            yield scenario.key_at(site, ("networks", name, *link_key, "rtt_mean_ms")), what


def _devices(scenario: ScenarioConfiguration, whole: ScenarioConfiguration) -> Iterator[Misfit]:
    first, *others = scenario.devices
    workloads = scenario.workloads.keys()
    if END_NODE in others:
        yield ("devices", END_NODE), f"devices are listed nearest first, so {END_NODE} comes first"
    for name, device in scenario.devices.items():
        place = ("devices", name)
        if name in _RESERVED_NAMES or name.endswith("_busiest"):
            yield place, f"{name}_share or {name}_load is another number of the summary; choose another name"
        for key, (excluded, reason) in _EXCLUSIVE.items():
            for other in excluded if getattr(device, key) is not None else ():
                if getattr(device, other) not in (None, 1):
                    yield (*place, other), f"not beside {key}: {name} {reason}"
        if isinstance(device.profile, dict) and not workloads <= device.profile.keys() <= whole.workloads.keys():
            yield (*place, "profile"), f"needs one profile for all workloads, or one for each of {', '.join(workloads)}"
        models = device.models or dict.fromkeys(workloads)
        for workload in [name for name in workloads if name not in models]:
            yield (*place, "models"), f"no model for workload {workload} (give devices.{name}.models.{workload})"
        pivots = {workload: model.pivot for workload, model in models.items() if model is not None and model.pivot is not None}
        for workload in [name for name in models if name not in whole.workloads and name not in chain(*pivots.values())]:
            yield (*place, "models", workload), f"unknown workload ({did_you_mean(workload, whole.workloads)})"
        for workload, pivot in pivots.items():
            for model in [model for model in pivot if model not in models or model in pivots]:
                known = [name for name in models if name not in pivots]
                yield (*place, "models", workload), f"no model {model} with a profile ({did_you_mean(model, known)})"
            if pivot[0] == pivot[1]:
                yield (*place, "models", workload), f"both models are {pivot[0]}"
            if device.batching is not None:
                yield (*place, "models", workload), f"{name} batches, and pivots are executed one request after another"
        if name == first and device.balancer not in (None, "attached"):
            yield (*place, "balancer"), f"end nodes are attached to the boxes of {first}, the first device"
        if name == END_NODE and device.count is not None:
            yield (*place, "count"), "every end node has one; workloads.NAME.end_nodes says how many there are"
        for workload, part in scenario.workloads.items() if name != END_NODE else ():
            clients = part.arrivals.clients if isinstance(part.arrivals, Clients) else inf
            nodes = part.end_nodes if name == first else whole.nodes_of(workload)
            if scenario.balancer_of(name) == "attached" and (device.count or 1) > min(nodes, clients):
                yield (*place, "count"), f"more boxes than workload {workload} has end nodes or clients to attach to them"
        if device.batching is None and device.beyond_measured_batch:
            yield (*place, "beyond_measured_batch"), "there are no batches without batching"
        if device.failures is not None and name == first:
            yield (*place, "failures"), "the first device decides, and is always up"
        if device.on_full is not None and device.max_waiting is None:
            yield (*place, "on_full"), f"a device without limit is never full (give devices.{name}.max_waiting)"


def _hops(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    """Yield hops that lead nowhere, and devices that no link leads to: the network itself leads to the last device."""
    devices = list(scenario.devices)
    optional = devices[:1] if devices[0] != END_NODE and len(devices) > 1 else []
    required = devices[1:-1]
    for network, configuration in scenario.networks.items():
        place = ("networks", network, "hops")
        for device, links in configuration.hops.items():
            if device == devices[-1]:
                yield (*place, device), f"networks.{network} itself is the link to {device}, the last device"
            elif device not in (*optional, *required):
                yield (*place, device), f"no link leads to a device {device} ({did_you_mean(device, [*optional, *required])})"
            elif isinstance(links, list) and device != (devices[1] if devices[0] == END_NODE else devices[0]):
                yield (*place, device), "a list of links is for the way from the end nodes; all share the link to this device"
        for device in required:
            if device not in configuration.hops:
                remedy = f"give networks.{network}.hops.{device}, such as {{rtt: {{constant_ms: 5}}}}"
                yield place if configuration.hops else place[:2], f"no link leads to {device} ({remedy})"


def _links(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    """Yield links that cannot fail: those before the decision, and series without a time axis."""
    first, *others = scenario.devices
    for network, configuration in scenario.networks.items():
        is_timeless = any(scenario.clock_of(name, network) == "spread" for name in scenario.workloads)
        for location, link in links_of(configuration):
            place = ("networks", network, *location, "outages")
            if link.outages and (not others or location[1:2] == (first,)):
                yield place, f"outages are for links behind {first}, which decides, and this one leads to it"
            if is_timeless and link.outages == "trace":
                yield place, f"outages of a trace need a time axis (set networks.{network}.clock: arrival)"


def _clocks(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    """Yield clocks that do not fit the arrivals: `pace` is for requests back to back, faults need moments of arrival."""
    for name, part in scenario.workloads.items():
        if scenario.has_faults and isinstance(part.arrivals, BackToBack):
            yield ("workloads", name), f"requests back to back meet no faults (give workloads.{name}.arrivals)"
        if isinstance(part.arrivals, BackToBack) and (scenario.refuses or part.clients is not None):
            what = "requests back to back never wait, so that no device is full and no client gives up"
            yield ("workloads", name), f"{what} (give workloads.{name}.arrivals)"
    if scenario.late_answers is not None and len(scenario.devices) == 1:
        yield ("late_answers",), "the only device sends no request"
    behind = dict([*scenario.devices.items()][1:])
    refusing = (device.refuses_above or (device.slots and device.slots.context) for device in behind.values())
    if scenario.on_refusal is not None and not any(refusing):
        waiting = next((name for name, device in behind.items() if device.max_waiting and device.on_full == "wait"), None)
        give = "give one max_waiting, or slots a context"
        remedy = give if waiting is None else f"leave devices.{waiting}.on_full: wait out, or on_refusal"
        yield ("on_refusal",), f"no device to which requests are sent refuses any ({remedy})"
    for name, network in scenario.networks.items():
        paced = [workload for workload in scenario.workloads if scenario.clock_of(workload, name) == "pace"]
        for workload in paced:
            if not isinstance(scenario.workloads[workload].arrivals, BackToBack):
                yield ("networks", name, "clock"), f"pace is for requests back to back, but workload {workload} has arrivals"
        if network.pace_s is not None and not paced:
            yield ("networks", name, "pace_s"), f"no workload meets networks.{name} on the clock pace"


def _policies(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    first, device = next(iter(scenario.devices.items()))
    for name, policy in scenario.policies.items():
        if isinstance(policy, FixedPolicy) and policy.device not in scenario.devices:
            yield ("policies", name, "device"), f"unknown device ({did_you_mean(policy.device, scenario.devices)})"
        if policy.decides_again and (device.sti is not None or device.loads_models):
            yield ("policies", name), f"decides again when {first} has executed a request, and {first} streams or loads models"


def _gains(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    """Yield policies that weigh the gain in quality of the last device where there is none, or no scores."""
    unscored = [name for name in scenario.workloads if not scenario.quality_of(name)]
    for name, policy in scenario.policies.items():
        if policy.weighs_gain and len(scenario.devices) == 1:
            yield (
                ("policies", name),
                "weighs the gain in quality of the last device over the first, and there is only one (add a device)",
            )
        elif policy.weighs_gain and unscored:
            what = f"weighs the gain in quality, which workload {unscored[0]} does not know"
            yield ("policies", name), f"{what} (give quality, with the scores of each device)"
