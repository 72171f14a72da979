"""Comparison of finished runs: what differs in their scenarios, and how their latencies differ, paired where that is valid."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from simnmt.base.errors import InputError
from simnmt.base.extension import OBJECT, is_code
from simnmt.base.files import MOST_DOCUMENT_BYTES, read_bounded
from simnmt.results.recommendation import best_row
from simnmt.results.run_directory import REQUESTS, SUMMARY, RunDirectoryError, read_manifest
from simnmt.results.statistics import Estimate, change_columns, change_percent, student_quantile
from simnmt.results.summary import Row

if TYPE_CHECKING:
    import pandas as pd

Place = tuple[str, str, str]
"""Workload, network and policy."""
TOTALS = "total_latency_s"
"""Key of the manifest that holds the total latency of each replication."""


class ComparableRun(Protocol):
    """What a comparison needs of a run."""

    @property
    def name(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def rows(self) -> list[Row]: ...
    @property
    def scenario(self) -> Row: ...
    @property
    def totals_s(self) -> dict[Place, list[float]]: ...
    @property
    def input_digests(self) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True, repr=False)
class LoadedRun:
    """A finished run as its directory holds it."""

    directory: Path
    name: str
    seed: int
    rows: list[Row]
    """One per workload, network and policy."""
    comparisons: list[Row]
    verdicts: list[Row]
    recommendations: list[Row]
    scenario: dict[str, Any]
    """The resolved scenario."""
    totals_s: dict[Place, list[float]]
    """Total latency of each replication."""
    manifest: dict[str, Any]

    @property
    def input_digests(self) -> dict[str, str]:
        """SHA-256 of every file that the run read."""
        digests: dict[str, str] = self.manifest["inputs"]
        return digests

    @property
    def summary(self) -> pd.DataFrame:
        """The rows as a table; seconds."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    @property
    def differences(self) -> pd.DataFrame:
        """The paired comparisons of its policies as a table, percent."""
        import pandas as pd

        return pd.DataFrame(self.comparisons)

    @property
    def requests(self) -> pd.DataFrame:
        """Every request of replication 0, with its workload, network and policy."""
        import pandas as pd

        return pd.read_parquet(self.directory / REQUESTS)

    def best(self, workload: str | None = None, network: str | None = None) -> Row:
        """Return the row of the recommended policy; see `best_row`."""
        return best_row(self.recommendations, self.rows, workload, network)

    def __repr__(self) -> str:
        """Return the verdicts."""
        return "\n".join([f"LoadedRun({self.name!r}, seed {self.seed})", *(verdict["sentence"] for verdict in self.verdicts)])

    def _repr_html_(self) -> str:
        """Return the verdicts over the summary as HTML for a notebook; names are escaped."""
        sentences = "".join(f"<p>{html.escape(verdict['sentence'])}</p>" for verdict in self.verdicts)
        return sentences + self.summary.to_html(index=False, float_format="{:.4g}".format)


def load_run(directory: Path, scenario: Row) -> LoadedRun:
    """Return a finished run; `scenario`: the resolved scenario of the directory. Raises `RunDirectoryError`."""
    manifest = read_manifest(directory)
    path = directory / SUMMARY
    try:
        summary = json.loads(read_bounded(path, MOST_DOCUMENT_BYTES))
        parts = {key: summary[key] for key in ("name", "seed", "rows", "comparisons", "verdicts", "recommendations")}
        totals_s = {(row["workload"], row["network"], row["policy"]): row["seconds"] for row in manifest.get(TOTALS, ())}
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"no summary of a run: {type(error).__name__}"
        raise RunDirectoryError(what, path=path, remedy="run the scenario anew") from None
    return LoadedRun(directory=directory, scenario=scenario, totals_s=totals_s, manifest=manifest, **parts)


