"""Read the files that a scenario names (lengths, profiles, arrivals, links), and check that they and its metrics fit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from simnmt.base import random_streams
from simnmt.base.errors import InputError
from simnmt.base.extension import Extended
from simnmt.base.suggestions import format_list
from simnmt.experiment.cases import Case, DrawnProfiles, RunPlan, SitePlan, misfits
from simnmt.experiment.targets import (
    Conversion,
    Decoding,
    HeldModel,
    StreamedDevice,
    Target,
    agreed_unit,
    outside_share,
    slots_of,
    streamed_device,
)
from simnmt.network.configuration import Network, load_network
from simnmt.profile.blocks import ProfileError
from simnmt.profile.calibration_error import CalibrationDraws, lacking_samples
from simnmt.profile.custom import CustomDevice, profile_of_cost
from simnmt.profile.device_profile import DeviceProfile, read_profile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.origin import LengthUnit
from simnmt.profile.profile_variant import DecoderChoice, with_decoder
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Document
from simnmt.scenario.errors import Location, ScenarioError, format_location
from simnmt.scenario.parts import PROFILE_FILE
from simnmt.workload.arrivals import BackToBack
from simnmt.workload.configuration import CustomLengths, TextLengths
from simnmt.workload.corpus import dropped_warning
from simnmt.workload.documents import DocumentArrivals
from simnmt.workload.length_table import LengthTable
from simnmt.workload.length_units import Fertility, Side, convert_units, counting_remedy
from simnmt.workload.quality import ScoredText, Scores, join_scores, read_scores

Part = TypeVar("Part")
GIGABYTE = 10**9
"""Bytes of a GB."""
REPRESENTATIVE = 512
"""Pairs of lengths, evenly spaced among the sorted ones, for which a drawn profile's deviation from a plane counts."""


class InputCache:
    """What has been read of the files of scenarios that differ in a few keys. The files must not change meanwhile."""

    def __init__(self) -> None:
        self._parts: dict[Hashable, Any] = {}

    def get(self, key: Hashable, read: Callable[[], Part]) -> Part:
        """Return the part of this key, read by `read` if it has not been read yet."""
        if key not in self._parts:
            self._parts[key] = read()
        part: Part = self._parts[key]
        return part


def read_inputs(
    scenario: ScenarioConfiguration, base: Path, document: Document | None = None, cache: InputCache | None = None
) -> RunPlan:
    """Read the inputs of a scenario; relative paths start at `base`. Workloads and sites that share devices are checked.

    Raises the rooms' own `InputError`s: `CorpusError`, `TraceError`, `ProfileError`. With a `document`, errors without a line
    in their own file name the key of the scenario and its place. `cache`: of files that were read for other scenarios.
    """
    cache = cache or InputCache()
    if scenario.sites:
        sites = read_sites(scenario, base, document, cache)
        plan = _plan_of_sites(scenario, sites)
    else:
        reader = _Reader(scenario, base, document, cache)
        cases = {name: reader.of(name).case(reader.of(name).table()) for name in scenario.workloads}
        reader.check_memories(cases.values())
        drawn = (
            {} if scenario.profile_uncertainty is None else {name: reader.of(name).draws(case) for name, case in cases.items()}
        )
        plan = RunPlan(scenario, cases, reader.networks(), drawn)
    for place, what, remedy in misfits(plan):
        raise (document or Document(None)).error(place, what, remedy=remedy or None, key=True)
    return plan


