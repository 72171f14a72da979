"""Drift in a gateway's log: slowdowns are found in time, noise and wander are not, and the cause is told by references."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from simnmt.live.cusum import REFERENCE, RUN_LENGTH, SHIFT, WANDER, LevelTest, Noise
from simnmt.live.drift import DriftReport, DriftWatch
from simnmt.live.drift_text import format_alarm
from simnmt.profile import DeviceProfile, checked_profile
from simnmt.profile.device_profile import ValidRange
from simnmt.results.live_log import LiveLogError, LiveLogReader, Record, RequestRecord, format_record, read_live_log
from tests.live.made_log import PLANES, Box, after, log_factors, made_records
from tests.profile.made_profile import whole_profile

Make = Callable[..., DeviceProfile]


@pytest.fixture
def watch(tmp_path: Path, make_profile: Make) -> Callable[..., DriftReport]:
    """Watches records; by default with the true profiles of both devices."""

    def run(records: list[Record], profiles: dict[str, DeviceProfile] | None = None) -> DriftReport:
        path = tmp_path / "log"
        path.write_text("".join(map(format_record, records)))
        watched = DriftWatch(profiles or {name: make_profile(plane, name=name) for name, plane in PLANES.items()})
        watched.feed(read_live_log(path))
        return watched.report()

    return run


def test_a_lasting_slowdown_of_ten_percent_is_flagged_within_500_requests(watch: Callable[..., DriftReport]) -> None:
    report = watch(made_records(1_600, factor=after(800, 1.1)))
    (alarm,) = report.alarms
    assert (alarm.device, alarm.slower, alarm.against, alarm.since_begin) == ("gateway", True, "profile", False)
    assert 800 < alarm.request <= 1_300
    assert abs(alarm.since_request - 800) < 200
    assert alarm.low < 0.10 < alarm.high
    assert alarm.high - alarm.low < 0.08
    assert f"certain after {alarm.request - alarm.since_request + 1} executions, at request {alarm.request}" in format_alarm(
        alarm
    )
    assert report.devices[0].ratio == pytest.approx(1.1, abs=0.03)


def alarms(seed: int, box: Box, change: int, requests: int) -> list[int]:
    values = log_factors(np.random.default_rng(seed), requests, box)
    values[change:] += SHIFT
    return [shift.alarm for shift in LevelTest().feed(values)]


BOXES = [Box(0.1), Box(0.2), Box(0.15, "t3"), Box(0.15, "outliers"), Box(0.25, wander_sd=0.02, wander_requests=20.0)]


@pytest.mark.parametrize("box", BOXES, ids=str)
def test_slowdowns_are_found_and_nothing_else(box: Box) -> None:
    """The campaign holds the same against 1,000 logs of each box."""
    slow = [alarms(seed, box, 700, 1_200) for seed in range(60)]
    assert sum(bool(alarms) and alarms[0] >= 700 for alarms in slow) >= 56
    assert sum(bool(alarms(seed, box, 2_000, 2_000)) for seed in range(60)) <= 2


def test_false_alarms_are_as_rare_as_the_formula_promises() -> None:
    """Independent Gaussian values of exactly the design's variance, where the formula holds best."""
    noise = Noise(0.2, 0.04, 0.0)
    k, threshold = SHIFT / 2, noise.threshold(SHIFT / 2)
    u = 2.0 * k * threshold / noise.long_run_variance
    assert noise.long_run_variance / (2.0 * k * k) * (np.exp(u) - u - 1.0) == pytest.approx(RUN_LENGTH, rel=1e-6)
    walk = np.cumsum(np.random.default_rng(5).normal(0.0, 0.2, (1_000, 2_000)) - k, axis=1)
    above = walk - np.minimum(np.minimum.accumulate(walk, axis=1), 0.0)
    assert (above.max(axis=1) > threshold).mean() <= 0.01


