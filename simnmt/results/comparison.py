"""Comparison of finished runs: what differs in their scenarios, and how their latencies differ, paired where that is valid."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

from simnmt.base import VERSION
from simnmt.base.errors import InputError
from simnmt.base.extension import OBJECT
from simnmt.base.suggestions import format_list
from simnmt.results.metrics import unanswered_share
from simnmt.results.number_text import percent
from simnmt.results.places import ALL, CellName, Place
from simnmt.results.run import Run
from simnmt.results.run_directory import RESOLVED, SUMMARY, check_unchanged
from simnmt.results.statistics import change_columns, change_percent, unpaired_change_percent
from simnmt.results.summary import Row, judge_change

if TYPE_CHECKING:
    import pandas as pd

NOTHING = "no workload, network and policy in common"


@dataclass(frozen=True, repr=False)
class Comparison:
    """Runs beside the first of them.

    Example:
        >>> simnmt.compare("near", "far").rows[["policy", "change_percent", "effect"]]  # doctest: +SKIP
    """

    names: list[str]
    """Names of the runs; of runs with the same name, those of their directories."""
    changes: list[Row]
    """One per place and run after the first: change of the mean latency in percent, with its interval;
    whether it is `paired`, and `unpaired_because`; `unstable_in`: the runs in which the policy overloads a device."""
    scenario_differences: list[Row]
    """Keys of the scenarios with different values: `key`, and the value in each run, None where the key is missing."""
    runs: list[Row]
    """One per run: `run`, `directory`, `seed`, `replications`, `requests` and `live`."""
    best: list[Row]
    """One per cell and run: the recommended `policy`, its `objective` and `objective_value` with the interval."""
    notes: list[str]
    """Sentences on what the changes rest on, and on what is not compared."""

    @property
    def rows(self) -> pd.DataFrame:
        """The changes as a table: one row per cell, policy and run after the first."""
        import pandas as pd

        return pd.DataFrame(self.changes)

    @property
    def title(self) -> str:
        """The names of the runs in a heading."""
        return f"{format_list(self.names[1:])} against {self.names[0]}"

    def document(self) -> Row:
        """Return the comparison as plain data."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        """Return the changes as text."""
        table = self.rows.drop(columns=["unpaired_because", "unstable_in"]).to_string(index=False) if self.changes else NOTHING
        return "\n".join([f"comparison of {', '.join(self.names)}", table, *self.notes])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return self.rows.to_html(index=False, float_format="{:.4g}".format) + notes


def describe_value(value: Any) -> str:
    """Return the value of a key of a scenario as text: a dash for one that is missing or null, a mapping's kind first.

    >>> describe_value(None), describe_value("@cp1"), describe_value({"len_slope": None, "kind": "cnmt"})
    ('-', '@cp1', '{"kind": "cnmt"}')
    """
    if value is None:
        return "-"
    if isinstance(value, dict):
        value = {key: value[key] for key in sorted(value, key=lambda key: key != "kind") if value[key] is not None}
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def compare_runs(runs: Sequence[Run]) -> Comparison:
    """Compare runs with the first one, policy by policy, where site, workload and network have the same names.

    A change is that of the mean latency, which for a run that loses requests is that of its answered ones. It is the ratio of
    the means over the replications, paired where both runs issue the same requests (`unpaired_reasons`), which then hold their
    common noise. Raises `InputError` for one run alone, or one with files that have changed.
    """
    if len(runs) < 2:
        raise InputError("there is nothing to compare", remedy="give two runs or more")
    for run in runs:
        if run.manifest and run.directory is not None:
            digests = {name: run.manifest["outputs"].get(name, "") for name in (SUMMARY, RESOLVED)}
            check_unchanged(digests, "a file", run.directory.joinpath, f"run {run.directory / RESOLVED} anew")
    names = [run.name for run in runs]
    if len({*names}) < len(names):
        names = [run.name if run.directory is None else run.directory.resolve().name for run in runs]
    if len({*names, "key"}) <= len(names):  # "key" is a column of the differences
        names = [f"{name} ({number})" for number, name in enumerate(names, 1)]
    by_name = dict(zip(names, runs, strict=True))
    changes = [row for name in names[1:] for row in _changes((names[0], runs[0]), (name, by_name[name]))]
    best = ("policy", "objective", "objective_value", "objective_value_low", "objective_value_high", "unstable")
    return Comparison(
        names=names,
        changes=changes,
        scenario_differences=[
            {"key": key, **dict(zip(names, values, strict=True))} for key, values in differences([run.scenario for run in runs])
        ],
        runs=[
            {"run": name, "directory": None if run.directory is None else str(run.directory)}
            | {key: run.scenario.get(key) for key in ("seed", "replications", "requests")}
            | {"live": run.live is not None}
            for name, run in by_name.items()
        ],
        best=[
            {**CellName.of(record)._asdict(), "run": name} | {key: record[key] for key in best}
            for name, run in by_name.items()
            for record in run.recommendations
        ],
        notes=[*_pairing_notes(changes), *_missing_notes(by_name), *_origin_notes(by_name)],
    )


def _changes(baseline: tuple[str, Run], compared: tuple[str, Run]) -> Iterator[Row]:
    """Yield a row per place of both runs; each is given by its name and itself."""
    (first_name, first), (name, run) = baseline, compared
    of_run, of_first = ({Place.of(row): row for row in one.summary_rows} for one in (run, first))
    reasons = {place.workload: list(unpaired_reasons(first, run, place.workload)) for place in first.totals_s}
    for place in [place for place in first.totals_s if place in run.totals_s]:
        paired = not reasons[place.workload]
        # Means count the answered requests after the warm-up, of which two runs may have different numbers.
        means_s = [cast(list[float], one.replicated[place]["mean_latency_s"]) for one in (run, first)]
        change = (change_percent if paired else unpaired_change_percent)(*means_s)
        yield {
            **place._asdict(),
            "run": name,
            "baseline": first_name,
            "mean_latency_s": of_run[place]["mean_latency_s"],
            "baseline_latency_s": of_first[place]["mean_latency_s"],
            **change_columns(change),
            "paired": paired,
            "unpaired_because": reasons[place.workload],
            "unstable_in": [label for label, rows in ((first_name, of_first), (name, of_run)) if rows[place].get("unstable")],
            "effect": judge_change(change, paired and run.totals_s[place] == first.totals_s[place]),
        }


def unpaired_reasons(first: Run, second: Run, workload: str) -> Iterator[str]:
    """Yield why two runs do not issue the same requests of a workload; nothing if they do."""
    names = [workload]
    if any(place.workload == ALL for run in (first, second) for place in run.totals_s):
        # They share devices: the rates of all workloads divide the requests.
        names = [*dict.fromkeys(name for run in (first, second) for name in run.scenario.get("workloads", {}))]
    before, after = (_drawn_from(run, names) for run in (first, second))
    for key, (theirs, ours) in differences([before, after]):
        are_counts = type(ours) is type(theirs) is int
        yield f"{key} {ours} instead of {theirs}" if are_counts else f"another {key}"
    others = second.scenario | {name: part for name, part in second.scenario["workloads"].items() if name not in names}
    read, read_by_others = (json.dumps(part, ensure_ascii=False) for part in (after["workloads"], others | {"workloads": None}))
    if f'{{"{OBJECT}": ' in read:
        yield "the workload has an object of Python, of which the class alone is recorded"
    # A file that only devices, networks or other workloads read leaves the requests as they are.
    for file in changed_inputs(first, second):
        if file in read or file not in read_by_others:
            yield f"another content of {file}"


def _drawn_from(run: Run, workloads: Sequence[str]) -> Row:
    """Return all that decides which requests of some workloads come, and from which site."""
    scenario, keys = run.scenario, ("count", "share", "end_nodes", "workloads")
    return {
        **{key: scenario[key] for key in ("seed", "replications", "requests")},
        "fit": {"share": scenario.get("fit", {}).get("share")},
        "workloads": {name: scenario.get("workloads", {}).get(name) for name in workloads},
        "share_devices": any(place.workload == ALL for place in run.totals_s),
        "sites": {name: {key: site.get(key) for key in keys} for name, site in (scenario.get("sites") or {}).items()},
        "text sent live": run.live and run.live.texts_digest,
    }


def changed_inputs(first: Run, second: Run) -> list[str]:
    """Return the files that two runs read by the same name and with another content."""
    before = first.input_digests
    return [name for name, digest in second.input_digests.items() if before.get(name, digest) != digest]


def _missing_notes(runs: Mapping[str, Run]) -> Iterator[str]:
    """Yield the sites, workloads, networks and policies that some runs lack."""
    for at, part in enumerate(Place._fields):
        names = {run: {place[at] for place in runs[run].totals_s} for run in runs}
        for value in dict.fromkeys(place[at] for run in runs.values() for place in run.totals_s):
            present = [run for run in runs if value in names[run]]
            if missing := [run for run in runs if run not in present]:
                yield f"{part} {value}: in {format_list(present)}, not in {format_list(missing)}."


def _pairing_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how each run is compared, for the workloads with the same reasons, which are named if others have other reasons."""
    workloads: dict[tuple[str, str, str], dict[str, None]] = {}
    for row in rows:
        key = row["run"], row["baseline"], "; ".join(row["unpaired_because"])
        workloads.setdefault(key, {})[row["workload"]] = None
    runs = [run for run, *_ in workloads]
    for (run, baseline, why), alike in workloads.items():
        where = f", workload {', '.join(alike)}" if runs.count(run) > 1 else ""
        yield f"{run} against {baseline}{where}: {f'unpaired ({why})' if why else 'paired by replication'}."