def read_sites(
    scenario: ScenarioConfiguration, base: Path, document: Document | None = None, cache: InputCache | None = None
) -> tuple[SitePlan, ...]:
    """Read the inputs of each site, each file once; the arguments and the errors are those of `read_inputs`."""
    cache, plans = cache or InputCache(), list[SitePlan]()
    readers = {
        name: [
            _Reader(scenario.at(name, copy), base, document, cache, partial(scenario.key_at, name))
            for copy in range(1, site.count + 1)
        ]
        for name, site in scenario.sites.items()
    }
    # A hundred sites with one kind of device have the same inputs.
    by_device: dict[str, dict[int, _Reader]] = {workload: {} for workload in scenario.workloads}
    for name, (reader, *_) in readers.items():
        for workload in reader.scenario.workloads:
            by_device[workload].setdefault(id(scenario.own_device(name)), reader.of(workload))
    known_cases = dict[tuple[str, int], Case]()
    for workload, of_sites in by_device.items():
        first = next(iter(of_sites.values()))
        table = first.table([*of_sites.values()])
        known_cases |= {(workload, device): reader.case(table) for device, reader in of_sites.items()}
    for name, site in scenario.sites.items():
        view, device = readers[name][0].scenario, scenario.own_device(name)
        cases = {workload: known_cases[workload, id(device)] for workload in view.workloads}
        readers[name][0].check_memories(cases.values(), slice(1))
        lines = [reader.networks() for reader in readers[name]]
        networks = {network: tuple(by_name[network] for by_name in lines) for network in view.networks}
        is_alone = len(scenario.sites) == site.count == 1
        plans.append(SitePlan(name, view, cases, networks, site.share, device is not None, not plans, is_alone))
    # All sites share the devices behind.
    all_cases = [case for plan in plans for case in plan.cases.values()]
    _Reader(scenario, base, document, cache).check_memories(all_cases, slice(1, None))
    return tuple(plans)


def _plan_of_sites(scenario: ScenarioConfiguration, sites: tuple[SitePlan, ...]) -> RunPlan:
    """Return the plan of sites, with the inputs of the first sites that have each workload and a device of their own."""
    first = sorted(sites, key=lambda site: not site.has_device)
    cases = {name: next(site.cases[name] for site in first if name in site.cases) for name in scenario.workloads}
    networks = {name: links[0] for name, links in first[0].networks.items()}
    return RunPlan(scenario, cases, networks, sites=sites)


