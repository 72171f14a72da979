"""Which shards deserve their bits: what raising each one from 2 to 32 bits brings on a task (STI-09)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from simnmt.costs.sti_block import StiImportance
from simnmt.elastic.errors import ElasticError
from simnmt.elastic.evaluation import Evaluator
from simnmt.files import MOST_TEXT_BYTES, check_regular, lock_journal

LOW, HIGH = 2, 32
"""Bits of all shards, and of the one that is raised; between them is nothing measured (STI-28)."""
Told = tuple[float, float]
"""Accuracy and mean log-likelihood."""
BASE = (-1, -1)
"""Names the evaluation with all shards at `LOW`."""


def measure_importance(
    evaluator: Evaluator,
    *,
    task: str,
    task_sha256: str,
    fingerprint: str,
    journal: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> StiImportance:
    """The base and one evaluation for each shard; `progress(done, total)` counts them.

    `journal` keeps each as soon as it is made, and one that is there already is gone on with, if it is of this store, task and
    set of examples. Raises `ElasticError` for another's journal, or one that is in use or cannot be written.
    """
    layers, slices = evaluator.geometry.layers, evaluator.geometry.heads
    # The top layer first: all below it are the base's, and are not computed again.
    wanted = [BASE, *((layer, slice_) for layer in reversed(range(layers)) for slice_ in range(slices))]
    header = {
        "importance": 1,
        "fingerprint": fingerprint,
        "task_sha256": task_sha256,
        "examples": len(evaluator),
        "layers": layers,
        "slices": slices,
    }
    base = {(layer, slice_): LOW for layer in range(layers) for slice_ in range(slices)}
    found: dict[tuple[int, int], Told] = {}
    with _journal(journal, header, found) as keep:
        for done, shard in enumerate(wanted):
            if progress is not None:
                progress(done, len(wanted))
            if shard not in found:
                result = evaluator.evaluate(base if shard == BASE else base | {shard: HIGH})
                found[shard] = (result.accuracy, result.mean_log_likelihood)
                keep(shard, found[shard])
        if progress is not None:
            progress(len(wanted), len(wanted))
    accuracy, likelihood = (
        tuple(tuple(found[layer, slice_][part] for slice_ in range(slices)) for layer in range(layers)) for part in (0, 1)
    )
    return StiImportance(
        task=task,
        task_sha256=task_sha256,
        examples=len(evaluator),
        base_accuracy=found[BASE][0],
        base_log_likelihood=found[BASE][1],
        accuracy=accuracy,
        log_likelihood=likelihood,
    )


Keep = Callable[[tuple[int, int], Told], None]


@contextmanager
def _journal(
    path: str | os.PathLike[str] | None, header: Mapping[str, Any], found: dict[tuple[int, int], Told]
) -> Iterator[Keep]:
    """Fills `found` with what an interrupted sitting left, and gives what appends to it; closed and kept in the end."""
    if path is None:
        yield lambda shard, told: None
        return
    try:
        if Path(path).exists():
            check_regular(path, MOST_TEXT_BYTES)
        file = open(path, "r+b" if Path(path).exists() else "w+b", buffering=0)  # noqa: SIM115, PTH123
    except OSError as error:
        raise ElasticError(f"cannot be written: {error.strerror}", path=path, remedy="choose another --out") from None
    with file:
        lock_journal(file.fileno(), path, ElasticError, "measurement")
        end = _read(file, path, header, found)
        file.seek(end)
        file.truncate()
        if not end:
            _append(file, path, header)
        yield lambda shard, told: _append(file, path, {"shard": shard, "told": told})


def _append(file: FileIO, path: str | os.PathLike[str], line: Mapping[str, Any]) -> None:
    rest = memoryview(json.dumps(line).encode() + b"\n")
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        remedy = "make room and give the same command again"
        raise ElasticError(f"cannot be written: {error.strerror}", path=path, remedy=remedy) from None


def _read(file: FileIO, path: str | os.PathLike[str], header: Mapping[str, Any], found: dict[tuple[int, int], Told]) -> int:
    """Bytes of whole lines; a last one that an interruption cut short is dropped."""
    end = 0
    for number, line in enumerate(file.read().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break
        try:
            said = json.loads(line)
            if number == 1:
                _compare(said, header, path)
            else:
                (layer, slice_), (accuracy, likelihood) = said["shard"], said["told"]
                found[int(layer), int(slice_)] = (float(accuracy), float(likelihood))
        except (ValueError, KeyError, TypeError, AttributeError):
            remedy = "remove it, or choose another --out"
            raise ElasticError("not a journal of importance", path=path, line=number, remedy=remedy) from None
        end += len(line)
    return end


def _compare(theirs: Mapping[str, Any], ours: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    for key in dict.fromkeys([*ours, *theirs]):
        if theirs.get(key) != ours.get(key):
            raise ElasticError(
                f"the journal has {key} {theirs.get(key)}, this measurement {ours.get(key)}",
                path=path,
                remedy="give what it was begun with, choose another --out, or remove the journal",
            )
