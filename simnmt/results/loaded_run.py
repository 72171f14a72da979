"""A finished run as its directory holds it: rows, requests, and the columns and batches that figures draw."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simnmt.base.files import MOST_DOCUMENT_BYTES, read_bounded
from simnmt.results.device_accounts import BatchAccount
from simnmt.results.request_log import DrawnLog, were_answered
from simnmt.results.requests import Array
from simnmt.results.result import MOST_DRAWN, FinishedRun, LiveMeasurement, Place, RecordedCell
from simnmt.results.run_directory import BATCHES, DEVICES, REPLICATIONS, REQUESTS, SUMMARY, RunDirectoryError, read_manifest
from simnmt.results.summary import Device, Row, by_cell

if TYPE_CHECKING:
    import pandas as pd

REMEDY = "run the scenario anew"


@dataclass(frozen=True, slots=True, repr=False)
class LoadedRun(FinishedRun):
    """A finished run as its directory holds it."""

    directory: Path
    manifest: dict[str, Any]
    batches: list[Row]
    """Batches of each device that formed any, by workload, network and policy."""

    @property
    def drawn_cells(self) -> list[RecordedCell]:
        """The cells for figures: with the answered requests alone, and of many an even sample."""
        file = StoredRequests(self.directory / REQUESTS)
        timelines = _stored_timelines(self.directory / BATCHES) if self.batches else {}
        try:
            accounts = {_device_key(record): _account(record, timelines) for record in self.batches}
            cells = []
            for place, rows in by_cell(self.summary_rows).items():
                devices = [Device(**device) for device in self.manifest[DEVICES][place[0]]]
                cells.append(_cell(file, place, devices, [row["policy"] for row in rows], accounts))
            return cells
        except (KeyError, TypeError, ValueError) as error:
            what = f"no devices and batches of a run: {_describe_damage(error)}"
            raise RunDirectoryError(what, path=self.directory, remedy=REMEDY) from None

    @property
    def requests(self) -> pd.DataFrame:
        """Every request of replication 0, with its workload, network and policy."""
        import pandas as pd

        try:
            return pd.read_parquet(self.directory / REQUESTS)
        except (OSError, ValueError) as error:
            raise _unreadable(self.directory / REQUESTS, error) from None


def load_run(directory: Path, scenario: Row) -> LoadedRun:
    """Return a finished run; `scenario`: the resolved scenario of the directory. Raises `RunDirectoryError`."""
    manifest = read_manifest(directory)
    path = directory / SUMMARY
    copied = ("name", "seed", "comparisons", "fits", "recommendations", "gaps", "notes")
    try:
        summary = json.loads(read_bounded(path, MOST_DOCUMENT_BYTES))
        return LoadedRun(
            summary_rows=summary["rows"],
            batches=summary["batches"],
            **{key: summary[key] for key in copied},
            replicated={
                (row["workload"], row["network"], row["policy"]): dict(row["values"]) for row in manifest.get(REPLICATIONS, ())
            },
            live=LiveMeasurement(**summary["live"]) if "live" in summary else None,
            scenario=scenario,
            directory=directory,
            manifest=manifest,
            input_digests=manifest.get("inputs", {}),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunDirectoryError(f"no summary of a run: {_describe_damage(error)}", path=path, remedy=REMEDY) from None


class StoredRequests:
    """The requests of a run directory: a file of which every row group is of one workload, network and policy."""

    def __init__(self, path: Path) -> None:
        """Read which rows the file has. Raises `RunDirectoryError`."""
        import pyarrow.parquet as pq

        self._path = path
        try:
            self._file = pq.ParquetFile(path)
            self.columns = tuple(self._file.schema_arrow.names)
            self._groups: dict[Place, list[int]] = {}
            for number in range(self._file.num_row_groups):
                labels = self._file.read_row_group(number, columns=["workload", "network", "policy"]).slice(0, 1).to_pylist()
                self._groups.setdefault((labels[0]["workload"], labels[0]["network"], labels[0]["policy"]), []).append(number)
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from None

    def log(self, place: Place) -> StoredLog:
        """Return the requests of one policy. Raises `RunDirectoryError` if there are none."""
        if place not in self._groups:
            raise RunDirectoryError(f"no requests of {place[2]} on {place[0]} and {place[1]}", path=self._path, remedy=REMEDY)
        return StoredLog(self, place)

    def column(self, place: Place, name: str) -> Array:
        """Return one column of one policy's requests. Raises `RunDirectoryError`."""
        try:
            values: Array = self._file.read_row_groups(self._groups[place], columns=[name])[name].to_numpy()
        except (OSError, ValueError) as error:
            raise _unreadable(self._path, error) from None
        return values

    def answered(self, place: Place) -> Array:
        """Return for each request whether every policy of a workload and network answered it. Raises `RunDirectoryError`."""
        beside = [other for other in self._groups if other[:2] == place[:2]]
        return reduce(and_, [were_answered(self.column(other, "outcome")) for other in beside])