def totals_document(totals_s: Mapping[Place, Sequence[float]]) -> list[Row]:
    """Return the total latency of each replication as the manifest has it."""
    return [
        {"workload": workload, "network": network, "policy": policy, "seconds": list(seconds)}
        for (workload, network, policy), seconds in totals_s.items()
    ]


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """Runs beside the first of them."""

    names: list[str]
    rows: list[Row]
    """One per workload, network, policy and run after the first: change of the total latency in percent, with its interval."""
    scenario_differences: list[Row]
    """Keys of the scenarios with different values: `key`, and the value in each run."""

    @property
    def frame(self) -> pd.DataFrame:
        """The rows as a table."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def __repr__(self) -> str:
        """Return the differences as text."""
        lines = [f"comparison of {', '.join(self.names)}"]
        lines += [
            f"{row['key']}: {' | '.join(json.dumps(row[name], ensure_ascii=False) for name in self.names)}"
            for row in self.scenario_differences
        ]
        return "\n".join(
            [*lines, self.frame.to_string(index=False) if self.rows else "no workload, network and policy in common"]
        )

    def _repr_html_(self) -> str:
        """Return both tables as HTML for a notebook."""
        import pandas as pd

        differing = pd.DataFrame(self.scenario_differences).to_html(index=False) if self.scenario_differences else ""
        return differing + self.frame.to_html(index=False, float_format="{:.4g}".format)


def compare_runs(first: ComparableRun, *others: ComparableRun) -> Comparison:
    """Compare runs with the first one, policy by policy, where a workload and a network have the same names.

    Differences are paired by replication if both runs issue the same requests: same seed, replications, requests, fit and
    workload. Otherwise their intervals hold the noise of both. Raises `InputError` for fewer than two runs, and for a run
    without the totals of its replications.
    """
    if not others:
        raise InputError("one run has nothing to be compared with", remedy="give two or more")
    runs = [first, *others]
    for run in runs:
        if not run.totals_s:
            raise InputError(f"run {run.name} has no totals of its replications", remedy="simulate it anew")
    names = _distinct([run.name for run in runs])
    documents = [dict(_flat(run.scenario)) for run in runs]
    keys = list(dict.fromkeys(key for document in documents for key in document))
    differing = [
        {"key": key} | {name: document.get(key) for name, document in zip(names, documents, strict=True)}
        for key in keys
        if len({json.dumps(document.get(key)) for document in documents}) > 1
    ]
    rows = [row for name, run in zip(names[1:], others, strict=True) for row in _rows(names[0], first, name, run)]
    return Comparison(names, rows, differing)


def _rows(first_name: str, first: ComparableRun, name: str, run: ComparableRun) -> Iterator[Row]:
    latencies_s = [{_place(row): row["mean_latency_s"] for row in one.rows} for one in (first, run)]
    for place, theirs in first.totals_s.items():
        ours = run.totals_s.get(place)
        if ours is None:
            continue
        paired = _issues_same_requests(first, run, place[0])
        per_request = [np.asarray(totals) / _requests(one) for totals, one in ((ours, run), (theirs, first))]
        change = change_percent(*map(np.ndarray.tolist, per_request)) if paired else _unpaired_percent(*per_request)
        yield {
            **dict(zip(("workload", "network", "policy"), place, strict=True)),
            "run": name,
            "baseline": first_name,
            "mean_latency_s": latencies_s[1].get(place),
            "baseline_latency_s": latencies_s[0].get(place),
            **change_columns(change),
            "paired": paired,
            "verdict": _verdict(change, bool(paired and ours == theirs)),
        }


def _verdict(change: Estimate, same: bool) -> str:
    if same:
        return "same"
    if change.low is None:
        return "one replication"
    if not change.excludes_zero:
        return "not distinguishable"
    return "faster" if change.mean < 0.0 else "slower"


def _unpaired_percent(ours: Any, theirs: Any) -> Estimate:
    """Return by how many percent the mean of ours differs from that of theirs, drawn independently, with its interval."""
    ratio = float(ours.mean() / theirs.mean())
    counts = [len(ours), len(theirs)]
    if min(counts) < 2:
        return Estimate(100.0 * (ratio - 1.0), None, None)
    spreads = [float(values.std(ddof=1) / values.mean()) for values in (ours, theirs)]
    error = sqrt(sum(spread**2 / count for spread, count in zip(spreads, counts, strict=True)))
    reach = float(student_quantile(min(counts), max(spreads))) * error
    return Estimate(*(100.0 * (ratio * factor - 1.0) for factor in (1.0, exp(-reach), exp(reach))))


def _issues_same_requests(first: ComparableRun, second: ComparableRun, workload: str) -> bool:
    """Return whether two runs issue the same requests of a workload in each replication."""

    def issued(run: ComparableRun) -> Any:
        parts = [run.scenario.get(key) for key in ("replications", "requests", "fit")]
        return [run.seed, *parts, run.scenario.get("workloads", {}).get(workload)]

    workloads = [run.scenario.get("workloads", {}).get(workload) for run in (first, second)]
    # A resolved scenario holds the class of an object alone, and the name of a file alone.
    if any(key.rpartition(".")[2] == OBJECT for content in workloads for key, _ in _flat(content)):
        return False
    texts = [value for _, value in _flat(workloads[0]) if isinstance(value, str)]
    names_code = any(key.rpartition(".")[2] == "kind" and is_code(str(value)) for key, value in _flat(workloads[0]))
    changed = [file for file, digest in first.input_digests.items() if second.input_digests.get(file, digest) != digest]
    is_read = any(
        text == file or file.startswith(f"{text}/") or (names_code and file.endswith(".py"))
        for file in changed
        for text in texts
    )
    return not is_read and json.dumps(issued(first)) == json.dumps(issued(second))


def _requests(run: ComparableRun) -> int:
    return int(run.scenario["requests"])


def _place(row: Row) -> Place:
    return row["workload"], row["network"], row["policy"]


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names that differ: a repeated one gets its number."""
    return [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, start=1)]


def _flat(content: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of nested mappings with its keys, joined by dots."""
    if isinstance(content, dict) and content:
        for name, below in content.items():
            yield from _flat(below, f"{key}.{name}" if key else str(name))
    else:
        yield key, content
