"""The result of a run: tables for a notebook, and all data of its page."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from simnmt.base.errors import InputError
from simnmt.base.suggestions import format_list
from simnmt.network.series import RttSeries
from simnmt.results.columns import Array
from simnmt.results.device_accounts import BatchAccount, PlannedDevice, RunEnergy, StreamAccount
from simnmt.results.metrics import Assertion, Assessment
from simnmt.results.places import ALL, CellName, Place, by_cell, wholes
from simnmt.results.requests import RequestLog, drawn_logs
from simnmt.results.summary import Device, Row
from simnmt.workload.length_table import LengthTable

if TYPE_CHECKING:
    import pandas as pd

REQUESTS = "requests.parquet"
"""File of a run directory with every request of replication 0."""
MOST_DRAWN = 2_000_000
"""Most requests of a policy that the figures show; of more, an even sample."""
MOST_LATENESS_MS = 5.0
"""Lateness of the load generator at p99 above which latencies are doubtful."""


@dataclass(frozen=True, slots=True)
class LiveMeasurement:
    """Where and how a live replay measured."""

    url: str
    """Address of the gateway, without a token."""
    begun: str
    """Date and time of the first request, UTC, ISO 8601."""
    ended: str
    outcomes: Mapping[str, int]
    """Requests of all replications by how they ended (`live_log.LIVE_OUTCOMES`)."""
    lateness_ms: Mapping[str, float]
    """By how much later than due the load generator sent requests: `p50`, `p99`, `max`."""
    texts_digest: str | None = None
    """SHA-256 of the texts that were sent in turn; None if they had the lengths of the workload."""

    @property
    def late_ms(self) -> float | None:
        """Lateness of the load generator at p99 if it makes the latencies doubtful; None if it does not."""
        late_ms = self.lateness_ms.get("p99", 0.0)
        return late_ms if late_ms > MOST_LATENESS_MS else None


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """The results of one simulated world: a workload on a network in replication 0, under every policy.

    Of a run directory `logs` are known; the rest has its defaults.
    """

    site: str
    workload: str
    network: str
    devices: tuple[Device, ...]
    """In the order of the targets, as are the other tuples."""
    logs: Mapping[str, RequestLog]
    """By policy, as are the other mappings."""
    batches: Mapping[str, tuple[BatchAccount | None, ...]] = field(default_factory=dict)
    """None for a target that did not batch; without policies for which no target batched."""
    lengths: LengthTable | Any = None
    series: RttSeries | Any = None
    """Series of the link; this and `lengths` are None in a run that was loaded from a directory."""
    regression_slope: float = nan
    regression_offset: float = nan
    planes: tuple[tuple[float, float, float], ...] = ()
    """Plane of each target that C-NMT assumes: seconds per source token, per target token, fixed."""
    profile_kinds: tuple[str, ...] = ()
    """How the numbers of each target's profile are known."""
    profile_names: tuple[str, ...] = ()
    streams: Mapping[str, tuple[StreamAccount | None, ...]] = field(default_factory=dict)
    """None for a model in memory; without policies for which no target streamed."""
    planned: tuple[PlannedDevice | None, ...] = ()
    """Plans of each target's streamed model, None for a model in memory; empty if no target streams."""
    energies: Mapping[str, RunEnergy] = field(default_factory=dict)
    """Joules and money; empty if they are not accounted for."""
    profile_warnings: tuple[tuple[str, ...], ...] = ()
    """Effects on the numbers of what is doubtful about each target's profile; empty if they were not determined."""

    parts: Mapping[tuple[str, str], Array] = field(default_factory=dict)
    """Rows of each workload at each site, in a world that several of them share; else empty."""
    sources: tuple[Cell, ...] = ()
    """In such a world, cells without requests: what each workload at each site reads and is believed to take; else empty."""

    @property
    def name(self) -> CellName:
        """Site, workload and network."""
        return CellName.of(self)

    @property
    def inputs(self) -> tuple[Cell, ...]:
        """The cells whose lengths, series and profiles are those of all requests: `sources`, or the cell itself."""
        return self.sources or (self,)

    @property
    def shown_kinds(self) -> tuple[str, ...]:
        """`profile_kinds` for a reader: `measured, doubtful` if the profile has warnings."""
        warned = self.profile_warnings or ((),) * len(self.profile_kinds)
        return tuple(shown_kind(kind, bool(messages)) for kind, messages in zip(self.profile_kinds, warned, strict=True))

    def accounts(self, kind: Literal["batches", "streams"]) -> Iterator[tuple[str, str, Any]]:
        """Yield policy, device and account of the devices that batched, or that streamed their model."""
        for policy, of_devices in getattr(self, kind).items():
            for device, account in zip(self.devices, of_devices, strict=False):
                if account is not None:
                    yield policy, device.name, account