def _origin_notes(runs: Mapping[str, Run]) -> Iterator[str]:
    (first, baseline), *_ = runs.items()
    for name, run in runs.items():
        for file in changed_inputs(baseline, run):
            yield f"{file} has another content in {name} than in {first}."
        ours, theirs = (one.manifest.get("simnmt", VERSION) for one in (run, baseline))
        if ours != theirs:
            yield f"{name} is of simnmt {ours}, {first} of {theirs}."
        lost = max(map(unanswered_share, run.summary_rows), default=0.0)
        if run.live is not None:
            yield f"{name} is measured live; its latencies are of the answered requests."
            if run.live.late_ms is not None:
                yield f"The load generator of {name} was {run.live.late_ms:.1f} ms late at p99, which is part of its latencies."
        elif lost:
            yield f"{name} leaves up to {percent(lost)} of its requests without an answer; its latencies are of the others."


def differences(contents: Sequence[Any], key: str = "") -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield each key below which contents differ, joined by dots, with its values; None where it is missing."""
    if all(isinstance(content, dict) for content in contents):
        for name in dict.fromkeys(name for content in contents for name in content):
            yield from differences([content.get(name) for content in contents], f"{key}.{name}" if key else str(name))
    elif len({json.dumps(content, sort_keys=True) for content in contents}) > 1:
        yield key, contents
