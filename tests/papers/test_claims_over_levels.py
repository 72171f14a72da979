"""The number of combinations of levels at which a claim holds, and the network picked from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from simnmt.experiment.cases import RunPlan
from simnmt.papers.cnmt import published, table_replay
from simnmt.papers.cnmt.network_levels import CAUTION, Levels, OverLevels, Pair, over_combinations, replayed_pairs
from simnmt.papers.cnmt.table_one import TableRun
from tests.papers.stand_ins import write_stand_ins

REQUESTS = 1000
KINDS = ["measured"]
LETTERS = [f"CNMT-17 ({letter})" for letter in "abcde"]
Pairs = dict[str, list[Pair]]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> RunPlan:
    prepared = table_replay.prepare(write_stand_ins(tmp_path_factory.mktemp("stand-ins")), requests=REQUESTS)
    assert prepared.plan is not None
    return prepared.plan


@pytest.fixture(scope="module")
def pairs(plan: RunPlan, tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    room = tmp_path_factory.mktemp("room")
    return {workload: replayed_pairs(plan, workload, REQUESTS, room) for workload in plan.cases}


def published_pairs(rows: list[dict[str, Any]], share: float, gaps: Sequence[dict[str, Any]] = ()) -> dict[str, Pair]:
    """Return the published totals as one pair per data set, at made-up levels."""
    return {
        workload: Pair(
            Levels({"cp1": 100.0, "cp2": 70.0}, {(workload, network): share for network in published.NETWORKS}),
            TableRun.of(
                [row for row in rows if row["workload"] == workload], [row for row in gaps if row["workload"] == workload]
            ),
        )
        for workload in published.WORKLOADS
    }


def by_hand(combination: tuple[Pair, ...]) -> list[bool]:
    """Return whether (a) to (e) hold, from the totals by independent formulas."""
    s = {name: total_s for pair in combination for name, total_s in pair.run.total_s.items()}
    cells = [(w, n) for w in published.WORKLOADS for n in published.NETWORKS]

    def gain(w: str, n: str, baseline: str) -> float:
        return 1 - s[w, n, "cnmt"] / s[w, n, baseline]

    gap = {cell: s[(*cell, "cnmt")] / s[(*cell, "oracle")] for cell in cells}
    changes = {cell: parts for pair in combination for cell, parts in pair.run.gap_percent.items()}
    by_lengths = all(parts["length regression"] == min(parts.values()) for parts in changes.values())
    return [
        all(s[(*cell, "oracle")] <= s[(*cell, policy)] * (1 + 1e-9) for cell in cells for policy in ("edge", "cloud", "cnmt")),
        all(s[(*cell, "cnmt")] <= min(s[(*cell, "edge")], s[(*cell, "cloud")]) for cell in cells),
        sum(s[(*cell, "cnmt")] < s[(*cell, "naive")] for cell in cells) >= 5,
        all(
            gain(w, "cp1", "cloud") > gain(w, "cp2", "cloud") and gain(w, "cp2", "edge") > gain(w, "cp1", "edge")
            for w in published.WORKLOADS
        ),
        by_lengths
        and min(gap["en-zh", n] for n in published.NETWORKS) > max(gap[cell] for cell in cells if cell[0] != "en-zh"),
    ]


def test_the_counts_agree_with_a_count_by_hand(pairs: Pairs) -> None:
    assert all(len(levels) >= 2 for levels in pairs.values())
    assert [workload for workload, levels in pairs.items() if all(pair.run.gap_percent for pair in levels)] == ["en-zh"]
    over_levels = over_combinations(pairs, KINDS, REQUESTS)
    verdicts = [by_hand(combination) for combination in product(*pairs.values())]
    assert over_levels.combinations == len(verdicts)
    assert list(over_levels.holding) == LETTERS
    assert list(over_levels.holding.values()) == [sum(column) for column in zip(*verdicts, strict=True)]
    assert over_levels.all_hold == sum(map(all, verdicts))
    assert (over_levels.nearest is None) == (over_levels.all_hold == 0)


def test_only_pairs_within_the_range_are_kept_and_cp2_is_the_faster(pairs: Pairs) -> None:
    for levels in pairs.values():
        for pair in levels:
            assert pair.levels.outside == []
            assert pair.levels.mean_rtt_ms["cp2"] == pytest.approx(0.7 * pair.levels.mean_rtt_ms["cp1"], rel=1e-3)


def test_the_shares_are_those_of_the_oracle_in_a_replay_at_these_levels(plan: RunPlan, pairs: Pairs, tmp_path: Path) -> None:
    levels = pairs["en-zh"][0].levels
    again = table_replay.at_levels(plan, "en-zh", levels)
    again = replace(again, scenario=again.scenario.model_copy(update={"replications": 1}))
    part = table_replay.replay("again", [again], folder=tmp_path, jobs=1, progress=None)
    assert part.run.oracle_share == levels.offloaded_share
    assert {cell.network: 1e3 * cell.series.mean_s for cell in part.cells} == pytest.approx(levels.mean_rtt_ms)


def test_the_network_nearest_to_the_neutral_rule_is_chosen(
    published_rows: list[dict[str, Any]], published_gaps: list[dict[str, Any]]
) -> None:
    near, far = (published_pairs(published_rows, share, published_gaps) for share in (0.5, 0.7))
    over_levels = over_combinations({w: [far[w], near[w]] for w in published.WORKLOADS}, KINDS, REQUESTS)
    assert (over_levels.combinations, over_levels.all_hold) == (8, 8)
    assert over_levels.nearest == {w: near[w].levels for w in published.WORKLOADS}
    assert [record.verdict for record in over_levels.verdicts] == ["holds"] + ["not distinguishable"] * 4
    assert "All hold in 8, nearest to the neutral rule at DE-EN CP1 100 ms with 50 % sent" in over_levels.text()
    assert CAUTION in over_levels.text() and over_levels.document()["caution"] == CAUTION


def test_without_a_combination_at_which_all_hold_no_network_is_chosen(tampered: Callable[..., Any]) -> None:
    rows = tampered("de-en", "cp1", "cnmt", total_latency_s=995.0)
    over_levels = over_combinations({w: [pair] for w, pair in published_pairs(rows, 0.5).items()}, KINDS, REQUESTS)
    assert over_levels.holding["CNMT-17 (e)"] == 0 and over_levels.holding["CNMT-17 (a)"] == 1
    assert (over_levels.all_hold, over_levels.nearest, over_levels.verdicts) == (0, None, [])
    assert over_levels.document()["found"] is None
    assert over_levels.text().endswith("No network among them at which all hold.")
    assert CAUTION not in over_levels.text()


def test_a_data_set_without_a_pair_leaves_no_combination(published_rows: list[dict[str, Any]]) -> None:
    pairs: Pairs = {w: [pair] for w, pair in published_pairs(published_rows, 0.5).items()}
    over_levels = over_combinations(pairs | {"fr-en": []}, KINDS, REQUESTS)
    assert (over_levels.combinations, over_levels.nearest) == (0, None)
    assert set(over_levels.holding.values()) == {0}


def test_a_claim_that_cannot_be_judged_does_not_count_as_holding(published_rows: list[dict[str, Any]]) -> None:
    pairs: Pairs = {w: [pair] for w, pair in published_pairs(published_rows, 0.5).items() if w != "en-zh"}
    over_levels: OverLevels = over_combinations(pairs, KINDS, REQUESTS)
    assert over_levels.holding["CNMT-17 (e)"] == 0 and over_levels.nearest is None
