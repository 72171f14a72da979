"""Comparison of finished runs: what differs in their scenarios, and how their latencies differ, paired where that is valid."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import count
from math import exp, inf, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import InputError
from simnmt.base.extension import OBJECT, is_code
from simnmt.base.suggestions import format_list
from simnmt.results.number_text import percent
from simnmt.results.run import Run
from simnmt.results.run_directory import RESOLVED, SUMMARY, check_unchanged
from simnmt.results.statistics import Estimate, change_columns, change_percent, student_quantile
from simnmt.results.summary import Place, Row, judge_change

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Comparison:
    """Runs beside the first of them."""

    names: list[str]
    """Of the runs; of runs with the same name, those of their directories."""
    changes: list[Row]
    """One per workload, network, policy and run after the first: change of the mean latency in percent, with its interval;
    whether it is `paired`, and `unpaired_because`; `unstable_in`: the runs in which the policy overloads a device."""
    scenario_differences: list[Row]
    """Keys of the scenarios with different values: `key`, and the value in each run, None where the key is missing."""
    runs: list[Row]
    """One per run: `run`, `directory`, `seed`, `replications`, `requests` and `live`."""
    best: list[Row]
    """One per workload, network and run: the recommended `policy`, its `objective` and `objective_value` with the interval."""
    not_in_all: list[Row]
    """Workloads, networks and policies that some runs lack: `part`, `name`, `runs` with it and `missing_in`."""
    notes: list[str]
    """Sentences on what the changes rest on, and on what is not compared."""

    @property
    def rows(self) -> pd.DataFrame:
        """The changes as a table: one row per workload, network, policy and run after the first."""
        import pandas as pd

        return pd.DataFrame(self.changes)

    @property
    def title(self) -> str:
        """The names of the runs in a heading."""
        return f"{format_list(self.names[1:])} against {self.names[0]}"

    @property
    def best_by_place(self) -> dict[tuple[str, str], dict[str, Row]]:
        """The recommendations by workload and network, then by run."""
        by_place: dict[tuple[str, str], dict[str, Row]] = {}
        for row in self.best:
            by_place.setdefault((row["workload"], row["network"]), {})[row["run"]] = row
        return by_place

    def document(self) -> Row:
        """Return the comparison as plain data."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        """Return the differences as text."""
        lines = [f"comparison of {', '.join(self.names)}"]
        lines += [
            f"{row['key']}: {' | '.join(json.dumps(row[name], ensure_ascii=False) for name in self.names)}"
            for row in self.scenario_differences
        ]
        table = self.rows.drop(columns=["unpaired_because", "unstable_in"]).to_string(index=False) if self.changes else NOTHING
        return "\n".join([*lines, table, *self.notes])

    def _repr_html_(self) -> str:
        """Return both tables as HTML for a notebook."""
        import pandas as pd

        differing = pd.DataFrame(self.scenario_differences).to_html(index=False) if self.scenario_differences else ""
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return differing + self.rows.to_html(index=False, float_format="{:.4g}".format) + notes


NOTHING = "no workload, network and policy in common"


def describe_value(value: Any) -> str:
    """Return the value of a key of a scenario as text: a dash for one that is missing or null, a mapping's kind first.

    >>> describe_value(None), describe_value("@cp1"), describe_value({"len_slope": None, "kind": "cnmt"})
    ('-', '@cp1', '{"kind": "cnmt"}')
    """
    if value is None:
        return "-"
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key != "kind")
        value = {key: value[key] for key in keys if value[key] is not None}
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def compare_runs(first: Run, *others: Run) -> Comparison:
    """Compare runs with the first one, policy by policy, where a workload and a network have the same names.

    Differences are paired by replication if both runs issue the same requests: same seed, replications, requests, share of the
    pairs to fit on, workload, and texts that were sent live. Otherwise their intervals hold the noise of both. Raises
    `InputError` for fewer than two runs, for a run that is given twice, without the totals of its replications, or with files
    that have changed.
    """
    if not others:
        raise InputError("one run has nothing to be compared with", remedy="give two or more")
    runs = [first, *others]
    _check_distinct(runs)
    manifests = [_checked_manifest(run) for run in runs]
    names = _labels(runs)
    rows = [
        row
        for name, run, manifest in zip(names[1:], others, manifests[1:], strict=True)
        for row in _rows((names[0], first, manifests[0]), (name, run, manifest))
    ]
    differing = [
        {"key": key, **dict(zip(names, values, strict=True))} for key, values in differences([run.scenario for run in runs])
    ]
    by_name = dict(zip(names, runs, strict=True))
    not_in_all = list(_not_in_all(by_name))
    notes = [*_pairing_notes(rows), *_missing_notes(not_in_all), *_origin_notes(by_name, manifests)]
    facts = [
        {
            "run": name,
            "directory": None if run.directory is None else str(run.directory),
            **{key: run.scenario.get(key) for key in ("seed", "replications", "requests")},
            "live": run.live is not None,
        }
        for name, run in by_name.items()
    ]
    return Comparison(names, rows, differing, facts, list(_best(by_name)), not_in_all, notes)


def _check_distinct(runs: Sequence[Run]) -> None:
    """Raise `InputError` if a run is given twice: as itself, or by a directory that still holds it."""
    for at, run in enumerate(runs):
        if any(run is other or (run.directory is not None and _same_directory(run, other)) for other in runs[:at]):
            raise InputError("the same run is given twice", path=run.directory, remedy="give two different ones")


def _same_directory(run: Run, other: Run) -> bool:
    if other.directory is None or os.path.realpath(run.directory or "") != os.path.realpath(other.directory):
        return False
    return run.replicated == other.replicated


def _checked_manifest(run: Run) -> Row:
    """Return the manifest of a run, or its input digests if it has none. Raises `InputError` if it cannot be compared."""
    manifest: Row = {"inputs": run.input_digests}
    if run.manifest and run.directory is not None:
        manifest = run.manifest
        digests = {name: manifest["outputs"].get(name, "") for name in (SUMMARY, RESOLVED)}
        check_unchanged(digests, "a file", run.directory.joinpath, f"run {run.directory / RESOLVED} anew")
    replications = {_place(row): row["replications"] for row in run.summary_rows}
    values = [(totals_s, run.replicated[place].get("mean_latency_s")) for place, totals_s in run.totals_s.items()]
    counts = [replications.get(place) for place in run.totals_s]
    if not values or not all(_are_latencies(of, count) for both, count in zip(values, counts, strict=True) for of in both):
        remedy = "replay it anew" if run.live is not None else "simulate it anew"
        raise InputError(f"run {run.name} has no latencies of its replications", path=run.directory, remedy=remedy)
    return manifest


def _are_latencies(values: object, count: int | None) -> bool:
    """Return whether what a manifest holds are so many positive seconds."""
    if not isinstance(values, list) or len(values) != count:
        return False
    return all(isinstance(value, float) and 0.0 < value < inf for value in cast(list[object], values))


def _rows(baseline: tuple[str, Run, Row], compared: tuple[str, Run, Row]) -> Iterator[Row]:
    """Yield a row per place of both runs; each is given by its name, itself and its manifest."""
    (first_name, first, first_manifest), (name, run, manifest) = baseline, compared
    of_run, of_first = ({_place(row): row for row in one.summary_rows} for one in (run, first))
    texts = [*_texts_reasons(first, run)]
    reasons = {
        workload: [*unpaired_reasons(first.scenario, run.scenario, changed_inputs(first_manifest, manifest), workload), *texts]
        for workload in {place[0] for place in first.totals_s}
    }
    for place, theirs in first.totals_s.items():
        ours = run.totals_s.get(place)
        if ours is None:
            continue
        paired = not reasons[place[0]]
        # Means count the answered requests after the warm-up, of which two runs may have different numbers.
        means_s = [np.asarray(one.replicated[place]["mean_latency_s"], np.float64) for one in (run, first)]
        change = change_percent(*map(np.ndarray.tolist, means_s)) if paired else _unpaired_percent(*means_s)
        yield {
            **dict(zip(("workload", "network", "policy"), place, strict=True)),
            "run": name,
            "baseline": first_name,
            "mean_latency_s": of_run[place]["mean_latency_s"],
            "baseline_latency_s": of_first[place]["mean_latency_s"],
            **change_columns(change),
            "paired": paired,
            "unpaired_because": reasons[place[0]],
            "unstable_in": [label for label, rows in ((first_name, of_first), (name, of_run)) if rows[place].get("unstable")],
            "verdict": judge_change(change, bool(paired and ours == theirs)),
        }


def _texts_reasons(first: Run, run: Run) -> Iterator[str]:
    """Yield why two runs that sent texts of users do not issue the same requests; nothing if they do."""
    before, after = (None if one.live is None else one.live.texts_digest for one in (first, run))
    if before != after:
        yield (
            "another text that was sent live"
            if before and after
            else "one of them sent a text in place of the workload's lengths, so that their sentences differ"
        )


def _unpaired_percent(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> Estimate:
    """Return by how many percent the mean of ours differs from that of theirs, drawn independently, with its interval.

    The interval is formed on the logarithmic scale; its degrees of freedom are those of Welch and Satterthwaite, fewer where
    the replications spread (`student_quantile`). Counted on 4,000 draws each: 94.6 to 97.8 of 100 intervals cover the change,
    also with 5 replications against 20; 92 in the worst tested world with queues.
    """
    ratio = float(ours.mean() / theirs.mean())
    if min(len(ours), len(theirs)) < 2:
        return Estimate(100.0 * (ratio - 1.0), None, None)
    spreads = [float(values.std(ddof=1) / values.mean()) for values in (ours, theirs)]
    counts = [len(ours), len(theirs)]
    variances = [spread**2 / count for spread, count in zip(spreads, counts, strict=True)]
    weights = sum(variance**2 / (count - 1) for variance, count in zip(variances, counts, strict=True))
    freedom = sum(variances) ** 2 / weights if weights > 0.0 else min(counts) - 1
    reach = float(student_quantile(1.0 + freedom, max(spreads))) * sqrt(sum(variances))
    return Estimate(*(100.0 * (ratio * factor - 1.0) for factor in (1.0, exp(-reach), exp(reach))))


def _best(runs: Mapping[str, Run]) -> Iterator[Row]:
    columns = ("policy", "objective", "objective_value", "objective_value_low", "objective_value_high", "unstable")
    for name, run in runs.items():
        for record in run.recommendations:
            place = {"workload": record["workload"], "network": record["network"], "run": name}
            yield place | {column: record[column] for column in columns}


def _not_in_all(runs: Mapping[str, Run]) -> Iterator[Row]:
    for at, part in enumerate(("workload", "network", "policy")):
        holders: dict[str, list[str]] = {}
        for name, run in runs.items():
            for value in dict.fromkeys(place[at] for place in run.totals_s):
                holders.setdefault(value, []).append(name)
        for value, present in holders.items():
            if missing := [name for name in runs if name not in present]:
                yield {"part": part, "name": value, "runs": present, "missing_in": missing}


def _missing_notes(not_in_all: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence for all parts of one kind that the same runs lack."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for record in not_in_all:
        place = (record["part"], format_list(record["runs"]), format_list(record["missing_in"]))
        names.setdefault(place, []).append(record["name"])
    for (part, runs, missing_in), of_part in names.items():
        yield f"{part} {', '.join(of_part)}: in {runs}, not in {missing_in}, and not compared there."


def _pairing_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how each run is compared: a sentence for the workloads for which the reasons are the same."""
    workloads: dict[tuple[str, str, tuple[str, ...]], dict[str, None]] = {}
    for row in rows:
        workloads.setdefault((row["run"], row["baseline"], tuple(row["unpaired_because"])), {})[row["workload"]] = None
    for (run, baseline, because), of_reason in workloads.items():
        how = f"unpaired ({'; '.join(because)})" if because else "paired by replication"
        differ = sum(key[:2] == (run, baseline) for key in workloads) > 1
        where = f", workload {', '.join(of_reason)}" if differ else ""
        yield f"{run} against {baseline}{where}: {how}."


