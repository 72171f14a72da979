"""The whole reproduction of C-NMT: Table I on inferred and on measured profiles, every verdict, and the tables side by side.

Inferred profiles were fitted to Table I, so their verdicts are marked as fitted. On measured profiles the claims are tested, on
networks where the oracle offloads 20 to 80 % of the requests: the scenario's networks if that is so for every data set there,
else a pair for each data set, found from its profiles; the scenario's one pair for all is then shown beside them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simnmt.base.errors import InputError
from simnmt.base.text_tables import format_records
from simnmt.experiment.inputs import RunPlan
from simnmt.papers.cnmt import claims, published, table_replay
from simnmt.papers.cnmt.device_claims import PUBLISHED, device_claims, samples_of, time_over_length
from simnmt.papers.cnmt.network_levels import (
    LEAST_SHARE,
    MOST_SHARE,
    NetworkSearch,
    OverLevels,
    claims_over_levels,
    search_networks,
)
from simnmt.papers.cnmt.published import REFERENCE
from simnmt.papers.cnmt.table_one import mean_absolute_difference
from simnmt.papers.cnmt.table_replay import Part, Prepared, Progress, claims_as_text, compare_ratios, mean_absolute_errors
from simnmt.results.result import doubtful_profiles

TABLE_TITLE = "C-NMT, Table I: change of total time, %, negative is faster"
RATIO_TITLE = "Total time over the gateway's"


def cells(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the 36 cells of Table I in its order: `published_percent`, and `KEY_percent` of each part, None if absent."""
    percent_by_part = {
        part.name: {(c["workload"], c["policy"], c["network"], c["baseline"]): c["ours_percent"] for c in part.found.cells}
        for part in parts
    }
    return [
        {
            "workload": workload,
            "policy": policy,
            "network": network,
            "baseline": baseline,
            "published_percent": published.variation_percent(workload, network, policy, baseline),
            **{f"{part.key}_percent": percent_by_part[part.name].get((workload, policy, network, baseline)) for part in parts},
        }
        for workload, policy in published.TABLE_ONE
        for network in published.NETWORKS
        for baseline in published.BASELINES
    ]