@dataclass(frozen=True, slots=True)
class _Reader:
    scenario: ScenarioConfiguration
    base: Path
    document: Document | None
    cache: InputCache
    key: Callable[[Location], Location] = lambda location: location
    """Returns the path in the document to a part of the scenario as a site sees it."""
    workload: str = ""

    def of(self, workload: str) -> _Reader:
        return replace(self, workload=workload)

    @contextmanager
    def naming(self, *location: str | int) -> Iterator[None]:
        """Add the key of the scenario to errors of a file that is missing or unfit as a whole."""
        location = self.key(location)
        try:
            yield
        except InputError as error:
            if self.document is None or error.line is not None or format_location(location) in error.what:
                raise
            what = error.what if error.path is None else f"{error.path}: {error.what}"
            place = self.document.error(location, what, remedy=error.remedy)
            raise type(error)(place.what, path=place.path, line=place.line, column=place.column, remedy=place.remedy) from error

    def networks(self) -> dict[str, Network]:
        """Read the links of all networks; in notes a network that a site states is named with the site."""
        networks = dict[str, Network]()
        for name, part in self.scenario.networks.items():
            place, site, *_ = self.key(("networks", name))
            label = f"{name} at {site}" if place == "sites" else name
            networks[name] = load_network(part, self.base, label, partial(self.naming, "networks", name), self.cache.get)
        return networks

    def check_memories(self, cases: Iterable[Case], devices: slice = slice(None)) -> None:
        """Raise `ScenarioError` if the models of one of some devices do not fit into memory together and none is evicted."""
        for number, (device, part) in list(enumerate(self.scenario.devices.items()))[devices]:
            if part.evict == "never":
                models = dict(chain(*(case.targets[number].models.items() for case in cases)))
                self.check_memory(device, models, f"{len(models)} models, of which none is evicted, take")

    def check_memory(self, device: str, models: Mapping[str, HeldModel | None], taking: str) -> None:
        """Raise `ScenarioError` if models do not fit into the memory of a box together; `taking`: what they are."""
        size_gb = sum(model.size_bytes for model in models.values() if model is not None) / GIGABYTE
        memory_gb = self.scenario.devices[device].memory_gb
        if memory_gb is not None and size_gb > memory_gb:
            with self.naming("devices", device, "memory_gb"):
                raise ScenarioError(f"{taking} {size_gb:.3g} GB", remedy=f"give {size_gb:.3g} or more")

    def naming_profile(self, device: str) -> AbstractContextManager[None]:
        part = self.scenario.devices[device]
        if part.models is not None:
            return self.naming("devices", device, "models", self.workload)
        per_workload = (self.workload,) if isinstance(part.profile, dict) else ()
        return self.naming("devices", device, "profile", *per_workload)

    def cost(self, device: str) -> CustomDevice | None:
        """Return the cost function of a device; None if it has a profile."""
        profile = self.scenario.profile_of(device, self.workload)
        return profile if isinstance(profile, CustomDevice) and profile.profile is None else None

    def measured(self, device: str) -> DeviceProfile | None:
        """Return the profile of a device as it was measured or brought, of a pivot those of its models in turn; None for a cost
        function."""
        model = self.scenario.model_of(device, self.workload)
        profiles = [self._measured(device, name) for name in self.scenario.models_of(device, self.workload)]
        if model is None or model.pivot is None:
            return profiles[0]
        with self.naming_profile(device):
            first, second = profiles
            if first is None or second is None:
                raise ProfileError("a pivot is of two models with profiles, not of cost functions")
            return first.then(second, model.middle_per_src)

    def _measured(self, device: str, workload: str) -> DeviceProfile | None:
        profile = self.scenario.profile_of(device, workload)
        with self.naming_profile(device):
            if isinstance(profile, CustomDevice):
                return profile.profile
            return self.profile(profile)

    def profile(self, name: str) -> DeviceProfile:
        """Read the profile of a name or path."""
        return self.cache.get((name, self.base), lambda: read_profile(PROFILE_FILE.path(name, self.base)))

    def profiles(self, behind: bool = False) -> list[DeviceProfile]:
        """Return the profiles of all devices, or of those behind the first one; cost functions have none."""
        devices = list(self.scenario.devices)[1 if behind else 0 :]
        return [profile for profile in map(self.measured, devices) if profile is not None]

    def table(self, sites: Sequence[_Reader] = ()) -> LengthTable:
        """Read the workload's lengths, which all `sites` share: their readers, if there are some.

        Lengths that a user brings are in the unit of the first profile. All count the end of a sentence as the first profile
        with decode steps does, else as the first profile. Where sites differ, the shared devices decide, whatever the order.
        """
        name, lengths = self.workload, self.scenario.workloads[self.workload].lengths
        by_site, shared = [reader.profiles() for reader in sites or (self,)], self.profiles(behind=True)
        known = [profile for profiles in by_site for profile in profiles]

        with self.naming("workloads", name, "lengths"):
            if isinstance(lengths, CustomLengths) and known:
                table = lengths.load_in(*agreed_unit(by_site, shared, lambda unit: (unit.src, unit.tgt)))
            else:
                key = lengths.model_dump_json(warnings=False), self.base
                table = self.cache.get(key, partial(lengths.load, self.base))
            stated = lengths.fertility or Fertility()
            src_units = list(dict.fromkeys(profile.length_unit.src for profile in known))
            tgt_units = list(dict.fromkeys(profile.length_unit.tgt for profile in known))
            stated.check("src", table.src_unit, src_units)
            stated.check("tgt", table.tgt_unit, tgt_units)
            if lengths.fertility is not None and len(src_units) == len(tgt_units) == 1:
                table = convert_units(table, stated, src_units[0], tgt_units[0])
            stepping = [[one for one in profiles if one.step or one.decoder or one.sti] for profiles in by_site]
            if known:  # `counted_in` adapts the profiles that count otherwise
                counting = stepping if any(stepping) else by_site
                table = table.counting(agreed_unit(counting, shared, lambda unit: unit.end_of_sentence))
            table = table.packed(self.scenario.workloads[name].lines_per_request, self.scenario.seed)
            # Refuses a corpus too small to split, here where its key is known.
            table.split(self.scenario.fit.share, self.scenario.seed)
        return table

    def case(self, table: LengthTable) -> Case:
        """Read the workload's arrivals and the profiles of all devices; `table`: its lengths."""
        scenario, name, base = self.scenario, self.workload, self.base
        workload, measured = scenario.workloads[name], {device: self.measured(device) for device in scenario.devices}
        warning, stated = dropped_warning(table.filtered), workload.lengths.fertility or Fertility()
        targets = tuple(self.target(device, profile, table, stated) for device, profile in measured.items())
        with self.naming("workloads", name, "documents"):
            key = base, workload.documents, workload.text_file
            sizes = self.cache.get(key, partial(workload.read_documents, base))
        with self.naming("workloads", name, "arrivals"):
            given = workload.arrivals
            characters = workload.characters_per_request or table.characters
            given = given.in_requests(characters if sizes is None or characters is None else characters * sizes.mean)
            written = type(given), given.model_dump_json(warnings=False), base
            read = partial(given.process, base)
            arrivals = read() if isinstance(given, Extended) else self.cache.get(written, read)
            arrivals = arrivals if sizes is None else DocumentArrivals(arrivals, sizes)
        with self.naming("workloads", name, "repeats"):
            repeats = self.cache.get((written, workload.repeats), partial(workload.read_repeats, base))
        warnings = () if warning is None else (warning,)
        return Case(name, table, targets, arrivals, warnings, repeats, characters, self.quality(table))

    def quality(self, table: LengthTable) -> ScoredText | None:
        """Read the scores of the workload's sentences by device; None if the scenario has none. `table`: its lengths."""
        scenario, name, scores = self.scenario, self.workload, list[Scores]()
        lengths, stated = scenario.workloads[name].lengths, scenario.workloads[name].lengths.fertility or Fertility()
        if not scenario.quality_of(name) or not isinstance(lengths, TextLengths):
            return None
        place = scenario.quality_place(name)
        for device in scenario.devices:
            # None fit the stand-in of a site without the device, which translates nothing.
            all_scores = scenario.stated_scores(device, name)
            named = scenario.scores_of(device, name) or all_scores[0]
            with self.naming(*place, device):
                for other in [one.profile for one in all_scores if one.profile is not None]:
                    self.profile(other)  # refuses one that does not exist
                path = self.base / named.scores
                scores.append(self.cache.get(("scores", path, named.model), partial(read_scores, path, named.model)))
        with self.naming(*place):
            text = lengths.model_dump_json(warnings=False), self.base
            sentences = self.cache.get(("sentences", text), partial(lengths.sentences, self.base))
            raw, units = self.cache.get(text, partial(lengths.load, self.base)), (table.src_unit, table.tgt_unit)
            if units != (raw.src_unit, raw.tgt_unit):
                factors = stated.factor("src", table.src_unit) or 1.0, stated.factor("tgt", table.tgt_unit) or 1.0
                sentences = sentences.converted(raw, *factors)
            key = "quality", text, units, table.end_of_sentence, *((one.path, one.model) for one in scores)
            return self.cache.get(key, partial(join_scores, sentences, table, scores))

    def draws(self, case: Case) -> DrawnProfiles:
        """Draw the profiles of the workload's devices. A profile has the same draws on all devices and workloads that use it.

        Raises `ProfileError` if the error of no device's calibration is known.
        """
        uncertainty, seed = self.scenario.profile_uncertainty, self.scenario.seed
        assert uncertainty is not None
        src_len, tgt_len = case.table.at_quantiles((np.arange(REPRESENTATIVE) + 0.5) / REPRESENTATIVE)
        columns: list[list[Target]] = []
        exact: dict[str, str] = {}
        for target in case.targets:
            measured = self.measured(target.device)
            special = "its model is streamed" if target.streaming else "its iterations have no samples" if target.slots else ""
            reason = special or (measured and lacking_samples(measured))
            if reason or measured is None:
                exact[target.device] = reason or "its costs are a function"
                columns.append([target] * uncertainty.profiles)
                continue
            src, tgt = (1.0, 1.0) if target.conversion is None else (target.conversion.src, target.conversion.tgt)
            error = CalibrationDraws(measured, src * src_len, tgt * tgt_len)
            profiles = [
                error.draw(random_streams.stream(seed, number, f"profile {measured.name}"))
                for number in range(uncertainty.profiles)
            ]
            columns.append([self.with_profile(target, profile, case.table) for profile in profiles])
        if len(exact) == len(case.targets):
            reasons = format_list(f"{device}: {reason}" for device, reason in exact.items())
            what = f"the error of no profile's calibration is known for workload {case.name} ({reasons})"
            with self.naming("profile_uncertainty"):
                remedy = "name a profile that simnmt calibrate measured, or leave profile_uncertainty out"
                raise ProfileError(what, remedy=remedy)
        return DrawnProfiles(tuple(zip(*columns, strict=True)), exact)

    def with_profile(self, target: Target, profile: DeviceProfile, table: LengthTable) -> Target:
        """Return a target with another profile of the same blocks, as read from its file."""
        charged, choice = self.charged_profile(target.device, profile, target.conversion, table)
        return replace(target, profile=charged, decoder=choice, decoding=self.decoding(target.device, charged))

    def target(self, device: str, measured: DeviceProfile | None, table: LengthTable, stated: Fertility) -> Target:
        """Return how a device executes the workload's requests; `table`: the pairs that they are drawn from."""
        part, cost = self.scenario.devices[device], self.cost(device)
        if measured is None:
            assert cost is not None
            with self.naming_profile(device):
                units = (table.src_unit, table.tgt_unit)
                measured = profile_of_cost(cost, table.src_len, table.tgt_len, table.count, units, table.end_of_sentence)
        conversion = Conversion.between(table, measured.length_unit, stated)
        profile, choice = self.charged_profile(device, measured, conversion, table)
        used = ["execution"] if part.sti is None else ["sti"]
        used += ["step", "encoder", "overheads"] if part.batching is not None else []
        used += ["slots"] if measured.slots is not None else []
        used += ["decoder"] if part.decoder is not None else []
        used += ["energy"] if measured.energy is not None else []
        names = self.scenario.models_of(device, self.workload)
        models = dict(self.held_model(device, name, measured) for name in names)
        self.check_memory(device, models, f"to execute workload {self.workload} takes")
        used += ["model_memory"] if any(models.values()) and measured.model_memory is not None else []
        # The doubts are those of the profile as measured: after a move to another decoder it has no variants.
        doubts = profile_doubts(measured, tuple(used), beam=None if choice is None else choice.settings.beam)
        effects = tuple(dict.fromkeys(doubt.effect for doubt in doubts if doubt.effect))
        with self.naming("devices", device, "profile" if part.slots is None else "slots"):
            slots = slots_of(device, self.scenario, self.workload, profile, table)
        decoding, streaming = self.decoding(device, profile), self.streaming(device, profile, table)
        is_fifo = decoding is None and streaming is None and slots is None
        workers = part.workers or (measured.execution.workers if is_fifo else None) or 1
        return Target(device, profile, effects, choice, decoding, streaming, conversion, models, workers, slots, cost)

    def held_model(self, device: str, workload: str, measured: DeviceProfile) -> tuple[str, HeldModel | None]:
        """Return the name of a model and its part of the memory of a box, None if all models are always in memory.

        `measured`: profile of the device for the workload that is read. Raises `ScenarioError` if size or loading time of the
        model is unknown, or if it does not fit.
        """
        part, model = self.scenario.devices[device], self.scenario.model_of(device, workload)
        profile = self._measured(device, workload) or measured
        name = f"profile {profile.name}" if model is None or model.multilingual else f"workload {workload}"
        if model is None or part.memory_gb is None:
            return name, None
        block, place = profile.model_memory, ("devices", device, "models", workload)
        stated = {"memory_gb": model.memory_gb, "load_s": model.load_s}
        lacking = [key for key, value in stated.items() if value is None]
        if lacking and block is None:
            with self.naming(*place):
                what = f"profile {profile.name} does not say how much memory its model takes and how long it loads"
                example = ", ".join(f"{key}: {value}" for key, value in {"memory_gb": 1.2, "load_s": 3}.items())
                raise ScenarioError(what, remedy=f"calibrate it anew, or give {{profile: ..., {example}}}")
        size_bytes = block.resident_bytes if block and model.memory_gb is None else round((model.memory_gb or 0.0) * GIGABYTE)
        load_s = block.load_s if block and model.load_s is None else model.load_s or 0.0
        memory_bytes, kind = round(part.memory_gb * GIGABYTE), block.kind if block and lacking else "given"
        return name, HeldModel(memory_bytes, size_bytes, load_s, kind, part.evict == "never")

    def charged_profile(
        self, device: str, measured: DeviceProfile, conversion: Conversion | None, table: LengthTable
    ) -> tuple[DeviceProfile, DecoderChoice | None]:
        """Return the profile by which a device is charged, calibrated or drawn, and its decoder variant."""
        with self.naming_profile(device):
            profile = self.checked_profile(device, measured, conversion, table)
        decoder = self.scenario.devices[device].decoder
        if decoder is None:
            return profile, None
        with self.naming("devices", device, "decoder"):
            return with_decoder(profile, decoder)

    def checked_profile(
        self, device: str, profile: DeviceProfile, conversion: Conversion | None, table: LengthTable
    ) -> DeviceProfile:
        """Return the profile in the workload's unit. Raises `ProfileError` if it does not fit the workload."""
        part, name = self.scenario.devices[device], self.workload
        unit = LengthUnit(src=table.src_unit, tgt=table.tgt_unit, end_of_sentence=table.end_of_sentence)
        if conversion is not None:
            for key in ("batching", "decoder", "sti"):
                if getattr(part, key) is not None:
                    units = f"{conversion.src_unit} and {conversion.tgt_unit}"
                    what = f"{key} needs lengths in the profile's unit, {units}, but workload {name} is counted otherwise"
                    raise ProfileError(what, remedy=counting_remedy("src", conversion.src_unit))
            profile = profile.counted_in(unit, conversion.src, conversion.tgt)
        else:
            sides: dict[Side, str] = {"src": table.src_unit, "tgt": table.tgt_unit}
            for side, counted in sides.items():
                expected = getattr(profile.length_unit, side)
                if counted != expected:
                    what = f"the profile counts {side} lengths by {expected}, workload {name} by {counted}"
                    remedy = f"{counting_remedy(side, expected)}, or state workloads.{name}.lengths.fertility.{side}"
                    raise ProfileError(what, remedy=remedy)
            profile = profile.counted_in(unit)
        if not profile.plane.seconds(table.src_len, table.tgt_len).any():
            raise ProfileError(f"no request of workload {name} would take any time", remedy="correct the plane's fixed part")
        share = outside_share(profile, table)
        if share > part.outside_range_share:
            (src_low, src_high), (tgt_low, tgt_high) = profile.valid_range.src_len, profile.valid_range.tgt_len
            raise ProfileError(
                f"{100 * share:.1f} % of workload {name} lies outside the profile's range "
                f"(source {src_low} to {src_high}, target {tgt_low} to {tgt_high} tokens)",
                remedy=f"take a profile measured on such lengths, or set devices.{device}.outside_range_share",
            )
        return profile

    def decoding(self, device: str, profile: DeviceProfile) -> Decoding | None:
        """Return how a device batches, or None. Refuse batches larger than the measured ones, unless the scenario allows it."""
        part = self.scenario.devices[device]
        if part.batching is None:
            return None
        with self.naming_profile(device):
            cost = profile.decoding_cost
        batching = replace(part.batching.batching, max_wait_s=self.scenario.max_wait_s)
        if batching.size > cost.most_batch and not part.beyond_measured_batch:
            with self.naming("devices", device, "batching", "size"):
                raise ScenarioError(
                    f"batches of up to {batching.size}, but profile {profile.name} has step costs measured up to "
                    f"{cost.most_batch}",
                    remedy=f"give {cost.most_batch} or less, calibrate with --max-batch {batching.size}, "
                    f"or set devices.{device}.beyond_measured_batch: true",
                )
        # Where requests queue, executions whose every repeat counted differ in a batch too; the noise of others is small.
        is_alone = isinstance(self.scenario.workloads[self.workload].arrivals, BackToBack)
        varies = not is_alone and profile.execution.residual_quantiles is not None
        if getattr(part.batching, "refill", "measured") == "free":
            cost = replace(cost, refill_s_fixed=0.0, refill_s_per_sentence=0.0)
            return Decoding(batching, cost, varies, free_refills=True)
        if batching.threshold and not profile.knows_refills:
            with self.naming("devices", device, "batching"):
                raise ProfileError(
                    f"a running batch is refilled, but the cost of that was not measured for profile {profile.name} "
                    "(overheads.refill_s_fixed and refill_s_per_sentence)",
                    remedy="calibrate the device anew, name a profile that has them, or let refills cost nothing: "
                    f"devices.{device}.batching.refill: free",
                )
        ends_together = profile.engine is not None and profile.engine.backend == "ctranslate2"
        return Decoding(batching, cost, varies, ends_together=ends_together)

    def streaming(self, device: str, profile: DeviceProfile, table: LengthTable) -> StreamedDevice | None:
        """Return the streamed device, or None if the device's model stays in memory."""
        sti = self.scenario.devices[device].sti
        if sti is None:
            return None
        with self.naming_profile(device):
            cost = profile.sti_cost
            if cost.decoder is None and profile.plane.s_per_tgt_token > 0.0:
                what = f"profile {profile.name} takes time for target tokens, but streams a classifier without a decoder"
                raise ProfileError(
                    what, remedy="name a translator's profile, from simnmt sti profile --model, or the classifier's"
                )
        with self.naming("devices", device, "sti"):
            return streamed_device(sti, profile, cost, table)
