"""The search finds levels at which each device wins some requests, and predicts the oracle's shares there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.experiment.inputs import read_inputs
from simnmt.papers.cnmt import table_replay
from simnmt.papers.cnmt.network_levels import LEVELS_MS, best_levels, search_networks, share_sent
from tests.papers.stand_ins import write_stand_ins


def worths(**spans_ms: tuple[float, float]) -> dict[tuple[str, str], np.ndarray]:
    """Return by data set the RTTs up to which requests are worth sending: evenly spread over a span, alike on both networks."""
    return {
        (name.replace("_", "-"), network): np.linspace(*span, 2001)
        for name, span in spans_ms.items()
        for network in ("cp1", "cp2")
    }


def test_one_data_set_gets_the_thirds_of_the_range() -> None:
    """Requests are worth sending up to RTTs spread evenly over 0 to 100 ms: 0.4 of them at 60 ms, 0.6 at 40 ms."""
    levels = best_levels(worths(de_en=(0.0, 100.0)))
    assert levels.mean_rtt_ms == pytest.approx({"cp1": 60.0, "cp2": 40.0}, rel=0.06)
    distance = abs(levels.offloaded_share["de-en", "cp1"] - 0.4) + abs(levels.offloaded_share["de-en", "cp2"] - 0.6)
    assert distance < 0.02, "with a ratio of at least 0.65 one share reaches its third and the other nearly"
    assert levels.outside == []


def test_overlapping_data_sets_share_one_pair_and_others_are_listed_as_outside() -> None:
    near = worths(de_en=(0.0, 100.0), fr_en=(10.0, 110.0))
    assert best_levels(near).outside == []
    far = best_levels(near | worths(en_zh=(600.0, 1000.0)))
    assert far.outside == [("en-zh", "cp1"), ("en-zh", "cp2")], "two of three fit one pair, so the third is left out"
    assert far.mean_rtt_ms == best_levels(near).mean_rtt_ms


@given(
    st.lists(st.tuples(st.floats(1.0, 500.0), st.floats(1.0, 500.0)), min_size=1, max_size=3),
)
def test_cp2_is_faster_by_the_papers_ratio_and_no_other_pair_has_more_cells_within_the_range(
    spans: list[tuple[float, float]],
) -> None:
    worth_ms = worths(**{name: (start, start + width) for name, (start, width) in zip(("de_en", "fr_en", "en_zh"), spans)})  # noqa: B905
    grid = LEVELS_MS[::8]
    levels = best_levels(worth_ms, grid)
    assert 0.65 <= levels.mean_rtt_ms["cp2"] / levels.mean_rtt_ms["cp1"] <= 0.75
    within = len(worth_ms) - len(levels.outside)
    for slower in grid:
        for faster in (level for level in grid if 0.65 <= level / slower <= 0.75):
            at = {"cp1": slower, "cp2": faster}
            shares = (float((values > at[network]).mean()) for (_, network), values in worth_ms.items())
            assert sum(0.2 <= share <= 0.8 for share in shares) <= within


def test_a_share_counts_the_requests_worth_more_than_the_level() -> None:
    assert [share_sent(np.array([1.0, 2.0, 3.0, 4.0]), level) for level in (0.5, 2.0, 3.5, 4.0)] == [1.0, 0.5, 0.25, 0.0]


def test_the_oracle_of_a_run_sends_away_the_predicted_shares(tmp_path: Path) -> None:
    prepared = table_replay.prepare(write_stand_ins(tmp_path), requests=4000)
    assert prepared.plan is not None
    search = search_networks(prepared.plan, requests=4000)
    assert set(search.by_workload) == {"de-en", "fr-en", "en-zh"}
    levels = search.by_workload["fr-en"]
    plan = table_replay.at_levels(prepared.plan, "fr-en", levels)
    first = read_inputs(plan.scenario.model_copy(update={"replications": 1}), Path.cwd())  # the search uses replication 0 alone
    part = table_replay.replay("measured", [first], jobs=1, progress=None)
    sent = {network: share for (_, network), share in part.run.oracle_share.items()}
    assert sent == pytest.approx({network: levels.offloaded_share["fr-en", network] for network in ("cp1", "cp2")}, abs=0.002)
    assert {cell.network: 1e3 * cell.series.mean_s for cell in part.cells} == pytest.approx(levels.mean_rtt_ms)


def test_the_levels_of_the_shipped_scenario_leave_no_more_cells_outside_than_the_best() -> None:
    """Not to the digit: a profile that is measured again moves the best pair a little."""
    prepared = table_replay.prepare("@table1-measured")
    if prepared.plan is None or prepared.missing:
        pytest.skip(table_replay.lacking(prepared.missing))
    search = search_networks(prepared.plan)
    assert len(search.stated.outside) == len(search.common.outside)
    assert 0.65 <= search.stated.mean_rtt_ms["cp2"] / search.stated.mean_rtt_ms["cp1"] <= 0.75
    assert all(levels.outside == [] for levels in search.by_workload.values())