def _origin_notes(runs: Mapping[str, Run], manifests: Sequence[Row]) -> Iterator[str]:
    """Yield sentences on objects, changed files, versions of simnmt, live runs and lost requests."""
    first, baseline = next(iter(runs)), manifests[0]
    for (name, run), manifest in zip(runs.items(), manifests, strict=True):
        for place in objects_in(run.scenario):
            yield f"{place} is an object of Python in {name}: its class is recorded, its content may differ unseen."
        for file in changed_inputs(baseline, manifest):
            yield f"{file} has another content in {name} than in {first}."
        if (ours := manifest.get("simnmt")) and (theirs := baseline.get("simnmt")) and ours != theirs:
            yield f"{name} is of simnmt {ours}, {first} of {theirs}."
        if run.live is not None:
            yield f"{name} is measured live; its latencies are of the answered requests."
            if run.live.late_ms is not None:
                late = f"the load generator of {name} was {run.live.late_ms:.1f} ms late at p99"
                yield f"{late}, which is part of its latencies: measure it again on a quiet machine before you judge a change."
        elif lost := max((row.get("lost_share") or 0.0 for row in run.summary_rows), default=0.0):
            yield f"{name} loses up to {percent(lost)} of its requests under a policy; its latencies are of the answered ones."


def _place(row: Row) -> Place:
    return row["workload"], row["network"], row["policy"]


