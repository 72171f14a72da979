"""The C-NMT paper's Table I replayed, and the fit that found the shipped profiles: what `simnmt reproduce cnmt` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from simnmt.reproduce.cnmt import claims, table_one
from simnmt.reproduce.cnmt.confirm import UNITS, confirm
from simnmt.reproduce.cnmt.fit import FIT_REQUESTS, LEVELS, SEEDS, Progress, TableOneFit, fit_table_one
from simnmt.reproduce.cnmt.inferred_profiles import fit_as_text, profiles, write_inferred, write_levels
from simnmt.reproduce.cnmt.published import all_implied_ratios
from simnmt.reproduce.cnmt.ratios import compare_ratios, mean_absolute_errors, ratios_as_text


@dataclass(frozen=True, slots=True)
class Replication:
    """Table I as published and as replayed, the ratios behind it, and the verdict on each claim."""

    cells: list[dict[str, Any]]
    ratios: list[Any]
    claims: list[dict[str, Any]]

    def document(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "claims": self.claims,
            "tables": [
                {"title": "C-NMT, Table I", "cells": self.cells},
                {
                    "title": "Total times over the gateway's, derived from the published table in each way it allows",
                    "rows": [asdict(implied) for implied in all_implied_ratios()],
                },
                {
                    "title": "Total time over the gateway's",
                    "rows": [asdict(ratio) | {"error": ratio.error} for ratio in self.ratios],
                    "mean_absolute_error": mean_absolute_errors(self.ratios),
                },
            ],
            "slips": list(claims.SLIPS),
        }

    def text(self) -> str:
        """The same for a terminal."""
        return "\n\n".join([table_one.as_text(self.cells), ratios_as_text(self.ratios), claims_as_text(self.claims)])


def claims_as_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a line per claim: verdict, claim, our figures and the reason; below them once that profiles are inferred."""
    ending = f"; {claims.FITTED}"
    lines = []
    for record in records:
        reason = "; ".join(filter(None, [record["ours"], str(record["why"]).removesuffix(ending)]))
        lines.append(f"{str(record['verdict']).capitalize()}: {record['id']}. {record['claim']} ({reason}).")
    fitted = [str(record["id"]).removeprefix("CNMT-17 ") for record in records if str(record["why"]).endswith(ending)]
    if fitted:
        told = ", ".join(fitted)
        lines.append(f"The profiles were inferred from Table I itself, so this is consistency, not proof, of CNMT-17 {told}.")
    return "\n".join(lines)


def replicate(
    rows: Sequence[Mapping[str, Any]],
    profile_kinds: Sequence[str],
    gaps: Sequence[Mapping[str, Any]] = (),
    comparisons: Sequence[Mapping[str, Any]] = (),
) -> Replication:
    """Set a run of Table I beside the published one. Arguments as of `claims.evaluate`."""
    records = claims.evaluate(rows, profile_kinds, gaps, comparisons)
    return Replication(table_one.compare(rows), compare_ratios(rows), records)


def fit_and_replay(
    *,
    seeds: Sequence[int] = SEEDS,
    levels: int = LEVELS,
    fit_requests: int = FIT_REQUESTS,
    requests: int = 100_000,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[TableOneFit, Replication]:
    """Infer the six profiles and the level of CP2 from Table I, and replay the table on them.

    `seeds`, `levels`, `fit_requests`: see `fit_table_one`; `requests`: per run of the replay. `progress` is called with the
    fits and units of the replay that are done, and with those there are in all.
    """
    fits = 0

    def count_fits(done: int, total: int) -> None:
        nonlocal fits
        fits = total
        if progress is not None:
            progress(done, fits + UNITS)

    def count_units(done: int, _: int) -> None:
        if progress is not None:
            progress(fits + done, fits + UNITS)

    fit = fit_table_one(seeds=seeds, levels=levels, requests=fit_requests, jobs=jobs, progress=count_fits)
    with TemporaryDirectory(prefix="simnmt-") as folder:  # replayed as users will: from the files
        write_fit(Path(folder), fit)
        result = confirm(Path(folder), requests=requests, jobs=jobs, progress=count_units)
    return fit, replicate(result.rows, ["inferred"], result.gaps, result.comparisons)


def write_fit(folder: Path, fit: TableOneFit, found: Replication | None = None) -> None:
    """Write the profiles and both RTT series into `folder`; with a replay the profiles carry its errors."""
    write_inferred(profiles(fit, ratios=found.ratios if found else ()), folder)
    write_levels(fit, folder)


def as_text(fit: TableOneFit, found: Replication) -> str:
    """A fit and its replay for a terminal."""
    return f"{fit_as_text(fit)}\n\n{found.text()}"
