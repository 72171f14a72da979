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
from simnmt.reproduce.cnmt.device_claims import device_claims
from simnmt.reproduce.cnmt.network_search import LEAST_SHARE, MOST_SHARE, NetworkSearch, search_networks
from simnmt.reproduce.cnmt.parts import Part, Prepared, Progress
from simnmt.reproduce.cnmt.published import REFERENCE
from simnmt.reproduce.cnmt.replication import claims_as_text
from simnmt.reproduce.cnmt.time_over_length import PUBLISHED, samples_of, time_over_length
from simnmt.scenario.build import Plan

INFERRED, MEASURED = "@table1", "@table1-measured"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Table I of the C-NMT paper as published, and as replayed in each part."""

    parts: list[Part]
    """Inferred first, then measured; last, where no one pair of networks does for all data sets, measured on the best pair."""
    claims: list[dict[str, Any]]
    """One record per claim on inferred and on measured profiles; `id` ends with which of them, and `profiles` repeats it."""
    one_network_claims: list[dict[str, Any]]
    """The same on the scenario's one pair of networks for all data sets, where some of them have nothing to decide there."""
    networks: list[dict[str, Any]]
    """Per part, data set and network: mean RTT, and the share that the oracle sends away."""
    search: NetworkSearch | None
    """None where no measured profile is at hand."""
    times: list[dict[str, Any]]
    """Figure 2a: per data set and device the measured means per target length; empty without samples."""

    def document(self) -> dict[str, Any]:
        """What `--json` prints."""
        inferred = self.parts[0]
        return {
            "paper": REFERENCE,
            "claims": self.claims,
            "one_network_claims": self.one_network_claims,
            "tables": [
                {"title": side_by_side.TABLE_TITLE, "cells": side_by_side.cells(self.parts)},
                *inferred.found.document()["tables"][1:2],
                {
                    "title": side_by_side.RATIO_TITLE,
                    "rows": side_by_side.ratios(self.parts),
                    "mean_absolute_error": side_by_side.errors(self.parts),
                },
                {"title": "Networks of each replay", "rows": self.networks},
                {"title": "Measured time over target length (figure 2a)", "rows": self.times},
            ],
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
        ]
        pieces += [note for part in self.parts for note in part.notes if note.startswith("Not at hand")]
        return "\n\n".join(filter(None, pieces))

    def _all_claims(self) -> list[dict[str, Any]]:
        return [*self.claims, *self.one_network_claims]

    def _claims_as_text(self, name: str) -> str:
        own = [record | {"id": _bare(record)} for record in self._all_claims() if record["profiles"] == name]
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
    todo: list[tuple[parts.PartName, list[Plan]]] = [("inferred", [inferred.plan])]
    if tested.plan is not None and search is not None:
        if search.stated.outside:
            own = [parts.at_levels(tested.plan, workload, levels) for workload, levels in search.own.items()]
            todo += [("measured", own), ("measured, one network", [tested.plan])]
        else:
            todo.append(("measured", [tested.plan]))
    units = [sum(len(plan.cases) * len(plan.networks) for plan in plans) for _, plans in todo]
    replayed = []
    for number, (name, plans) in enumerate(todo):

        def told(done: int, _: int, before: int = sum(units[:number])) -> None:
            if progress is not None:
                progress(before + done, sum(units))

        replayed.append(parts.replay(name, plans, folder=folder, jobs=jobs, progress=told))
    if tested.plan is None:
        replayed.append(parts.without("measured", tested.missing))
    elif tested.missing:
        for part in replayed[1:]:
            part.notes.insert(0, parts.lacking(tested.missing))
    verdicts = _claims(replayed, tested)
    return Reproduction(
        replayed,
        [record for record in verdicts if record["profiles"] != "measured, one network"],
        [record for record in verdicts if record["profiles"] == "measured, one network"],
        side_by_side.networks(replayed),
        search,
        _times(tested.profiles),
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
        own = [*part.found.claims, claims.reductions(part.rows, part.kinds)]
        if part.name == "measured":
            tables = {} if tested.plan is None else {name: case.table for name, case in tested.plan.cases.items()}
            own += device_claims(tested.profiles, tables)
        said = _limits(part, tested) if part.name != "inferred" else []
        for record in own:
            why = "; ".join([record["why"], *(said if record["hardware_dependent"] else [])])
            records.append(record | {"id": f"{record['id']}, {part.name}", "why": why, "profiles": part.name})
    return records


def _limits(part: Part, tested: Prepared) -> list[str]:
    """What every verdict of a measured part is to be read with."""
    said = []
    if tested.missing:
        sentence = parts.lacking(tested.missing)
        said.append(sentence[:1].lower() + sentence[1:])
    outside = [
        f"{row['workload'].upper()} {row['network'].upper()}"
        for row in side_by_side.networks([part])
        if not LEAST_SHARE <= row["oracle_offloaded_share"] <= MOST_SHARE
    ]
    if outside:
        said.append(f"the oracle sends less than 20 or more than 80 % away in {', '.join(outside)}")
    return said


def _bare(record: Mapping[str, Any]) -> str:
    """A record's id without the part's name."""
    return str(record["id"]).removesuffix(f", {record['profiles']}")


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
