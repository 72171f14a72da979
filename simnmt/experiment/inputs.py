"""Read the files that a scenario names (lengths, profiles, arrivals, links) and check that they fit each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simnmt.base.configuration import EndOfSentence
from simnmt.base.errors import InputError
from simnmt.batching.configuration import batching_of
from simnmt.experiment.streaming_setup import StreamedDevice, streamed_device
from simnmt.network.configuration import Network, load_network
from simnmt.profile.batch_cost import DecodingCost
from simnmt.profile.blocks import ProfileError
from simnmt.profile.device_profile import DeviceProfile, LengthUnit
from simnmt.profile.doubts import Doubt, profile_doubts
from simnmt.profile.profile_file import read_profile
from simnmt.profile.profile_variant import DecoderChoice, with_decoder
from simnmt.scenario.configuration import Scenario
from simnmt.scenario.document import Document
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.source import profile_path
from simnmt.workload.arrivals import ArrivalProcess
from simnmt.workload.configuration import (
    Lengths,
    count_fertility,
    fertility_of,
    lengths_warnings,
    load_lengths,
    load_replayed_outliers,
)
from simnmt.workload.fertility import Fertility, check_fertility, convert_units, counting_remedy
from simnmt.workload.length_table import LengthTable
from simnmt.workload.length_units import Side
from simnmt.world.batch_pool import BatchServerSpec
from simnmt.world.streaming_server import StreamingServerSpec


@dataclass(frozen=True, slots=True)
class Decoding(BatchServerSpec):
    """How each box of a target decodes in batches, and what its profile says that takes."""

    cost: DecodingCost
    free_refills: bool = False
    """Whether the scenario takes joining a batch to cost nothing."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """Mean tokens of a profile's unit in a token of the workload's, by which the profile's costs were converted."""

    src: float
    tgt: float
    src_unit: str
    """Of the profile before."""
    tgt_unit: str
    counted: bool
    """On the corpus, rather than stated."""


