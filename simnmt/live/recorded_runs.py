"""The live runs of a validation as compressed columns: small enough to commit, and exact to a microsecond."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import InputError
from simnmt.live.cell_comparison import Cell
from simnmt.live.cell_run import LiveRun, References
from simnmt.live.deployment import ReplayedRequests
from simnmt.service.load import LoadLog

RUNS = "runs.npz"
Column = NDArray[np.float64]
_TIMES = ("queue_s", "execution_s", "latency_s")
UNKNOWN = -1
"""Microseconds of a time that is not known."""


def save_runs(
    path: Path,
    cells: Sequence[Cell],
    requests: Mapping[Cell, ReplayedRequests],
    runs: Mapping[Cell, Sequence[LiveRun]],
) -> None:
    """Write the runs of all cells, repeat after repeat of each cell, as one compressed file.

    The cells of a group have the same requests, which are written once.
    """
    groups = list(dict.fromkeys(cell.group for cell in cells))
    of_group = {cell.group: requests[cell] for cell in cells}
    every = [(number, run) for number, cell in enumerate(cells) for run in runs[cell]]
    columns: dict[str, NDArray[np.generic]] = {
        "group": np.array([groups.index(cell.group) for cell in cells], np.int32),
        "requests": np.array([len(of_group[group].src_len) for group in groups], np.int32),
        "src_len": np.concatenate([of_group[group].src_len for group in groups]).astype(np.int32),
        "tgt_len": np.concatenate([of_group[group].tgt_len for group in groups]).astype(np.int32),
        "offset_us": _microseconds(np.concatenate([_offsets_s(of_group[group]) for group in groups])),
        "cell": np.array([number for number, _ in every], np.int32),
        "link_begin_s": np.array([run.link_begin_s for _, run in every]),
        "begun_s": np.array([run.begun_s for _, run in every]) - every[0][1].begun_s,
        "handover_s": np.array([run.handover_s for _, run in every]),
        "turnaround_s": np.array([run.turnaround_s for _, run in every]),
        "others_cpus": np.array([np.nan if run.others_cpus is None else run.others_cpus for _, run in every]),
        "decisions_identical": np.array([run.decisions_identical for _, run in every]),
        "valid": np.concatenate([run.valid for _, run in every]),
        "target": np.concatenate([run.log.target for _, run in every]).astype(np.int8),
        "transfer_us": _microseconds(np.concatenate([run.transfer_s for _, run in every])),
        "link_us": _microseconds(np.concatenate([run.link_s for _, run in every])),
    }
    for name in _TIMES:
        column = np.concatenate([getattr(run.log, name) for _, run in every])
        columns[name.replace("_s", "_us")] = _microseconds(column)
    for device in every[0][1].references:
        referred = [run.references[device] for _, run in every]
        columns[f"references {device}"] = np.array([of_run.begin_s.size for of_run in referred], np.int32)
        columns[f"reference begin_s {device}"] = np.concatenate([of_run.begin_s for of_run in referred]).round(6)
        for name in ("busy", "execution"):
            column = np.concatenate([getattr(of_run, f"{name}_s") for of_run in referred])
            columns[f"reference {name}_us {device}"] = _microseconds(column)
    with path.open("wb") as file:
        np.savez_compressed(file, **columns)  # type: ignore[arg-type]


def load_runs(path: Path, cells: Sequence[Cell]) -> tuple[dict[Cell, ReplayedRequests], dict[Cell, list[LiveRun]]]:
    """Read the requests and the runs of the cells of a validation; texts are empty. Raises `InputError` for another file."""
    try:
        with np.load(path) as stored:
            columns = {name: stored[name] for name in stored.files}
        return _requests(columns, cells), _runs(columns, cells)
    except (OSError, EOFError, BadZipFile, ValueError, KeyError, IndexError) as error:
        remedy = "restore it, or record the validation anew"
        raise InputError(f"not the runs of a validation ({error})", path=path, remedy=remedy) from None


def _requests(columns: Mapping[str, NDArray[np.generic]], cells: Sequence[Cell]) -> dict[Cell, ReplayedRequests]:
    ends = np.cumsum(columns["requests"])[:-1]
    parts = zip(
        np.split(_seconds(columns["offset_us"]), ends),
        np.split(columns["src_len"].astype(np.int64), ends),
        np.split(columns["tgt_len"].astype(np.int64), ends),
        strict=True,
    )
    by_group = [
        ReplayedRequests(offsets_s, src_len, tgt_len, [""] * len(src_len), np.zeros(len(src_len), np.int32), None)
        for offsets_s, src_len, tgt_len in parts
    ]
    return {cell: by_group[group] for cell, group in zip(cells, columns["group"].tolist(), strict=True)}


def _runs(columns: Mapping[str, NDArray[np.generic]], cells: Sequence[Cell]) -> dict[Cell, list[LiveRun]]:
    requests = _requests(columns, cells)
    of_run = [cells[number] for number in columns["cell"].tolist()]
    ends = np.cumsum([len(requests[cell].src_len) for cell in of_run])[:-1]
    split = {
        name: np.split(columns[name], ends)
        for name in ("valid", "target", "transfer_us", "link_us", "queue_us", "execution_us", "latency_us")
    }
    devices = [name.removeprefix("references ") for name in columns if name.startswith("references ")]
    referred = {device: list(_references(columns, device)) for device in devices}
    runs: dict[Cell, list[LiveRun]] = {cell: [] for cell in cells}
    for number, cell in enumerate(of_run):
        offsets_s = requests[cell].offsets_s
        assert offsets_s is not None
        others_cpus = float(columns["others_cpus"][number])
        run = LiveRun(
            log=_log(offsets_s, {name: of_runs[number] for name, of_runs in split.items()}, requests[cell]),
            transfer_s=_seconds(split["transfer_us"][number]),
            link_s=_seconds(split["link_us"][number]),
            link_begin_s=float(columns["link_begin_s"][number]),
            begun_s=float(columns["begun_s"][number]),
            references={device: referred[device][number] for device in devices},
            handover_s=_pair(columns["handover_s"][number]),
            turnaround_s=_pair(columns["turnaround_s"][number]),
            decisions_identical=bool(columns["decisions_identical"][number]),
            others_cpus=None if np.isnan(others_cpus) else others_cpus,
        )
        runs[cell].append(run)
    return runs


def _references(columns: Mapping[str, NDArray[np.generic]], device: str) -> Iterator[References]:
    ends = np.cumsum(columns[f"references {device}"].astype(np.int64))[:-1]
    begin_s = columns[f"reference begin_s {device}"].astype(np.float64)
    busy_s, execution_s = (_seconds(columns[f"reference {name}_us {device}"]) for name in ("busy", "execution"))
    parts = zip(*(np.split(column, ends) for column in (begin_s, busy_s, execution_s)), strict=True)
    return (References(*part) for part in parts)


def _log(offsets_s: Column, columns: Mapping[str, NDArray[np.generic]], requests: ReplayedRequests) -> LoadLog:
    """Return the log of a run whose valid requests were answered; the others count as refused."""
    unknown = np.full(len(offsets_s), np.nan)
    latency_s = _seconds(columns["latency_us"])
    return LoadLog(
        begin_s=0.0,
        due_s=offsets_s,
        sent_s=offsets_s,
        received_s=offsets_s + latency_s,
        status=np.where(columns["valid"], 200, 502),
        client=np.zeros(len(offsets_s), np.int64),
        target=columns["target"].astype(np.int64),
        queue_s=_seconds(columns["queue_us"]),
        execution_s=_seconds(columns["execution_us"]),
        total_s=latency_s,
        src_len=requests.src_len,
        tgt_len=requests.tgt_len,
        batch=np.ones(len(offsets_s), np.int64),
        estimate_s=unknown,
        age_s=unknown,
        tgt_len_predicted=unknown,
        fell_back=np.zeros(len(offsets_s), np.bool_),
    )


def _pair(values: NDArray[np.generic]) -> tuple[float, float]:
    one, other = values.astype(np.float64).tolist()
    return one, other


def _offsets_s(requests: ReplayedRequests) -> Column:
    assert requests.offsets_s is not None
    return requests.offsets_s


def _microseconds(seconds: Column) -> NDArray[np.int32]:
    rounded = np.where(np.isnan(seconds), UNKNOWN, np.round(1e6 * np.nan_to_num(seconds)))
    # A time that is negative by a rounding of the clock is 0; only an unknown one is negative.
    whole: NDArray[np.int32] = np.where(np.isnan(seconds), UNKNOWN, np.maximum(rounded, 0)).astype(np.int32)
    return whole


def _seconds(microseconds: NDArray[np.generic]) -> Column:
    whole = microseconds.astype(np.float64)
    return np.where(whole == UNKNOWN, np.nan, whole / 1e6)
