"""The recommendations on the page: the cards with the sentences, the overview of many cells, and the badges of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simnmt.report.table import cell_of
from simnmt.report.typography import typeset_interval
from simnmt.results import RunResult
from simnmt.results.summary import Row, objective_name
from simnmt.results.wording import duration

MOST_CARDS = 2
"""Cells whose sentences the page opens with; with more of them an overview comes first and the sentences are folded."""


def verdict_cards(result: RunResult, colours: Mapping[str, int]) -> list[dict[str, Any]]:
    """One card per workload and network: its sentences, and the colour of the recommended policy (None without one)."""
    policies = {cell_of(record): record["policy"] for record in result.recommendations}
    return [
        {**verdict, "policy": policies.get(cell_of(verdict)), "colour": colours.get(policies.get(cell_of(verdict)) or "")}
        for verdict in result.verdicts
    ]


def overview(result: RunResult, colours: Mapping[str, int]) -> dict[str, Any] | None:
    """The matrix of recommended policies, workloads down and networks across; None for few cells, which need none."""
    recommendations = result.recommendations
    if len(recommendations) <= MOST_CARDS:
        return None
    networks = list(dict.fromkeys(record["network"] for record in recommendations))
    by_cell = {cell_of(record): (index, record) for index, record in enumerate(recommendations)}
    workloads = dict.fromkeys(record["workload"] for record in recommendations)
    objective = objective_name(recommendations[0]["objective"])
    lines = [
        {"workload": workload, "cells": [_overview_cell(*by_cell[workload, network], colours) for network in networks]}
        for workload in workloads
    ]
    caution = " ".join(dict.fromkeys(verdict["caution"] for verdict in result.verdicts if verdict["caution"]))
    return {"objective": objective, "caution": caution, "networks": networks, "lines": lines}


def _overview_cell(index: int, record: Row, colours: Mapping[str, int]) -> dict[str, Any]:
    margin, low, high = (
        None if record[key] is None else 100.0 * record[key] for key in ("margin", "margin_low", "margin_high")
    )
    change, interval = ("", "") if margin is None else typeset_interval(margin, low, high)
    remark = "unstable" if record["unstable"] else "misses the service level" if record["slo_met"] is False else ""
    return {
        "index": index,
        "policy": record["policy"],
        "colour": colours.get(record["policy"] or ""),
        "value": ""
        if record["objective_s"] is None
        else duration(record["objective_s"], record["objective_s_low"], record["objective_s_high"]),
        "margin": change and f"{change}\u202f% against {record['runner_up']}",
        "interval": interval,
        "unclear": [name for name in record["indistinguishable"] if name not in record["identical"]],
        "identical": record["identical"],
        "remark": remark,
    }


def recommendation_badges(recommendations: Sequence[Row]) -> dict[tuple[str, str, str], str]:
    """What the table writes beside a policy, by workload, network and policy."""
    badges = {}
    for record in recommendations:
        place, policy = cell_of(record), record["policy"]
        if policy is None or record["unstable"]:
            continue
        badges[(*place, policy)] = "recommended"
        badges |= {(*place, name): f"not distinguishable from {policy}" for name in record["indistinguishable"]}
        badges |= {(*place, name): f"identical to {policy}" for name in record["identical"]}
        if record["slo"]:
            badges |= {(*place, name): "misses the service level" for name in record["slo_missed_by"] if name != policy}
    return badges