def placed_logs(cells: Iterable[Cell]) -> Iterator[tuple[RequestLog, dict[str, tuple[list[str], Array]]]]:
    """Yield each log, with the names of all sites, workloads, networks and policies, and the number of that of each request."""
    parts: list[tuple[Cell, Mapping[tuple[str, str], Any]]]
    parts = [(cell, cell.parts or {(cell.site, cell.workload): slice(None)}) for cell in cells]
    places = [Place(*group, cell.network, policy) for cell, groups in parts for group in groups for policy in cell.logs]
    names = {key: list(dict.fromkeys(of_key)) for key, of_key in zip(Place._fields, zip(*places, strict=True), strict=True)}
    for cell, groups in parts:
        for policy, log in cell.logs.items():
            numbers = {key: np.zeros(log.requests, np.int32) for key in names}
            for group, rows in groups.items():
                for key, name in Place(*group, cell.network, policy)._asdict().items():
                    numbers[key][rows] = names[key].index(name)
            yield log, {key: (names[key], numbers[key]) for key in names}


def shown_kind(kind: str, is_doubtful: bool) -> str:
    """Return the kind of a profile for a reader."""
    return f"{kind}, doubtful" if is_doubtful else kind


def format_sources(profiles: Sequence[tuple[str, str]], series: Sequence[tuple[str, str]]) -> str:
    """Return a line on the kinds of device profiles and round trips; each is a kind and a name.

    >>> format_sources([("measured, doubtful", "edge"), ("inferred", "cloud")], [("synthetic", "cp1")])
    'device profiles: edge measured but doubtful, cloud inferred; round trips: cp1 synthetic'
    """

    def grouped(kinds: Sequence[tuple[str, str]]) -> str:
        names: dict[str, dict[str, None]] = {}
        for kind, name in kinds:
            names.setdefault(kind, {})[name] = None
        return ", ".join(f"{format_list(those)} {kind.replace(', ', ' but ')}" for kind, those in names.items())

    return f"device profiles: {grouped(profiles)}; round trips: {grouped(series)}"


def group_doubts(uses: Iterable[tuple[str, str, str, tuple[str, ...]]]) -> list[dict[str, Any]]:
    """Return each doubtful profile once, with the devices that use it: `profile`, `kind`, `devices`, `warnings`.

    `uses`: device, its profile, how the profile's numbers are known, and the profile's warnings.
    """
    devices: dict[tuple[str, str, tuple[str, ...]], dict[str, None]] = {}
    for device, profile, kind, messages in uses:
        if messages:
            devices.setdefault((profile, kind, messages), {})[device] = None
    return [
        {"profile": profile, "kind": kind, "devices": list(names), "warnings": list(messages)}
        for (profile, kind, messages), names in devices.items()
    ]