def test_pieces_of_a_log_give_the_alarms_of_the_whole() -> None:
    values = log_factors(np.random.default_rng(1), 3_000, Box())
    values[900:1_700] += 2.0 * SHIFT
    whole = list(LevelTest().feed(values))
    test, random = LevelTest(), np.random.default_rng(2)
    cuts = np.sort(random.integers(0, values.size, 150))
    pieces = [change for piece in np.split(values, cuts) for change in test.feed(piece)]
    assert [(change.start, change.alarm, change.sign) for change in pieces] == [
        (change.start, change.alarm, change.sign) for change in whole
    ]
    assert [change.sign for change in whole] == [1, -1]


def test_a_change_within_the_reference_stretch_does_not_hide_itself() -> None:
    assert sum(bool(alarms(seed, Box(0.15), 120, 620)) for seed in range(40)) >= 38


def test_outliers_alone_are_no_change_and_a_threefold_slowdown_is_one() -> None:
    values = log_factors(np.random.default_rng(3), 2_000, Box(0.1))
    values[300::25] += 3.0
    assert list(LevelTest().feed(values)) == []
    values[1_000:] += np.log(3.0)
    (change, *_) = LevelTest().feed(values)
    assert 1_000 <= change.alarm <= 1_400


def test_strong_wander_raises_the_threshold() -> None:
    random = np.random.default_rng(4)
    calm, rough = (Noise.of(log_factors(random, REFERENCE, Box(0.1, wander_sd=sd))) for sd in (0.0, 0.15))
    assert calm.long_run_variance == pytest.approx(WANDER + 0.01, abs=0.003)
    assert rough.long_run_variance > 2.0 * calm.long_run_variance
    assert rough.delay() > calm.delay()


@pytest.mark.parametrize(("reference", "cause"), [(1.2, "box"), (1.0, "model")])
def test_references_tell_the_box_from_the_model(watch: Callable[..., DriftReport], reference: float, cause: str) -> None:
    slow = after(700, 1.2)
    report = watch(made_records(1_400, factor=slow, reference_factor=after(700, reference)))
    (alarm,) = report.alarms
    assert alarm.cause == cause
    assert alarm.reference_change == pytest.approx(reference - 1.0, abs=0.04)


def test_without_references_the_cause_is_unknown(watch: Callable[..., DriftReport]) -> None:
    (alarm,) = watch(made_records(1_200, factor=after(600, 1.2))).alarms
    assert (alarm.cause, alarm.reference_change) == ("unknown", None)


def test_a_wrong_profile_is_flagged_from_the_beginning(watch: Callable[..., DriftReport], make_profile: Make) -> None:
    wrong = make_profile(tuple(part / 1.3 for part in PLANES["gateway"]), name="gateway")
    report = watch(made_records(1_500), {"gateway": wrong})
    (alarm,) = report.alarms
    assert (alarm.since_begin, alarm.against) == (True, "profile")
    assert alarm.low < 0.3 < alarm.high


def test_a_box_that_recovers_gives_two_alarms(watch: Callable[..., DriftReport]) -> None:
    report = watch(made_records(3_000, factor=lambda at: 1.25 if 500 <= at < 1_500 else 1.0))
    assert [(alarm.slower, alarm.against) for alarm in report.alarms] == [(True, "profile"), (False, "earlier")]
    assert report.alarms[1].change == pytest.approx(1.0 / 1.25 - 1.0, abs=0.04)