def _labels(runs: Sequence[Run]) -> list[str]:
    """Return names that differ: that of the scenario, of the directory where several have that one, else with a number."""
    names = [run.name for run in runs]
    labels = [
        name if names.count(name) == 1 or run.directory is None else run.directory.resolve().name
        for name, run in zip(names, runs, strict=True)
    ]
    # "key" is a column of the differences.
    repeated = {label for label in labels if labels.count(label) > 1} | {"key"}
    taken = {"key", *labels}
    for at, label in enumerate(labels):
        if label in repeated:
            labels[at] = next(name for number in count(at + 1) if (name := f"{label} ({number})") not in taken)
            taken.add(labels[at])
    return labels


def unpaired_reasons(first: Row, second: Row, changed: Sequence[str], workload: str) -> Iterator[str]:
    """Yield why two runs do not issue the same requests of a workload; nothing if they do.

    Args:
        first, second: the resolved scenarios.
        changed: files that both read by the same name, with another content.
        workload: its name.
    """
    if second["seed"] != first["seed"]:
        yield f"seed {second['seed']} instead of {first['seed']}"
    for key in ("replications", "requests"):
        ours, theirs = second[key], first[key]
        if ours != theirs:
            yield f"{ours:,} instead of {theirs:,} {key}"
    if second.get("fit", {}).get("share") != first.get("fit", {}).get("share"):
        yield "another fit.share"
    drawn = [scenario.get("workloads", {}).get(workload) for scenario in (first, second)]
    place = f"workloads.{workload}"
    yield from (f"another {key}" for key, _ in differences(drawn, place))
    yield from (f"{key} is an object of Python" for key in objects_in(drawn[1], place) if key in objects_in(drawn[0], place))
    others = {key: part for key, part in second.items() if key != "workloads"}
    elsewhere = [others, {name: part for name, part in second["workloads"].items() if name != workload}]
    for file in changed:
        if _mentions(drawn[1], file) or not any(_mentions(part, file) for part in elsewhere):
            yield f"another content of {file}"


