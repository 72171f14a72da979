"""A profile refitted in service: the true plane is recovered, collinear lengths change the level alone, steps follow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.live.refit import LEAST_EXECUTIONS, refit
from simnmt.profile import DeviceProfile, ProfileError, checked_profile, profile_doubts
from simnmt.results.live_log import LiveRequests, Record, format_record, read_live_log
from tests.live.made_log import PLANES, Box, made_records
from tests.profile.made_profile import whole_profile

SRC, TGT = (axis.ravel() for axis in np.meshgrid([5, 15, 40], [5, 15, 40]))


@pytest.fixture
def rows(tmp_path: Path) -> Callable[[list[Record]], LiveRequests]:
    """Returns the requests of records."""

    def read(records: list[Record]) -> LiveRequests:
        path = tmp_path / "log"
        path.write_text("".join(map(format_record, records)))
        return read_live_log(path).requests

    return read


def test_the_plane_of_the_requests_is_recovered(rows: Callable[..., LiveRequests], make_profile: Callable[..., Any]) -> None:
    true = (0.004, 0.005, 0.030)
    profile = make_profile(PLANES["gateway"])
    result = refit(profile, rows(made_records(3_000, planes=lambda at: true)), log="log")
    assert result.shape == "plane"
    predicted = result.profile.plane.seconds(SRC, TGT)
    measured = true[0] * SRC + true[1] * TGT + true[2]
    assert np.abs(predicted / measured - 1.0).max() < 0.06
    assert result.profile.residual.relative_sd == pytest.approx(0.155, abs=0.02)
    assert result.heldout_error < result.heldout_error_before
    assert result.profile.execution.kind == "measured"


def test_a_slower_box_keeps_the_shape_of_its_plane(rows: Callable[..., LiveRequests], make_profile: Callable[..., Any]) -> None:
    profile = make_profile(PLANES["gateway"])
    requests = rows(made_records(1_000, factor=lambda at: 1.4, box=Box(0.25)))
    result = refit(profile, requests, log="service.jsonl")
    assert (result.shape, result.level) == ("level", pytest.approx(1.4, rel=0.03))
    assert result.profile.plane == profile.plane.times(result.level)
    assert result.profile.valid_range == profile.valid_range
    source = result.profile.provenance.source
    assert source.startswith("measured in service: the plane rescaled from 1000 executions in lines 2 to 1001 of service.jsonl")
    assert source.endswith("(made up)")


def test_collinear_lengths_change_the_level_alone(rows: Callable[..., LiveRequests], make_profile: Callable[..., Any]) -> None:
    profile = make_profile(PLANES["gateway"])
    requests = rows(made_records(2_000, planes=lambda at: (0.009, 0.0, 0.02)))
    equal = LiveRequests(**{name: getattr(requests, name) for name in LiveRequests.__slots__} | {"tgt_len": requests.src_len})
    result = refit(profile, equal, log="log")
    assert result.shape == "level"
    assert result.profile.execution.fit.collinear


def test_steps_and_encoder_follow_the_level_and_warnings_stay(rows: Callable[..., LiveRequests]) -> None:
    content = whole_profile()
    content["conditions"]["busy"] = True
    profile = checked_profile(content)
    plane = profile.plane
    true = tuple(1.3 * part for part in (plane.s_per_src_token, plane.s_per_tgt_token, plane.s_fixed))
    new = refit(profile, rows(made_records(2_000, planes=lambda at: true)), log="log").profile
    before, now = (one.decoding_cost.solo_s(SRC, TGT) for one in (profile, new))
    assert now / before == pytest.approx(1.3, rel=0.03)
    assert new.step is not None
    assert (new.step.kind, new.reconciliation) == ("inferred", None)
    assert any("the box was busy" in doubt.message for doubt in profile_doubts(new))


def test_a_stopped_process_does_not_slow_the_profile(
    rows: Callable[..., LiveRequests], make_profile: Callable[..., Any]
) -> None:
    requests = rows(made_records(500, box=Box(0.1)))
    requests.execution_s[7] = 900.0
    assert refit(make_profile(PLANES["gateway"]), requests, log="log").level == pytest.approx(1.0, abs=0.03)


def test_too_few_executions_are_refused(rows: Callable[..., LiveRequests], make_profile: Callable[..., Any]) -> None:
    with pytest.raises(ProfileError, match=f"99 executions .* of {LEAST_EXECUTIONS}"):
        refit(make_profile(PLANES["gateway"]), rows(made_records(99)), log="log")


def test_a_refitted_profile_gives_no_alarm_on_its_own_log(
    rows: Callable[..., LiveRequests], make_profile: Callable[..., Any], tmp_path: Path
) -> None:
    from simnmt.live.drift import DriftWatch

    profile: DeviceProfile = make_profile(PLANES["gateway"])
    requests = rows(made_records(1_500, factor=lambda at: 1.25))
    new = refit(profile, requests, log="log").profile
    for one, many in ((profile, 1), (new, 0)):
        watched = DriftWatch({"gateway": one})
        watched.feed(read_live_log(tmp_path / "log"))
        assert len(watched.report().alarms) == many