class StoredLog(DrawnLog):
    """The requests of one policy in a run directory that every policy answered, each column read on access; of many an even
    sample."""

    def __init__(self, file: StoredRequests, place: Place, most: int = MOST_DRAWN) -> None:
        self._file, self._place, self._most = file, place, most

    def __getitem__(self, name: str) -> Array:
        if name not in self._file.columns:
            raise KeyError(name)
        return self._file.column(self._place, name)[self._answered][:: self._step]

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.columns)

    def __len__(self) -> int:
        return len(self._file.columns)

    @cached_property
    def _answered(self) -> Array:
        return self._file.answered(self._place)

    @property
    def _step(self) -> int:
        return max(-(-self.requests // self._most), 1)

    @property
    def requests(self) -> int:
        """Number of answered requests, those left out of a sample included."""
        return int(np.count_nonzero(self._answered))

    @property
    def whole(self) -> StoredLog:
        """All answered requests."""
        return StoredLog(self._file, self._place, max(self.requests, 1))


_DEVICE_KEYS = ("workload", "network", "policy", "device")


def _device_key(record: Row) -> tuple[str, ...]:
    return tuple(str(record[key]) for key in _DEVICE_KEYS)


def _cell(
    file: StoredRequests,
    place: tuple[str, str],
    devices: Sequence[Device],
    policies: Sequence[str],
    accounts: Mapping[tuple[str, ...], BatchAccount],
) -> RecordedCell:
    by_policy = {policy: tuple(accounts.get((*place, policy, device.name)) for device in devices) for policy in policies}
    batches = {policy: of_devices for policy, of_devices in by_policy.items() if any(of_devices)}
    return RecordedCell(*place, tuple(devices), {policy: file.log((*place, policy)) for policy in policies}, batches=batches)


def _account(record: Row, timelines: Mapping[tuple[str, ...], Array]) -> BatchAccount:
    """Return the batches of one device, with the changes of the first server's batch."""
    counts = {key: value for key, value in record.items() if key not in (*_DEVICE_KEYS, "tokens", "busy_s")}
    counts |= {"steps": np.asarray(record["steps"], np.int64), "step_s": np.asarray(record["step_s"], np.float64)}
    return BatchAccount(**counts, timeline=timelines.get(_device_key(record), np.empty((0, 2), np.int64)))


def _stored_timelines(path: Path) -> dict[tuple[str, ...], Array]:
    """Return the changes of batches by workload, network, policy and device."""
    import pandas as pd

    try:
        table = pd.read_parquet(path)
        return {
            tuple(map(str, labels)): changes[["step", "active"]].to_numpy(np.int64)
            for labels, changes in table.groupby([*_DEVICE_KEYS], observed=True, sort=False)
        }
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> RunDirectoryError:
    return RunDirectoryError(f"cannot be read: {_describe_damage(error)}", path=path, remedy=REMEDY)


def _describe_damage(error: Exception) -> str:
    """Describe what is wrong with a file of a run for which a library raised this error."""
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON at line {error.lineno}, column {error.colno}"
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "its content is not what a run writes"