def ratios(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the 24 ratios: published both ways, each part's, and the inferred part's error and role in the fit.

    The measured parts have no error: other devices on other networks have other ratios.
    """
    inferred = parts[0].found.ratios
    ours = {
        part.name: {(ratio.workload, ratio.network, ratio.policy): ratio.ours for ratio in compare_ratios(part.rows)}
        for part in parts
    }
    return [
        {
            "workload": ratio.workload,
            "network": ratio.network,
            "policy": ratio.policy,
            "published": list(ratio.published),
            "role": ratio.role,
            "error": ratio.error,
            **{part.key: ours[part.name].get((ratio.workload, ratio.network, ratio.policy)) for part in parts},
        }
        for ratio in inferred
    ]


def errors(parts: Sequence[Part]) -> dict[str, float]:
    """Return the mean absolute relative error of the inferred part's ratios: all, per data set, fitted and test apart."""
    return mean_absolute_errors(parts[0].found.ratios)


def networks(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return, by part, data set and network, the mean RTT with its source and the share that the oracle sends away."""
    rows = []
    for part in parts:
        shares = {(r["workload"], r["network"]): r["offloaded_share"] for r in part.rows if r["policy"] == "oracle"}
        rows += [
            {
                "profiles": part.name,
                "workload": cell.workload,
                "network": cell.network,
                "mean_rtt_ms": 1e3 * cell.series.mean_s,
                "kind": cell.series.kind,
                "source": cell.series.source,
                "oracle_offloaded_share": shares.get((cell.workload, cell.network)),
            }
            for cell in part.cells
        ]
    return rows


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def table_as_text(parts: Sequence[Part]) -> str:
    """Format Table I for a terminal: a row per data set, policy and origin."""
    rows = []
    table_cells = cells(parts)
    origins = {"published": "published_percent"} | {part.name: f"{part.key}_percent" for part in parts}
    for workload, policy in published.TABLE_ONE:
        row_cells = [cell for cell in table_cells if (cell["workload"], cell["policy"]) == (workload, policy)]
        for origin, key in origins.items():
            row = {"data": workload.upper(), "policy": published.LABELS[policy], "profiles": origin}
            heads = (f"{c['network'].upper()} {published.LABELS[c['baseline']]}" for c in row_cells)
            rows.append(row | {head: _number(cell[key], "+.2f") for head, cell in zip(heads, row_cells, strict=True)})
    mean = mean_absolute_difference(parts[0].found.cells)
    mean_line = [] if mean is None else [f"mean absolute difference of the inferred over 36 cells: {mean:.2f} points"]
    return "\n".join([f"{TABLE_TITLE} (Chen et al., ISCAS 2022, and ours)", format_records(rows, 3), *mean_line])


def ratios_as_text(parts: Sequence[Part]) -> str:
    """Format the ratios for a terminal, with the errors of the inferred fit under them."""
    rows = []
    for ratio in ratios(parts):
        one, other = ratio["published"]
        others = {part.name: _number(ratio[part.key], ".4f") for part in parts[1:]}
        rows.append(
            {
                "data": ratio["workload"].upper(),
                "network": ratio["network"].upper(),
                "policy": published.LABELS[ratio["policy"]],
                "published, two ways": f"{one:.4f}" if one == other else f"{one:.4f} | {other:.4f}",
                "inferred": _number(ratio["inferred"], ".4f"),
                "error %": f"{100 * ratio['error']:+.2f}",
                "role": ratio["role"],
                **others,
            }
        )
    errors_text = ", ".join(f"{group} {100 * error:.2f} %" for group, error in errors(parts).items())
    return "\n".join([RATIO_TITLE, format_records(rows, 3), f"mean absolute error of the inferred: {errors_text}"])


def networks_as_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The networks for a terminal."""
    lines = [
        {
            "profiles": row["profiles"],
            "data": row["workload"].upper(),
            "network": row["network"].upper(),
            "mean RTT, ms": f"{row['mean_rtt_ms']:.1f}",
            "oracle sends away, %": _number(_percent(row["oracle_offloaded_share"]), ".1f"),
        }
        for row in rows
    ]
    return "\n".join(["Networks of each replay (synthetic shapes)", format_records(lines, 3)])


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


INFERRED, MEASURED = "@table1", "@table1-measured"
_ONE_NETWORK = ", one network"
_OWN_PAIRS = "each data set on its own pair of RTT levels, searched so that the oracle sends 20 to 80 % away"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Table I of the C-NMT paper as published, and as replayed in each part."""

    parts: list[Part]
    """Inferred first, then measured; last, where the scenario's one pair of networks leaves some data set nothing to decide,
    measured on that pair, with the part before on a pair for each."""
    claims: list[dict[str, Any]]
    """One record per claim and part; `id` ends with the part's name, `bare` is the same without, and `profiles` the name."""
    networks: list[dict[str, Any]]
    """Per part, data set and network: mean RTT, and the share that the oracle sends away."""
    search: NetworkSearch | None
    """None where no measured profile is at hand."""
    times: list[dict[str, Any]]
    """Figure 2a: per data set and device the measured means per target length; empty without samples."""
    over_levels: OverLevels | None = None
    """The claims over several levels of the tested profiles, beside the verdicts and no part of them; None as `search`."""

    def _doubts(self) -> list[dict[str, Any]]:
        """Each doubtful profile once, with the parts that rest on it."""
        by_part = {part.name: {doubt["profile"] for doubt in doubtful_profiles(part.cells)} for part in self.parts}
        doubts = doubtful_profiles(cell for part in self.parts for cell in part.cells)
        return [
            {"parts": [name for name, profiles in by_part.items() if doubt["profile"] in profiles]} | doubt for doubt in doubts
        ]

    def document(self) -> dict[str, Any]:
        """What `--json` prints."""
        inferred = self.parts[0]
        return {
            "paper": REFERENCE,
            "parts": [{"name": part.name, "key": part.key, "kinds": part.shown_kinds} for part in self.parts],
            "doubts": self._doubts(),
            "claims": self.claims,
            "tables": [
                {"id": "table-one", "title": TABLE_TITLE, "cells": cells(self.parts)},
                {"id": "implied"} | inferred.found.document()["tables"][1],
                {
                    "id": "ratios",
                    "title": RATIO_TITLE,
                    "rows": ratios(self.parts),
                    "mean_absolute_error": errors(self.parts),
                },
                {"id": "networks", "title": "Networks of each replay", "rows": self.networks},
                {"id": "times", "title": "Measured time over target length (figure 2a)", "rows": self.times},
            ],
            "over_levels": None if self.over_levels is None else self.over_levels.document(),
            "network_search": None if self.search is None else self.search.document(),
            "notes": {part.name: part.notes for part in self.parts},
            "slips": list(claims.SLIPS),
        }

    def text(self) -> str:
        """The same for a terminal."""
        pieces = [
            table_as_text(self.parts),
            ratios_as_text(self.parts),
            networks_as_text(self.networks),
            *(self._claims_as_text(part.name) for part in self.parts),
            "" if self.over_levels is None else self.over_levels.text(),
        ]
        pieces += [note for part in self.parts for note in part.notes if note.startswith("Not at hand")]
        return "\n\n".join(filter(None, pieces))

    def _claims_as_text(self, name: str) -> str:
        records = [record | {"id": record["bare"]} for record in self.claims if record["profiles"] == name]
        return f"On the profiles that are {name}:\n{claims_as_text(records)}"


def reproduce(
    *,
    measured: str | os.PathLike[str] = MEASURED,
    requests: int | None = None,
    folder: Path,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Reproduction:
    """Replay Table I on the inferred profiles and on the measured ones that `measured`, a scenario of Table I, names.

    `requests`: per run, as the scenarios say if left out; `folder`: an empty one, where columns may lie meanwhile. Shipped
    profiles that are missing leave their claims not measurable. Raises the rooms' `InputError`s.
    """
    inferred, tested = table_replay.prepare(INFERRED, requests), table_replay.prepare(measured, requests)
    if inferred.plan is None or inferred.missing:
        raise InputError(table_replay.lacking(inferred.missing), remedy="install simnmt again, or infer them with --fit")
    search = None if tested.plan is None else search_networks(tested.plan)
    name = table_replay.name_of(tested.profiles) if tested.profiles else "measured"
    todo: list[tuple[str, list[RunPlan]]] = [("inferred", table_replay.separated(inferred.plan.scenario))]
    if tested.plan is not None and search is not None:
        if search.stated.outside:
            by_data_set = [table_replay.at_levels(tested.plan, workload, levels) for workload, levels in search.own.items()]
            todo += [(name, by_data_set), (name + _ONE_NETWORK, table_replay.separated(tested.plan.scenario))]
        else:
            todo.append((name, table_replay.separated(tested.plan.scenario)))
    units = [sum(map(table_replay.units_of, plans)) for _, plans in todo]
    whole = sum(units) + (0 if tested.plan is None else len(tested.plan.cases))
    replayed = []
    for number, (called, plans) in enumerate(todo):

        def report(done: int, _: int, before: int = sum(units[:number])) -> None:
            if progress is not None:
                progress(before + done, whole)

        replayed.append(table_replay.replay(called, plans, folder=folder, jobs=jobs, progress=report))
    if tested.plan is None:
        replayed.append(table_replay.without(name, tested.missing))
    elif tested.missing:
        for part in replayed[1:]:
            part.notes.insert(0, table_replay.lacking(tested.missing))
    over_levels = None
    if tested.plan is not None:
        over_levels = claims_over_levels(
            tested.plan, folder, jobs, None if progress is None else lambda done, _: progress(sum(units) + done, whole)
        )
    return Reproduction(
        replayed,
        _claims(replayed, tested),
        networks(replayed),
        search,
        _times(tested.profiles),
        over_levels,
    )


def find_network(measured: str | os.PathLike[str] = MEASURED) -> NetworkSearch:
    """Search the networks for a scenario's profiles. Raises `InputError` where no data set has both of its profiles."""
    prepared = table_replay.prepare(measured)
    if prepared.plan is None:
        raise InputError(
            f"{measured}: {table_replay.lacking(prepared.missing)}", remedy="name a scenario whose profiles are there"
        )
    return search_networks(prepared.plan)


def _claims(replayed: list[Part], tested: Prepared) -> list[dict[str, Any]]:
    records = []
    for part in replayed:
        limits = [] if part is replayed[0] else _limits(part, tested)
        # Where the scenario's pair is shown as well, the part before it has a pair for each data set.
        pairs = [_OWN_PAIRS] if any(other.name == part.name + _ONE_NETWORK for other in replayed) else []
        headline = claims.reductions(part.rows, part.kinds, part.totals_s)
        records_with_endings = [(record, pairs) for record in (*part.found.claims, headline)]
        if part is replayed[1]:
            tables = {} if tested.plan is None else {name: case.table for name, case in tested.plan.cases.items()}
            records_with_endings += [(record, []) for record in device_claims(tested.profiles, tables)]
        for record, ending in records_with_endings:
            why = "; ".join([record["why"], *(limits if record["hardware_dependent"] else []), *ending])
            name = {"id": f"{record['id']}, {part.name}", "bare": record["id"], "profiles": part.name}
            records.append(record | name | {"why": why})
    return records


def _limits(part: Part, tested: Prepared) -> list[str]:
    """Describe what limits the verdicts of a tested part."""
    limits = []
    if tested.missing:
        sentence = table_replay.lacking(tested.missing)
        limits.append(sentence[:1].lower() + sentence[1:])
    outside = [
        f"{row['workload'].upper()} {row['network'].upper()}"
        for row in networks([part])
        if not LEAST_SHARE <= row["oracle_offloaded_share"] <= MOST_SHARE
    ]
    if outside:
        limits.append(f"the oracle sends less than 20 or more than 80 % away in {', '.join(outside)}")
    return limits


def _times(profiles: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    rows = []
    for workload, pair in profiles.items():
        for device, profile in zip(("gateway", "cloud"), pair, strict=True):
            line = time_over_length(samples_of(profile))
            if line is not None:
                r2, mse_ms2 = PUBLISHED[device] if workload == "en-zh" else (None, None)
                rows.append(
                    {
                        "workload": workload,
                        "device": device,
                        "profile": profile.name,
                        "box": profile.device.name,
                        "model": profile.model.name,
                        "kind": profile.execution.kind,
                        **asdict(line),
                        "published_r2": r2,
                        "published_mse_ms2": mse_ms2,
                    }
                )
    return rows