@dataclass(frozen=True, slots=True)
class Target:
    """How a device executes the requests of one workload."""

    device: str
    """Its name in the scenario."""
    profile: DeviceProfile
    doubts: tuple[Doubt, ...] = ()
    """What makes those cost models of its profile doubtful that this workload uses."""
    decoder: DecoderChoice | None = None
    """The variant of the decoder that the profile was moved to; None where the scenario names none."""
    decoding: Decoding | None = None
    """How it batches; None where requests are executed one by one."""
    streaming: StreamedDevice | None = None
    """How its model is streamed from the disk; None where it stays in memory."""
    conversion: Conversion | None = None
    """How its profile was converted to the workload's unit; None where they count alike."""

    @property
    def streamed(self) -> StreamingServerSpec | None:
        """How its boxes stream their model; None where that stays in memory."""
        return None if self.streaming is None else self.streaming.streamed

    @property
    def kind(self) -> str:
        """How the numbers are known by which it executes: those of the block `sti` where its model is streamed."""
        return self.profile.execution.kind if self.streaming is None else self.streaming.planned.kind

    def in_memory_s(
        self,
        src_len: NDArray[np.int64],
        tgt_len: NDArray[np.int64] | NDArray[np.float64],
        standard_normal: NDArray[np.float64],
        more_s_per_tgt_token: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Return what requests take alone, with nothing to be read from a disk: see `DeviceProfile.execution_s`.

        A streamed model computes what was planned, which the profile's plane, of the whole model, does not tell.
        """
        if self.streamed is None:
            return self.profile.execution_s(src_len, tgt_len, standard_normal, more_s_per_tgt_token)
        return self.streamed.compute.in_memory_s(src_len, tgt_len) * self.profile.residual.factor(standard_normal)

    def execution_s(
        self,
        src_len: NDArray[np.int64],
        tgt_len: NDArray[np.int64] | NDArray[np.float64],
        standard_normal: NDArray[np.float64],
        more_s_per_tgt_token: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Return the same as the device charges it: where it batches, what its steps take of the request alone."""
        if self.decoding is None:
            return self.in_memory_s(src_len, tgt_len, standard_normal, more_s_per_tgt_token)
        return self.decoding.cost.solo_s(src_len, np.rint(tgt_len) if tgt_len.dtype.kind == "f" else tgt_len)

    def mean_alone_s(self, table: LengthTable) -> float:
        """Return what a request takes alone on average, seconds, as the device charges it back to back.

        A streamed model is taken to be in the last turn of an engagement, as it is while requests follow each other.
        """
        src_len, tgt_len = table.src_len, table.tgt_len
        if self.streamed is not None:
            alone_s = self.streamed.compute.in_memory_s(src_len, tgt_len) + self.streamed.beyond_s(src_len)[-1]
        elif self.decoding is not None:
            alone_s = self.decoding.cost.solo_s(src_len, tgt_len)
        else:
            alone_s = self.profile.plane.seconds(src_len, tgt_len)
        return float(np.average(alone_s, weights=table.count))


@dataclass(frozen=True, slots=True)
class Case:
    """One workload as it was read: what depends neither on the network nor on the replication."""

    name: str
    table: LengthTable
    """The pairs that the filter keeps; each replication deals them out into those to fit on and those to evaluate."""
    targets: tuple[Target, ...]
    arrivals: ArrivalProcess
    warnings: tuple[str, ...]
    """What looks wrong with the lengths, such as languages in the wrong order; empty where all is well."""
    outliers: LengthTable | None = None
    """The pairs that the filter drops and that requests are drawn from all the same; None where these are left out."""

    @property
    def profiles(self) -> tuple[DeviceProfile, ...]:
        """The profile of each target."""
        return tuple(target.profile for target in self.targets)

    @property
    def replayed(self) -> LengthTable:
        """All pairs that requests may be drawn from."""
        return self.table if self.outliers is None else self.table.plus(self.outliers)

    @property
    def queues(self) -> bool:
        """Whether a request may meet another."""
        return self.arrivals.discipline != "back_to_back"

    @property
    def batches(self) -> bool:
        """Whether a batch may hold more than one request."""
        return self.queues and any(target.decoding for target in self.targets)

    @property
    def streams(self) -> bool:
        """Whether a device streams its model, so that what a request takes depends on those before it."""
        return any(target.streaming for target in self.targets)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A scenario with everything read that it names."""

    scenario: Scenario
    cases: dict[str, Case]
    networks: dict[str, Network]


def read_inputs(scenario: Scenario, base: Path, document: Document | None = None) -> RunPlan:
    """Read what the scenario names; relative paths start at `base`.

    Raises the rooms' own `InputError`s: `CorpusError`, `TraceError`, `ProfileError`; with a `document`, those that know no
    line in a file of theirs name the key of the scenario and its place.
    """
    networks = {
        name: load_network(part, base, name, partial(_name_key_in_errors, document, "networks", name))
        for name, part in scenario.networks.items()
    }
    return RunPlan(scenario, {name: _read_case(scenario, name, base, document) for name in scenario.workloads}, networks)


@contextmanager
def _name_key_in_errors(document: Document | None, *location: str | int) -> Iterator[None]:
    """Tell of a file that is missing or unfit as a whole which key of the scenario names it."""
    try:
        yield
    except InputError as error:
        if document is None or error.line is not None:
            raise
        what = error.what if error.path is None else f"{error.path}: {error.what}"
        place = document.error(location, what, remedy=error.remedy)
        label = f"{place.override}: " if place.override else ""
        raise type(error)(
            f"{label}{place.what}", path=place.path, line=place.line, column=place.column, remedy=place.remedy
        ) from error


def _read_case(scenario: Scenario, name: str, base: Path, document: Document | None) -> Case:
    lengths, read = scenario.workloads[name].lengths, list[DeviceProfile]()
    for device in scenario.devices:
        with _name_profile_in_errors(scenario, device, name, document):
            read.append(read_profile(profile_path(scenario.profile_of(device, name), base)))
    with _name_key_in_errors(document, "workloads", name, "lengths"):
        table = load_lengths(lengths, base)
        warnings = lengths_warnings(lengths, table)
        outliers = load_replayed_outliers(lengths, base, table)
        fertility, ends, unit = fertility_of(lengths), _end_of_sentence(read), read[0].length_unit
        check_fertility(fertility, "src", table.src_unit, [profile.length_unit.src for profile in read])
        check_fertility(fertility, "tgt", table.tgt_unit, [profile.length_unit.tgt for profile in read])
        alike = all((profile.length_unit.src, profile.length_unit.tgt) == (unit.src, unit.tgt) for profile in read)
        if fertility is None or not alike:
            fertility, unit = None, LengthUnit(src=table.src_unit, tgt=table.tgt_unit)
        table = convert_units(table, fertility, unit.src, unit.tgt, ends)
        outliers = None if outliers is None else convert_units(outliers, fertility, unit.src, unit.tgt, ends)
        counted = _counted_fertility(lengths, base, table, read)
        conversions = [_conversion(lengths, table, profile, counted) for profile in read]
        replayed = table if outliers is None else table.plus(outliers)
        table.split(scenario.fit.share, scenario.seed)  # refuses a corpus too small to split, here where its key is known
    targets = tuple(
        _target(scenario, device, name, base, profile, conversion, replayed, document)
        for device, profile, conversion in zip(scenario.devices, read, conversions, strict=True)
    )
    with _name_key_in_errors(document, "workloads", name, "arrivals"):
        arrivals = scenario.workloads[name].arrivals.process(base)
    return Case(name, table, targets, arrivals, warnings, outliers)


def _target(
    scenario: Scenario,
    device: str,
    workload: str,
    base: Path,
    measured: DeviceProfile,
    conversion: Conversion | None,
    table: LengthTable,
    document: Document | None,
) -> Target:
    """Return how a device executes a workload's requests by its profile; `table`: the pairs that they are drawn from."""
    part, choice = scenario.devices[device], None
    with _name_profile_in_errors(scenario, device, workload, document):
        profile = _checked_profile(scenario, device, workload, table, base, measured, conversion)
    if part.decoder is not None:
        with _name_key_in_errors(document, "devices", device, "decoder"):
            profile, choice = with_decoder(profile, part.decoder)
    # Of the profile as it was measured: one that is moved to another decoder no longer knows how its variants were.
    beam = None if choice is None else choice.settings.beam
    doubts = tuple(profile_doubts(measured, used_cost_models(scenario, device, measured), beam=beam))
    decoding = _decoding(scenario, device, workload, profile, document)
    streaming = _streamed(scenario, device, workload, profile, table, document)
    return Target(device, profile, doubts, choice, decoding, streaming, conversion)


def used_cost_models(scenario: Scenario, device: str, profile: DeviceProfile) -> tuple[str, ...]:
    """Return the names of a profile's cost models by which a device of this scenario executes."""
    part = scenario.devices[device]
    used = ["execution" if part.sti is None else "sti"]
    used += ["step", "encoder", "overheads"] if part.batching is not None else []
    used += ["decoder"] if part.decoder is not None else []
    used += ["energy"] if profile.energy is not None else []
    return tuple(used)


def _streamed(
    scenario: Scenario, device: str, workload: str, profile: DeviceProfile, table: LengthTable, document: Document | None
) -> StreamedDevice | None:
    """Return the streamed device, or None where the device's model stays in memory."""
    sti = scenario.devices[device].sti
    if sti is None:
        return None
    with _name_profile_in_errors(scenario, device, workload, document):
        cost = profile.sti_cost
        if cost.decoder is None and profile.plane.s_per_tgt_token > 0.0:
            raise ProfileError(
                f"profile {profile.name} takes time for target tokens, but what it streams is a classifier without a decoder",
                remedy="name a translator's, as simnmt sti profile --model makes, or the classifier's own",
            )
    with _name_key_in_errors(document, "devices", device, "sti"):
        return streamed_device(sti, profile, cost, table)


def _decoding(
    scenario: Scenario, device: str, workload: str, profile: DeviceProfile, document: Document | None
) -> Decoding | None:
    """None where the device does not batch. Refuses batches beyond what the profile was measured with, unless allowed."""
    part = scenario.devices[device]
    if part.batching is None:
        return None
    with _name_profile_in_errors(scenario, device, workload, document):
        cost = profile.decoding_cost
    size = part.batching.size
    if size > cost.most_batch and not part.beyond_measured_batch:
        place = ("devices", device, "batching", "size")
        what = f"batches of up to {size}, but profile {profile.name} has step costs measured up to {cost.most_batch}"
        remedy = (
            f"give {cost.most_batch} or less, calibrate with --max-batch {size}, "
            f"or set devices.{device}.beyond_measured_batch: true"
        )
        if document is None:
            raise ScenarioError(f"{'.'.join(place)}: {what}", remedy=remedy)
        raise document.error(place, what, remedy=remedy)
    batching = batching_of(part.batching)
    if getattr(part.batching, "refill", "measured") == "free":
        return Decoding(batching, replace(cost, refill_s_fixed=0.0, refill_s_per_sentence=0.0), free_refills=True)
    if batching.threshold and not profile.knows_refills:
        with _name_key_in_errors(document, "devices", device, "batching"):
            raise ProfileError(
                f"a running batch is refilled, but what that takes was not measured for profile {profile.name} "
                "(overheads.refill_s_fixed and refill_s_per_sentence)",
                remedy="calibrate the device anew, name a profile that has them, or let refills cost nothing: "
                f"devices.{device}.batching.refill: free",
            )
    return Decoding(batching, cost)


def _end_of_sentence(profiles: Sequence[DeviceProfile]) -> EndOfSentence:
    """Which lengths of a workload count the end of a sentence: as the first profile that has decode steps says, else the first.

    The others follow by `DeviceProfile.counting`.
    """
    stepping = [profile for profile in profiles if profile.step is not None or profile.decoder is not None or profile.sti]
    return (stepping or profiles)[0].length_unit.end_of_sentence


def _name_profile_in_errors(
    scenario: Scenario, device: str, workload: str, document: Document | None
) -> AbstractContextManager[None]:
    """Name the key of a device's profile in errors of that file as a whole."""
    per_workload = (workload,) if isinstance(scenario.devices[device].profile, dict) else ()
    return _name_key_in_errors(document, "devices", device, "profile", *per_workload)


def _counted_fertility(
    lengths: Lengths, base: Path, table: LengthTable, profiles: Sequence[DeviceProfile]
) -> dict[Side, dict[str, float]]:
    """Return the fertility of the profiles' units that is not stated, counted on the corpus as far as it can be."""
    stated = fertility_of(lengths) or Fertility()
    units: dict[Side, tuple[str, list[str]]] = {
        "src": (table.src_unit, [profile.length_unit.src for profile in profiles]),
        "tgt": (table.tgt_unit, [profile.length_unit.tgt for profile in profiles]),
    }
    wanted = {
        side: {unit for unit in of_profiles if unit != table_unit and stated.factor(side, unit) is None}
        for side, (table_unit, of_profiles) in units.items()
    }
    return count_fertility(lengths, base, wanted)


def _conversion(
    lengths: Lengths, table: LengthTable, profile: DeviceProfile, counted: Mapping[Side, Mapping[str, float]]
) -> Conversion | None:
    """Return how a profile's costs become costs per token of the workload: by the stated fertility, else by the counted one.

    None where they count alike, and where neither is possible.
    """
    unit, stated = profile.length_unit, fertility_of(lengths) or Fertility()
    if (unit.src, unit.tgt) == (table.src_unit, table.tgt_unit):
        return None
    stated_src, stated_tgt = stated.factor("src", unit.src), stated.factor("tgt", unit.tgt)
    src = 1.0 if unit.src == table.src_unit else stated_src or counted["src"].get(unit.src)
    tgt = 1.0 if unit.tgt == table.tgt_unit else stated_tgt or counted["tgt"].get(unit.tgt)
    if src is None or tgt is None:
        return None
    return Conversion(src, tgt, unit.src, unit.tgt, counted=(stated_src, stated_tgt) == (None, None))


def _checked_profile(
    scenario: Scenario,
    device: str,
    name: str,
    table: LengthTable,
    base: Path,
    profile: DeviceProfile,
    conversion: Conversion | None,
) -> DeviceProfile:
    """Return the profile in the workload's unit. Raises `ProfileError` where it does not fit the workload."""
    path = profile_path(scenario.profile_of(device, name), base)
    if conversion is not None:
        part = scenario.devices[device]
        units = f"{conversion.src_unit} and {conversion.tgt_unit}"
        for key in ("batching", "decoder", "sti"):
            if getattr(part, key) is not None:
                what = f"{key} needs lengths in the profile's unit, {units}, but workload {name} is counted otherwise"
                raise ProfileError(what, path=path, remedy=counting_remedy("src", conversion.src_unit))
        unit = LengthUnit(src=table.src_unit, tgt=table.tgt_unit)
        profile = profile.converted(conversion.src, conversion.tgt, unit)
    for side, counted in (("src", table.src_unit), ("tgt", table.tgt_unit)):
        expected = getattr(profile.length_unit, side)
        if counted != expected:
            raise ProfileError(
                f"the profile counts {side} lengths by {expected}, workload {name} by {counted}",
                path=path,
                remedy=f"{counting_remedy(side, expected)}, or state workloads.{name}.lengths.fertility.{side}",
            )
    profile = profile.counting(table.end_of_sentence)
    if not profile.plane.seconds(table.src_len, table.tgt_len).any():
        raise ProfileError(
            f"no request of workload {name} would take any time", path=path, remedy="mend the plane's fixed part"
        )
    allowed = scenario.devices[device].outside_range_share
    share = outside_share(profile, table)
    if share > allowed:
        (src_low, src_high), (tgt_low, tgt_high) = profile.valid_range.src_len, profile.valid_range.tgt_len
        raise ProfileError(
            f"{100 * share:.1f} % of workload {name} lies outside the profile's range "
            f"(source {src_low} to {src_high}, target {tgt_low} to {tgt_high} tokens)",
            path=path,
            remedy=f"take a profile measured on such lengths, or set devices.{device}.outside_range_share",
        )
    return profile


def outside_share(profile: DeviceProfile, table: LengthTable) -> float:
    """Share of the pairs that lie outside the profile's range."""
    return float(table.count[profile.outside(table.src_len, table.tgt_len)].sum() / table.pairs)
