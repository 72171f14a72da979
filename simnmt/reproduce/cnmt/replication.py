"""The C-NMT paper's Table I beside a replay of it, and the claims as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from simnmt.reproduce.cnmt import claims, table_one
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
    totals_s: Mapping[claims.RunName, Sequence[float]] | None = None,
) -> Replication:
    """Set a run of Table I beside the published one. Arguments as of `claims.evaluate`."""
    records = claims.evaluate(rows, profile_kinds, gaps, totals_s)
    return Replication(table_one.compare(rows), compare_ratios(rows), records)
