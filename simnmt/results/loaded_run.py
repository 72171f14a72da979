"""A finished run as its directory holds it: rows, requests, and the columns and batches that figures draw."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simnmt.base.files import MOST_DOCUMENT_BYTES, read_bounded
from simnmt.results.columns import Array
from simnmt.results.device_accounts import BatchAccount
from simnmt.results.request_log import Log, RequestLog, drawn_logs
from simnmt.results.result import MOST_DRAWN, FinishedRun, LiveMeasurement, RecordedCell
from simnmt.results.run_directory import DEVICES, REPLICATIONS, REQUESTS, SUMMARY, RunDirectoryError, read_manifest
from simnmt.results.summary import Device, Place, Row, by_cell

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
        """The cells for figures: with the requests alone that every policy answered, and of many an even sample."""
        logs, cells = stored_logs(self.directory / REQUESTS), list[RecordedCell]()
        try:
            accounts = {_device_key(record): _account(record) for record in self.batches}
            for place, rows in by_cell(self.summary_rows).items():
                devices = tuple(Device(**device) for device in self.manifest[DEVICES][place[0]])
                of_cell = {row["policy"]: logs[(*place, row["policy"])] for row in rows}
                batches = {name: tuple(accounts.get((*place, name, device.name)) for device in devices) for name in of_cell}
                batched = {name: of_policy for name, of_policy in batches.items() if any(of_policy)}
                cells.append(RecordedCell(*place, devices, drawn_logs(of_cell, MOST_DRAWN), batches=batched))
        except (KeyError, TypeError, ValueError) as error:
            what = f"no devices, batches or requests of a run: {_describe_damage(error)}"
            raise RunDirectoryError(what, path=self.directory, remedy=REMEDY) from None
        return cells

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


class StoredColumns(Log):
    """The columns of one policy's requests in a run directory, each read on access."""

    def __init__(self, path: Path, file: Any, groups: Sequence[int]) -> None:
        """`file`: the opened requests.parquet; `groups`: its row groups of the policy."""
        self._path, self._file, self._groups = path, file, groups

    def __getitem__(self, name: str) -> Array:
        if name not in self._file.schema_arrow.names:
            raise KeyError(name)
        try:
            values: Array = self._file.read_row_groups(self._groups, columns=[name])[name].to_numpy()
        except (OSError, ValueError) as error:
            raise _unreadable(self._path, error) from None
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.schema_arrow.names)

    def __len__(self) -> int:
        return len(self._file.schema_arrow.names)


def stored_logs(path: Path) -> dict[Place, RequestLog]:
    """Return the requests of a run directory by workload, network and policy. Raises `RunDirectoryError`.

    Every row group of the file is of one of them.
    """
    import pyarrow.parquet as pq

    groups: dict[Place, list[int]] = {}
    try:
        file = pq.ParquetFile(path)
        for number in range(file.num_row_groups):
            (labels,) = file.read_row_group(number, columns=["workload", "network", "policy"]).slice(0, 1).to_pylist()
            groups.setdefault((labels["workload"], labels["network"], labels["policy"]), []).append(number)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return {place: RequestLog(StoredColumns(path, file, numbers)) for place, numbers in groups.items()}


_DEVICE_KEYS = ("workload", "network", "policy", "device")


def _device_key(record: Row) -> tuple[str, ...]:
    return tuple(str(record[key]) for key in _DEVICE_KEYS)


def _account(record: Row) -> BatchAccount:
    """Return the batches of one device."""
    counts = {key: value for key, value in record.items() if key not in (*_DEVICE_KEYS, "tokens", "busy_s")}
    counts |= {"steps": np.asarray(record["steps"], np.int64), "step_s": np.asarray(record["step_s"], np.float64)}
    return BatchAccount(**counts)


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