def _mentions(content: Any, file: str) -> bool:
    """Return whether a part of a scenario names a file, code in it, or a folder that holds it."""
    if isinstance(content, dict):
        return any(_mentions(part, file) for part in content.values())
    if isinstance(content, list):
        return any(_mentions(part, file) for part in content)
    if not isinstance(content, str) or not content:
        return False
    # Code may import any module beside it.
    folder = Path(content.rpartition(":")[0]).parent if is_code(content) else content
    return content == file or file.startswith(f"{folder}/")


def changed_inputs(first: Row, second: Row) -> list[str]:
    """Return the files that two runs read by the same name and with another content; the runs by their manifests."""
    before = first.get("inputs", {})
    return [name for name, digest in second.get("inputs", {}).items() if before.get(name, digest) != digest]


def objects_in(content: Any, key: str = "") -> list[str]:
    """Return the places of a scenario that objects of Python had, of which a run records the class alone."""
    if not isinstance(content, dict):
        return []
    if content.keys() == {OBJECT}:
        return [key]
    return [place for name, part in content.items() for place in objects_in(part, f"{key}.{name}" if key else str(name))]


def differences(contents: Sequence[Any], key: str = "") -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield each key below which contents differ, joined by dots, with its values; None where it is missing."""
    if all(isinstance(content, dict) for content in contents):
        for name in dict.fromkeys(name for content in contents for name in content):
            yield from differences([content.get(name) for content in contents], f"{key}.{name}" if key else str(name))
    elif len({json.dumps(content, sort_keys=True) for content in contents}) > 1:
        yield key, contents
