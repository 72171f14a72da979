"""Outages of links of all forms, and what of them is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from simnmt.network.configuration import NetworkConfiguration, load_network
from simnmt.network.down_times import DownTimes
from simnmt.network.errors import TraceError

LOST = "time_s,rtt_ms\n0,50\n1,\n2,\n3,60\n4,\n5,55\n6,\n"
"""Samples are lost from 1 to 3, from 4 to 5 and from 6 to the end of the lap at 7."""


def outages_of(folder: Path, *, begin_s: float = 0.0, replication: int = 0, **keys: Any) -> DownTimes:
    (folder / "lost.csv").write_text(LOST)
    config = NetworkConfiguration.model_validate({"rtt": "lost.csv", **keys})
    link = load_network(config, folder, "n").link
    assert link.outages is not None
    return DownTimes(link.outages.spans((1, replication, "n"), link.rtt, begin_s))


def test_lost_samples_of_a_trace_are_outages_lap_after_lap(tmp_path: Path) -> None:
    of_trace = outages_of(tmp_path, outages="trace")
    down = [at_s for at_s in range(14) if of_trace.is_down(at_s + 0.5)]
    assert down == [1, 2, 4, 6, 8, 9, 11, 13]
    shifted = outages_of(tmp_path, outages="trace", begin_s=3.0)
    assert [at_s for at_s in range(7) if shifted.is_down(at_s + 0.5)] == [1, 3, 5, 6]


def test_listed_outages_are_at_their_times(tmp_path: Path) -> None:
    listed = outages_of(tmp_path, outages={"intervals_s": [[1, 2], [5, 5.5]]})
    assert [listed.is_down(at_s) for at_s in (0.9, 1.0, 1.9, 2.0, 5.2, 5.5)] == [False, True, True, False, True, False]


def test_all_replications_have_their_own_outages_and_all_policies_the_same(tmp_path: Path) -> None:
    outages = {"mean_between_s": 5.0, "mean_duration_s": 5.0}
    first, again, other = (outages_of(tmp_path, outages=outages, replication=number) for number in (0, 0, 1))
    at_s = [float(moment) for moment in range(100)]
    assert [first.is_down(moment) for moment in at_s] == [again.is_down(moment) for moment in reversed(at_s)][::-1]
    assert [first.is_down(moment) for moment in at_s] != [other.is_down(moment) for moment in at_s]


def test_a_trace_without_lost_samples_has_no_outages() -> None:
    config = NetworkConfiguration.model_validate({"rtt": {"constant_ms": 50}, "outages": "trace"})
    with pytest.raises(TraceError, match="no sample in it is lost, so it has no outages"):
        load_network(config, Path(), "n")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"outages": "sometimes"}, "give trace, "),
        ({"outages": {"intervals_s": [[1, 3], [2, 4]]}}, "begins before the end of"),
        ({"outages": {"mean_between_s": 1.0}}, "mean_duration_s"),
        ({"outages": {"mean_between_s": -1.0, "mean_duration_s": 1.0}}, "greater than or equal to 0.001"),
    ],
)
def test_faults_that_are_none_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        NetworkConfiguration.model_validate({"rtt": {"constant_ms": 50}, **keys})
