"""The table of a sweep: a row for each point, cell and policy, in one Parquet file with its own description."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simnmt.base import VERSION
from simnmt.base.errors import InputError
from simnmt.base.files import written_whole
from simnmt.results.columns import arrow_array
from simnmt.results.metrics import Metric
from simnmt.results.summary import Row

if TYPE_CHECKING:
    import pandas as pd

HEADER, TABLE, PAGE = "sweep.json", "sweep.parquet", "sweep.html"
"""Files of a sweep's folder: what is swept, the table once it has ended, and its page."""
_METADATA = b"simnmt_sweep"
POINT = "point"
WHOLE = frozenset({POINT, "replications", "requests", "unstable_replications"})
TEXTS = frozenset({"site", "workload", "network", "policy", "unstable", "unstable_device", "standing"})
BEST, EQUAL, TIED, WORSE = "best", "as good as the best", "not distinguishable from the best", "worse"
UNSTABLE, BOUND = "unstable", "bound"
"""Standings of a policy at its point, with those above: `bound` for the oracle, which knows the truth."""


class SweepTableError(InputError):
    """A table of a sweep that cannot be read or written."""


@dataclass(frozen=True, slots=True)
class SweepTable:
    """The rows of a finished sweep, and what they are of."""

    name: str
    seed: int
    objective: str
    keys: tuple[str, ...]
    metrics: tuple[Metric, ...]
    """Metrics that some row knows, each three columns."""
    rows: list[Row]
    failed: int = 0
    """Points that are missing, since they failed."""
    simnmt: str = VERSION


def write_table(path: Path, table: SweepTable) -> None:
    """Write a table, whole or not at all: same rows, same bytes. Raises `SweepTableError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for row in table.rows for name in row))
    arrays = {name: _array([row.get(name) for row in table.rows], name) for name in names}
    about = {name: value for name, value in asdict(table).items() if name != "rows"}
    about["metrics"] = [known.name for known in table.metrics]
    content = pa.table(arrays).replace_schema_metadata({_METADATA: json.dumps(about)})
    try:
        with written_whole(path) as partial:
            pq.write_table(content, partial, compression="zstd")
    except OSError as error:
        raise SweepTableError(f"cannot be written: {error.strerror}", path=path, remedy="free some space") from None


def _array(values: Sequence[Any], name: str) -> Any:
    kinds = {type(value) for value in values if value is not None}
    if name in WHOLE or kinds == {int}:
        return arrow_array(values, np.int64)
    if kinds == {bool} and None not in values:
        return arrow_array(values, np.bool_)
    if name not in TEXTS and kinds <= {int, float}:
        return arrow_array(values, np.float64)
    return arrow_array([value if isinstance(value, str | None) else json.dumps(value) for value in values], str)


def read_frame(directory: Path) -> pd.DataFrame:
    """Return the table of a finished sweep, with the swept keys in `attrs["keys"]`. Raises `SweepTableError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = directory / TABLE
    if os.path.isfile(directory / HEADER) and not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises for some names
        raise SweepTableError("the sweep has not ended", path=directory, remedy=f"go on with it: simnmt sweep {directory}")
    try:
        content = pq.read_table(path)
        about = json.loads((content.schema.metadata or {})[_METADATA])
    except (OSError, pa.ArrowException, ValueError, KeyError):
        raise SweepTableError("no table of a sweep", path=path, remedy="name a folder that simnmt sweep wrote") from None
    frame: pd.DataFrame = content.to_pandas()
    frame.attrs.update(about)
    return frame
