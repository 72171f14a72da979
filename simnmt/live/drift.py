"""Drift: whether the executions in a gateway's log still take as long as the device profiles predict.

Each execution of a device gives the logarithm of its measured over its predicted seconds, and `cusum.LevelTest` watches their
level. Executions of one sentence alone are predicted by the profile's plane and compared with the profile. Executions in
batches are predicted by encoder and steps at the greatest batch that the sentence was in, which overestimates them, so that
they are compared with their own first stretch. Reference executions in the log tell apart whether the whole box became slower,
or the model alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import expm1, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.base.configuration import end_tokens
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.live.cusum import BLOCK, Change, LevelTest, location, log_mean, robust_sd
from simnmt.profile.device_profile import DeviceProfile
from simnmt.results.live_log import LiveLog, LiveLogError, LiveReferences, LiveRequests

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Cause = Literal["box", "model", "unknown"]

LEAST_REFERENCES = 5
"""Reference executions before and after a change that tell its cause."""
REFERENCE_WANDER = 0.015
"""Standard error that the wander of the box gives the change of reference executions."""
Z = 1.96
"""Half width of a 95 % interval in standard errors."""
LINK_STRETCH = 200
LINK_CHANGE = 0.2
"""A link is reported if the median transfers of its first and last `LINK_STRETCH` requests differ by more than this share."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A lasting change of a device's execution times, from one moment of the log to the next alarm or to its end."""

    device: str
    batched: bool
    """True if executions in batches changed, False if those of a sentence alone."""
    slower: bool
    change: float
    """Relative change of the execution time, such as 0.1 for 10 % slower."""
    low: float
    high: float
    """95 % interval of the change; it ignores that a change is flagged because it is large."""
    against: Literal["profile", "earlier"]
    """What the change refers to: the device profile, or the stretch before."""
    since_line: int
    """Line of the log of the first changed request."""
    since_request: int
    since_s: float
    since_begin: bool
    """True if the log began like this: the profile does not describe this service."""
    line: int
    """Line of the log at which the change was certain."""
    request: int
    at_s: float
    requests: int
    """Executions of this kind from the change to the alarm."""
    cause: Cause
    """`box` if reference executions changed alike, `model` if they did not."""
    reference_change: float | None
    """Relative change of the reference executions; None with fewer than `LEAST_REFERENCES` on either side."""


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """What the log shows of one device."""

    device: str
    batched: bool
    executions: int
    """Executions that were judged, at least."""
    judged: bool
    """False if there were too few of them."""
    ratio: float | None
    """Measured over predicted seconds since the last change, as a ratio of means; None with too few executions."""
    residual_sd: float | None
    """Robust standard deviation of the logarithms."""
    neighbours: float | None
    """Correlation of neighbouring executions."""
    expected_delay: int | None
    """Expected executions until a change of 10 % is flagged."""