def test_only_requests_that_are_done_on_a_known_device_count(watch: Callable[..., DriftReport], make_profile: Make) -> None:
    records = made_records(600)
    for at, outcome in ((10, "fallback"), (20, "timeout"), (30, "refused"), (40, "failed")):
        record = records[at]
        assert isinstance(record, RequestRecord)
        slow = None if outcome in ("refused", "failed") else 1e3
        records[at] = record._replace(outcome=outcome, execution_s=slow)
    far = records[50]
    assert isinstance(far, RequestRecord)
    records[50] = far._replace(src_len=5_000)
    report = watch([*records, *made_records(5, device="cloud")[1:]], {"gateway": make_profile(PLANES["gateway"])})
    assert report.alarms == ()
    assert report.left_out == {
        "outcome fallback": 1,
        "outcome timeout": 1,
        "outcome refused": 1,
        "outcome failed": 1,
        "lengths outside the range of gateway's profile": 1,
        "device cloud without a profile": 5,
    }
    assert report.devices[0].executions == 595


@pytest.mark.parametrize("counted", ["none", "source", "target", "both"])
def test_lengths_are_compared_as_the_profile_counts_them(
    watch: Callable[..., DriftReport], make_profile: Make, counted: str
) -> None:
    """A log counts the end of the sentence on both sides; the text of a calibration is within the range of its profile."""
    plain = make_profile(PLANES["gateway"])
    narrow = plain.model_copy(update={"valid_range": ValidRange(src_len=(3, 59), tgt_len=(1, 80))})
    report = watch(made_records(600, box=Box(0.01, wander_sd=0.0)), {"gateway": narrow.counting(counted)})  # type: ignore[arg-type]
    assert report.left_out == {}
    assert report.devices[0].ratio == pytest.approx(1.0, abs=0.003)


def test_batched_executions_are_compared_with_their_own_beginning(
    watch: Callable[..., DriftReport], make_profile: Make
) -> None:
    plain = watch(made_records(400, batch=8))
    assert plain.devices == ()
    assert plain.left_out == {"batched on gateway, whose profile has no costs of steps": 400}
    with_steps = checked_profile(whole_profile())
    report = watch(made_records(1_600, batch=8, factor=after(800, 1.25)), {"gateway": with_steps})
    (alarm,) = report.alarms
    assert (alarm.batched, alarm.against, alarm.slower) == (True, "earlier", True)
    assert 800 < alarm.request < 1_300


def test_few_requests_give_no_verdict(watch: Callable[..., DriftReport]) -> None:
    for many in (0, 1, REFERENCE - 1):
        report = watch(made_records(many, factor=lambda at: 3.0))
        assert report.alarms == ()
        assert not any(device.judged for device in report.devices)


def test_a_log_of_other_devices_is_refused(watch: Callable[..., DriftReport], make_profile: Make) -> None:
    with pytest.raises(LiveLogError, match=r"the log has no device server \(known: gateway, cloud\)"):
        watch(made_records(3), {"server": make_profile(PLANES["cloud"])})


def test_a_slower_link_is_reported_for_information(watch: Callable[..., DriftReport]) -> None:
    records = [
        record._replace(transfer_s=0.03) if isinstance(record, RequestRecord) and record.request > 500 else record
        for record in made_records(1_000, device="cloud")
    ]
    report = watch(records)
    assert report.alarms == ()
    (link,) = report.links
    assert (link.device, link.first_s, link.last_s) == ("cloud", 0.011, 0.03)


def test_a_followed_log_gives_the_report_of_the_whole(tmp_path: Path, make_profile: Make) -> None:
    text = "".join(map(format_record, made_records(1_500, factor=after(600, 1.2), reference_factor=after(600, 1.0))))
    path = tmp_path / "log"
    path.write_text(text)
    profiles = {"gateway": make_profile(PLANES["gateway"])}
    whole, grown = DriftWatch(profiles), DriftWatch(profiles)
    whole.feed(read_live_log(path))
    path.write_text("")
    reader, early = LiveLogReader(path), []
    for begin in range(0, len(text), 10_007):
        with path.open("a") as file:
            file.write(text[begin : begin + 10_007])
        early += grown.feed(reader.read())
    grown.feed(reader.finish())
    assert grown.report() == whole.report()
    assert [alarm.line for alarm in early] == [alarm.line for alarm in whole.report().alarms]