def doubtful_profiles(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Return the doubtful profiles of some cells, each once (`group_doubts`)."""
    return group_doubts(
        (device.name, profile, kind, messages)
        for cell in itertools.chain.from_iterable(cell.inputs for cell in cells)
        for device, profile, kind, messages in zip(
            cell.devices, cell.profile_names, cell.profile_kinds, cell.profile_warnings, strict=False
        )
    )


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run: one that was just made, or one that a run directory holds (`run_directory.load_run`)."""

    name: str
    seed: int
    summary_rows: list[Row]
    """One record per site, workload, network and policy (see `simnmt.results.summary`)."""
    comparisons: list[Row] = field(default_factory=list)
    fits: list[Row] = field(default_factory=list)
    """Fits per workload and device: the beliefs of the policies, with their errors."""
    recommendations: list[Row] = field(default_factory=list)
    """The best deployable policy of each cell (see `simnmt.results.recommendation`)."""
    gaps: list[Row] = field(default_factory=list)
    """The gap analysis: one row per cell and removed source of loss (CNMT-19); empty if none was asked for."""
    notes: list[str] = field(default_factory=list)
    """Sentences that a reader needs to judge the numbers."""
    cells: Sequence[Cell] = ()
    """The cells; those of a run directory are read when they are used first."""
    replicated: dict[Place, dict[str, list[float | None]]] = field(default_factory=dict)
    """Value of each replication by column, by which runs are compared and judged; in the manifest of a run directory."""
    scenario: dict[str, Any] = field(default_factory=dict)
    live: LiveMeasurement | None = None
    """How the numbers were measured live; None if they are simulated."""
    directory: Path | None = None
    input_digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of every file that the run read, by its name in the scenario."""
    manifest: dict[str, Any] = field(default_factory=dict)
    """Manifest of the run directory that it was loaded from; else empty."""
    warnings: list[str] = field(default_factory=list)
    """Suspicious input, such as languages in the wrong order or a doubtful profile; also among the notes.

    This and the next three are not part of a run directory."""
    scope: list[str] = field(default_factory=list)
    """Notes on what the run covers, which the console prints too; also among the notes."""
    engines: dict[str, str] = field(default_factory=dict)
    """The engine of the world by policy."""
    engine_reasons: dict[str, str] = field(default_factory=dict)
    """Why a policy ran on its engine, by policy; without policies of which there is nothing to say."""

    @property
    def drawn_cells(self) -> list[Cell]:
        """The cells for figures: with the requests alone that every policy answered, and of many an even sample."""
        return [replace(cell, logs=drawn_logs(cell.logs, MOST_DRAWN)) for cell in self.cells]

    @property
    def whole_rows(self) -> list[Row]:
        """The rows of all requests of each simulated world, without those of the sites and the workloads of a mix."""
        return [row for of_cell in wholes(self.summary_rows).values() for row in of_cell]

    @property
    def requests(self) -> pd.DataFrame:
        """Every request of replication 0, with its site, workload, network and policy."""
        import pandas as pd

        if self.manifest and self.directory is not None:
            path = self.directory / REQUESTS
            try:
                return pd.read_parquet(path)
            except (OSError, ValueError):
                raise InputError("cannot be read", path=path, remedy="run the scenario anew") from None
        frames = []
        for log, places in placed_logs(self.cells):
            named = {key: pd.Categorical.from_codes(numbers, pd.Index(names)) for key, (names, numbers) in places.items()}
            frames.append(pd.DataFrame(named | {**log}))
        return pd.concat(frames, ignore_index=True)

    @property
    def totals_s(self) -> dict[Place, list[float]]:
        """Total latency of each replication, which every run knows."""
        return {place: cast(list[float], columns["total_latency_s"]) for place, columns in self.replicated.items()}

    @property
    def rows(self) -> pd.DataFrame:
        """The summary as a table: one row per site, workload, network and policy; seconds."""
        import pandas as pd

        return pd.DataFrame(self.summary_rows)

    @property
    def differences(self) -> pd.DataFrame:
        """The paired comparisons of the run's policies as a table, percent."""
        import pandas as pd

        return pd.DataFrame(self.comparisons)

    def best(self, workload: str | None = None, network: str | None = None) -> Row:
        """Return the row of the recommended policy of a workload and network, by default the first ones.

        Raises `InputError` if there is no such place, or if no policy is recommended there.

        Example:
            >>> simnmt.run("@quickstart").best(network="cp2")["policy"]  # doctest: +SKIP
            'cnmt'
        """
        for recommended in self.recommendations:
            if CellName.of(recommended).matches(workload, network) and recommended["policy"] is not None:
                return next(row for row in self.summary_rows if Place.of(row) == Place.of(recommended))
        what = f"no policy is recommended for {workload or 'any workload'} on {network or 'any network'}"
        places = format_list((str(CellName.of(row)) for row in self.recommendations), ",")
        raise InputError(what, remedy=f"the run has {places}" if places else None)

    def assess(
        self, text: str, workload: str | None = None, network: str | None = None, site: str | None = None
    ) -> list[Assessment]:
        """Return whether the run meets a requirement such as `p95_ms<=300`, in every cell, the parts of a mix included.

        Args:
            text: a requirement of the recommended policy, of another one, as in `"cnmt: p95_ms<=300"`, or of one workload or
                class, as in `"class files: p95_ms<=300"`. Without recommendations, as live, the only policy is judged.
            workload, network, site: the ones judged; None: all.

        Raises `InputError` for an unknown metric, policy or place, and for a metric that the run does not have.
        """
        named = ({row[key]: None for row in self.summary_rows if row[key] != ALL} for key in ("policy", "workload"))
        assertion = Assertion.parse(text, *named)
        recommended = {CellName.of(record): record["policy"] for record in self.recommendations}
        cells = by_cell(self.summary_rows)
        judged = [
            cell for cell in cells if cell.matches(workload, network, site) and assertion.workload in (None, cell.workload)
        ]
        if not judged:
            what = f"{assertion}: no results of {workload or 'any workload'} on {network or 'any network'}"
            raise InputError(what, remedy=f"the run has {format_list(map(str, cells), ',')}")
        assessments = []
        for cell in judged:
            here = {row["policy"]: row for row in cells[cell]}
            policy = assertion.policy or recommended.get(cell.whole(cells)) or (next(iter(here)) if len(here) == 1 else None)
            if policy is None:
                remedy = f"name a policy, as in '{next(iter(here))}: {assertion}'"
                raise InputError(f"{assertion}: no policy is recommended for {cell}", remedy=remedy)
            assessments.append(assertion.requirement.assess(here[policy], self.replicated.get(Place(*cell, policy), {})))
        return assessments

    def meets(self, text: str, workload: str | None = None, network: str | None = None, site: str | None = None) -> bool:
        """Return whether a requirement is met everywhere that `assess` judges it.

        Example:
            >>> simnmt.run("@quickstart", requests=1000).meets("p95_ms<=300", network="cp2")  # doctest: +SKIP
            True
        """
        return all(assessment.met for assessment in self.assess(text, workload, network, site))

    def document(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        named = {"name": self.name, "seed": self.seed, "rows": self.summary_rows}
        named |= {key: getattr(self, key) for key in ("comparisons", "recommendations", "fits", "gaps")}
        parts: dict[str, list[Row]] = {"batches": [], "plans": [], "streams": [], "energy": []}
        for cell in self.cells:
            place = cell.name._asdict()
            for kind in ("batches", "streams"):
                for policy, device, account in cell.accounts(kind):
                    parts[kind].append({**place, "policy": policy, "device": device, **account.as_json()})
            for of_device, planned in zip(cell.devices, cell.planned, strict=False):
                if planned is not None:
                    parts["plans"].append({**place, "device": of_device.name, **planned.as_json()})
            for policy, energy in cell.energies.items():
                parts["energy"] += [{**place, "policy": policy, **part} for part in energy.parts]
        known = {name: records for name, records in parts.items() if records or name == "batches"}
        live = {} if self.live is None else {"live": asdict(self.live)}
        return {**named, **known, **live, "notes": self.notes}
