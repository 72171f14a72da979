"""The table of a sweep: a row for each point, cell and policy, in one Parquet file with its own description."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simnmt.base import VERSION
from simnmt.base.errors import InputError
from simnmt.base.files import written_whole
from simnmt.results.metrics import Metric
from simnmt.results.summary import Row

if TYPE_CHECKING:
    import pandas as pd

HEADER, TABLE, PAGE = "sweep.json", "sweep.parquet", "sweep.html"
"""Files of a sweep's folder: what is swept, the table once it has ended, and its page."""
POINT = "point"
TEXTS = frozenset({"site", "workload", "class", "network", "policy", "unstable", "unstable_device", "standing"})
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
    import pandas as pd

    frame = pd.DataFrame(table.rows)
    for name in frame.columns:
        if name not in TEXTS and frame[name].isna().all():
            frame[name] = frame[name].astype(float)  # not a column without a type
        elif frame[name].dtype == object:
            frame[name] = [value if isinstance(value, str | None) else json.dumps(value) for value in frame[name]]
    frame.attrs = {name: value for name, value in asdict(table).items() if name not in ("rows", "metrics")}
    frame.attrs["metrics"] = [known.name for known in table.metrics]
    try:
        with written_whole(path) as partial:
            frame.to_parquet(partial, compression="zstd", index=False)
    except OSError as error:
        raise SweepTableError(f"cannot be written: {error.strerror}", path=path, remedy="free some space") from None


def read_frame(directory: Path) -> pd.DataFrame:
    """Return the table of a finished sweep, with the swept keys in `attrs["keys"]`. Raises `SweepTableError`."""
    import pandas as pd

    path = directory / TABLE
    if os.path.isfile(directory / HEADER) and not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises for some names
        raise SweepTableError("the sweep has not ended", path=directory, remedy=f"go on with it: simnmt sweep {directory}")
    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError):
        frame = pd.DataFrame()
    if "keys" not in frame.attrs:
        raise SweepTableError("no table of a sweep", path=path, remedy="name a folder that simnmt sweep wrote")
    return frame