@dataclass(frozen=True, slots=True)
class LinkReport:
    """Change of the transfer times of one device, for information."""

    device: str
    first_s: float
    """Median of the first requests."""
    last_s: float


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Result of watching a log."""

    requests: int
    alarms: tuple[Alarm, ...]
    devices: tuple[DeviceReport, ...]
    links: tuple[LinkReport, ...]
    left_out: Mapping[str, int]
    """Requests that were not judged, by reason."""
    torn_lines: int
    unknown_events: int


@dataclass(slots=True)
class _Series:
    """The executions of one device, alone or batched."""

    device: str
    batched: bool
    test: LevelTest
    requests: list[LiveRequests] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)
    """Log ratios of measured to predicted seconds, piece by piece."""
    changes: list[Change] = field(default_factory=list)

    def rows(self) -> LiveRequests:
        if len(self.requests) != 1:
            self.requests = [LiveLog.joined([LiveLog(part, _EMPTY.references) for part in self.requests]).requests]
        return self.requests[0]

    def ratios(self) -> Floats:
        if len(self.values) != 1:
            self.values = [np.concatenate([np.empty(0), *self.values])]
        return self.values[0]


_EMPTY = LiveLog.joined([])


class DriftWatch:
    """Watches a log as it grows: `feed` returns new alarms, `report` everything so far."""

    def __init__(self, profiles: Mapping[str, DeviceProfile]) -> None:
        """`profiles`: the profile of each device to watch, by its name in the log."""
        self.profiles = dict(profiles)
        self._series: dict[tuple[str, bool], _Series] = {}
        self._references: list[LiveReferences] = []
        self._links: dict[str, list[Floats]] = {}
        self._left_out: dict[str, int] = {}
        self._requests = self._torn_lines = self._unknown_events = 0

    def feed(self, log: LiveLog) -> list[Alarm]:
        """Judge a further part of the log; return its alarms, first to last.

        Raises `LiveLogError` if the log names its devices, and none of the profiles is of one of them.
        """
        if log.begin is not None and not set(log.begin.devices) & set(self.profiles):
            what = f"the log has no device {format_list(self.profiles, 'or')}"
            raise LiveLogError(what, remedy=did_you_mean(next(iter(self.profiles), None), log.begin.devices))
        self._requests += len(log.requests)
        self._torn_lines += log.torn_lines
        self._unknown_events += log.unknown_events
        self._references.append(log.references)
        done = log.requests.outcome == "done"
        for outcome, many in zip(*np.unique(log.requests.outcome[~done], return_counts=True), strict=True):
            self._leave_out(f"outcome {outcome}", int(many))
        alarms = list[Alarm]()
        for device in np.unique(log.requests.device[done]).tolist():
            rows = log.requests.at(done & (log.requests.device == device))
            transfer_s = rows.transfer_s[rows.transfer_s > 0.0]
            self._links.setdefault(device, []).append(transfer_s)
            if device not in self.profiles:
                self._leave_out(f"device {device} without a profile", len(rows))
                continue
            for batched in (False, True):
                chosen = rows.at((rows.batch > 1) == batched)
                if len(chosen):
                    alarms += self._judge(device, batched, chosen)
        return sorted(alarms, key=lambda alarm: alarm.line)

    def executions(self, device: str, *, since_line: int = 1) -> LiveRequests:
        """Return the judged executions of single sentences of a device from a line of the log on."""
        series = self._series.get((device, False))
        if series is None:
            return _EMPTY.requests
        rows = series.rows()
        return rows.at(rows.line >= since_line)

    def report(self) -> DriftReport:
        """Return all alarms, their sizes estimated from everything that was read, and the state of each device."""
        series = [self._series[key] for key in sorted(self._series)]
        alarms = [self._alarm(one, number) for one in series for number in range(len(one.changes))]
        return DriftReport(
            self._requests,
            tuple(sorted(alarms, key=lambda alarm: alarm.line)),
            tuple(map(_device_report, series)),
            tuple(self._link_reports()),
            dict(self._left_out),
            self._torn_lines,
            self._unknown_events,
        )

    def _judge(self, device: str, batched: bool, rows: LiveRequests) -> Iterator[Alarm]:
        profile = self.profiles[device]
        if batched and (profile.step is None or profile.encoder is None):
            self._leave_out(f"batched on {device}, whose profile has no costs of steps", len(rows))
            return
        expected_s = predicted_s(profile, rows)
        src_len, tgt_len = lengths_of_profile(profile, rows)
        outside = profile.outside(src_len.astype(np.int64), tgt_len.astype(np.int64)) & (not batched)
        usable = (expected_s > 0.0) & (rows.execution_s > 0.0) & ~outside
        if not usable.all():
            self._leave_out(f"lengths outside the range of {device}'s profile", int(np.count_nonzero(~usable)))
            rows, expected_s = rows.at(usable), expected_s[usable]
        key = (device, batched)
        if key not in self._series:
            self._series[key] = _Series(device, batched, LevelTest(None if batched else 0.0))
        series = self._series[key]
        ratios = np.log(rows.execution_s / expected_s)
        series.requests.append(rows)
        series.values.append(ratios)
        for change in series.test.feed(ratios):
            series.changes.append(change)
            yield self._alarm(series, len(series.changes) - 1)

    def _alarm(self, series: _Series, number: int) -> Alarm:
        """Return one alarm of a series, its size estimated from the values up to the next change."""
        change, rows, ratios = series.changes[number], series.rows(), series.ratios()
        end = series.changes[number + 1].start if number + 1 < len(series.changes) else len(rows)
        begin = series.changes[number - 1].alarm + 1 if number else 0
        after = ratios[change.start : end]
        shift = location(after, change.noise.sd) - change.level
        half = Z * sqrt(change.noise.long_run_variance / after.size)
        against_profile = number == 0 and not series.batched
        moments_s = float(rows.ingress_s[begin]), float(rows.ingress_s[change.start]), float(rows.egress_s[end - 1])
        cause, reference_change = self._cause(series.device, shift, *moments_s)
        return Alarm(
            device=series.device,
            batched=series.batched,
            slower=change.sign > 0,
            change=expm1(shift),
            low=expm1(shift - half),
            high=expm1(shift + half),
            against="profile" if against_profile else "earlier",
            since_line=int(rows.line[change.start]),
            since_request=int(rows.request[change.start]),
            since_s=moments_s[1],
            since_begin=against_profile and change.start < BLOCK,
            line=int(rows.line[change.alarm]),
            request=int(rows.request[change.alarm]),
            at_s=float(rows.egress_s[change.alarm]),
            requests=change.alarm - change.start + 1,
            cause=cause,
            reference_change=reference_change,
        )

    def _cause(self, device: str, shift: float, begin_s: float, since_s: float, until_s: float) -> tuple[Cause, float | None]:
        """Return the cause of a change, and the relative change of the reference executions."""
        references = LiveLog.joined([LiveLog(_EMPTY.requests, part) for part in self._references]).references
        chosen = (references.device == device) & (references.execution_s > 0.0)
        at_s, logs = references.at_s[chosen], np.log(references.execution_s[chosen])
        before, after = logs[(at_s >= begin_s) & (at_s < since_s)], logs[(at_s >= since_s) & (at_s <= until_s)]
        if min(before.size, after.size) < LEAST_REFERENCES:
            return "unknown", None
        # A median's variance is about pi / 2 times that of a mean.
        error = sqrt(
            0.5 * np.pi * (robust_sd(before) ** 2 / before.size + robust_sd(after) ** 2 / after.size) + REFERENCE_WANDER**2
        )
        moved = float(np.median(after) - np.median(before))
        excess = (moved - 0.5 * shift) * np.sign(shift)
        cause: Cause = "unknown" if abs(excess) < error else "box" if excess > 0.0 else "model"
        return cause, expm1(moved)

    def _link_reports(self) -> Iterator[LinkReport]:
        for device, parts in sorted(self._links.items()):
            transfer_s = np.concatenate(parts)
            if transfer_s.size >= 2 * LINK_STRETCH:
                first_s, last_s = (float(np.median(part)) for part in (transfer_s[:LINK_STRETCH], transfer_s[-LINK_STRETCH:]))
                if abs(last_s / first_s - 1.0) > LINK_CHANGE:
                    yield LinkReport(device, first_s, last_s)

    def _leave_out(self, reason: str, many: int) -> None:
        if many:
            self._left_out[reason] = self._left_out.get(reason, 0) + many


def lengths_of_profile(profile: DeviceProfile, rows: LiveRequests) -> tuple[Floats, Floats]:
    """Return the source and target lengths as the profile counts them: a log counts the end of the sentence on both sides."""
    src_end, tgt_end = end_tokens(profile.length_unit.end_of_sentence)
    return np.maximum(rows.src_len - (1 - src_end), 0.0), np.maximum(rows.tgt_len - (1 - tgt_end), 0.0)


def predicted_s(profile: DeviceProfile, rows: LiveRequests) -> Floats:
    """Return the seconds that the profile predicts for each execution, shape (requests,); a batch never shrinks.

    Raises `ProfileError` for executions in batches if the profile has no costs of steps.
    """
    # A log counts the steps of a beam beyond its best output too, like timings of forced lengths.
    forced = profile.of_forced_lengths
    expected_s = forced.plane.seconds(*lengths_of_profile(profile, rows))
    batched = rows.batch > 1
    if batched.any():
        cost = forced.decoding_cost
        steps_s = cost.mean_over_usual * cost.step.sum_s(rows.batch, 0, rows.tgt_len - 1.0)
        gaps_s = (cost.gap_s_fixed + cost.gap_s_per_sentence * rows.batch) * rows.tgt_len
        together_s = cost.encoder.seconds(rows.batch, rows.src_len) + steps_s + gaps_s + cost.refill_s(1) + cost.leave_s
        expected_s = np.where(batched, together_s, expected_s)
    return expected_s


def _device_report(series: _Series) -> DeviceReport:
    rows, ratios, noise = series.rows(), series.ratios(), series.test.noise
    since = series.changes[-1].start if series.changes else 0
    recent = ratios[since:]
    return DeviceReport(
        device=series.device,
        batched=series.batched,
        executions=len(rows),
        judged=noise is not None,
        ratio=float(np.exp(location(recent, noise.sd) + log_mean(noise.sd))) if noise is not None else None,
        residual_sd=None if noise is None else noise.sd,
        neighbours=None if noise is None else noise.neighbours,
        expected_delay=None if noise is None else noise.delay(),
    )
