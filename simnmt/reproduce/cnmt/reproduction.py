"""The whole reproduction: Table I on inferred and on measured profiles beside the published one, and every claim's verdict.

Inferred profiles were fitted to Table I, so on them the claims are shown as fitted. On measured ones they are tests, on
networks where the oracle sends 20 to 80 % of the requests away: those of the scenario if that is so for every data set there,
else a pair for each data set, found from its profiles; the scenario's one pair for all is then shown beside them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simnmt.errors import InputError
from simnmt.reproduce.cnmt import claims, parts, side_by_side
from simnmt.reproduce.cnmt.claims_over_levels import OverLevels, claims_over_levels
from simnmt.reproduce.cnmt.device_claims import device_claims
from simnmt.reproduce.cnmt.network_search import LEAST_SHARE, MOST_SHARE, NetworkSearch, search_networks
from simnmt.reproduce.cnmt.parts import Part, Prepared, Progress
from simnmt.reproduce.cnmt.published import REFERENCE
from simnmt.reproduce.cnmt.replication import claims_as_text
from simnmt.reproduce.cnmt.time_over_length import PUBLISHED, samples_of, time_over_length
from simnmt.results.result import doubtful_profiles
from simnmt.scenario.build import Plan

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
                {"id": "table-one", "title": side_by_side.TABLE_TITLE, "cells": side_by_side.cells(self.parts)},
                {"id": "implied"} | inferred.found.document()["tables"][1],
                {
                    "id": "ratios",
                    "title": side_by_side.RATIO_TITLE,
                    "rows": side_by_side.ratios(self.parts),
                    "mean_absolute_error": side_by_side.errors(self.parts),
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
            side_by_side.table_as_text(self.parts),
            side_by_side.ratios_as_text(self.parts),
            side_by_side.networks_as_text(self.networks),
            *(self._claims_as_text(part.name) for part in self.parts),
            "" if self.over_levels is None else self.over_levels.text(),
        ]
        pieces += [note for part in self.parts for note in part.notes if note.startswith("Not at hand")]
        return "\n\n".join(filter(None, pieces))

    def _claims_as_text(self, name: str) -> str:
        own = [record | {"id": record["bare"]} for record in self.claims if record["profiles"] == name]
        return f"On the profiles that are {name}:\n{claims_as_text(own)}"


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
    inferred, tested = parts.prepare(INFERRED, requests), parts.prepare(measured, requests)
    if inferred.plan is None or inferred.missing:
        raise InputError(parts.lacking(inferred.missing), remedy="install simnmt again, or infer them with --fit")
    search = None if tested.plan is None else search_networks(tested.plan)
    name = parts.name_of(tested.profiles) if tested.profiles else "measured"
    todo: list[tuple[str, list[Plan]]] = [("inferred", parts.separated(inferred.plan.scenario))]
    if tested.plan is not None and search is not None:
        if search.stated.outside:
            by_data_set = [parts.at_levels(tested.plan, workload, levels) for workload, levels in search.own.items()]
            todo += [(name, by_data_set), (name + _ONE_NETWORK, parts.separated(tested.plan.scenario))]
        else:
            todo.append((name, parts.separated(tested.plan.scenario)))
    units = [sum(map(parts.units_of, plans)) for _, plans in todo]
    whole = sum(units) + (0 if tested.plan is None else len(tested.plan.cases))
    replayed = []
    for number, (called, plans) in enumerate(todo):

        def told(done: int, _: int, before: int = sum(units[:number])) -> None:
            if progress is not None:
                progress(before + done, whole)

        replayed.append(parts.replay(called, plans, folder=folder, jobs=jobs, progress=told))
    if tested.plan is None:
        replayed.append(parts.without(name, tested.missing))
    elif tested.missing:
        for part in replayed[1:]:
            part.notes.insert(0, parts.lacking(tested.missing))
    over_levels = None
    if tested.plan is not None:
        over_levels = claims_over_levels(
            tested.plan, folder, jobs, None if progress is None else lambda done, _: progress(sum(units) + done, whole)
        )
    return Reproduction(
        replayed,
        _claims(replayed, tested),
        side_by_side.networks(replayed),
        search,
        _times(tested.profiles),
        over_levels,
    )


def find_network(measured: str | os.PathLike[str] = MEASURED) -> NetworkSearch:
    """Search the networks for a scenario's profiles. Raises `InputError` where no data set has both of its profiles."""
    prepared = parts.prepare(measured)
    if prepared.plan is None:
        raise InputError(f"{measured}: {parts.lacking(prepared.missing)}", remedy="name a scenario whose profiles are there")
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
    """What the verdicts of a tested part are to be read with."""
    limits = []
    if tested.missing:
        sentence = parts.lacking(tested.missing)
        limits.append(sentence[:1].lower() + sentence[1:])
    outside = [
        f"{row['workload'].upper()} {row['network'].upper()}"
        for row in side_by_side.networks([part])
        if not LEAST_SHARE <= row["oracle_offloaded_share"] <= MOST_SHARE
    ]
    if outside:
        limits.append(f"the oracle sends less than 20 or more than 80 % away in {', '.join(outside)}")
    return limits


def _times(profiles: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    rows = []
    for workload, pair in profiles.items():
        for device, profile in zip(("gateway", "cloud"), pair, strict=True):
            found = time_over_length(samples_of(profile))
            if found is not None:
                r2, mse_ms2 = PUBLISHED[device] if workload == "en-zh" else (None, None)
                rows.append(
                    {
                        "workload": workload,
                        "device": device,
                        "profile": profile.name,
                        "box": profile.device.name,
                        "model": profile.model.name,
                        "kind": profile.execution.kind,
                        **asdict(found),
                        "published_r2": r2,
                        "published_mse_ms2": mse_ms2,
                    }
                )
    return rows
