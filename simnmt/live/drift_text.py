"""Drift as text and as JSON: alarms, devices, links, and refitted profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from simnmt.base.text_tables import format_table
from simnmt.live.drift import Alarm, DeviceReport, DriftReport
from simnmt.live.refit import Refit
from simnmt.results.number_text import digits, duration, percent

_CAUSES = {
    "box": "its reference executions changed by {change}: the whole box changed",
    "model": "its reference executions changed by {change}: the box did not, look at the model and its settings",
}


def format_alarm(alarm: Alarm) -> str:
    """Return one line about an alarm."""
    kind = f"{alarm.device}, batched" if alarm.batched else alarm.device
    direction = "slower" if alarm.slower else "faster"
    size = f"{percent(abs(alarm.change))} {direction}, 95 % interval {_signed(alarm.low)} to {_signed(alarm.high)}"
    if alarm.since_begin:
        what = f"{kind} is {size}, than its profile since the log begins"
    else:
        base = "than its profile" if alarm.against == "profile" else "than before"
        what = f"{kind} is {size}, {base} since request {alarm.since_request} (line {alarm.since_line})"
    parts = [what, f"certain after {alarm.requests} executions, at request {alarm.request}"]
    if alarm.reference_change is not None:
        moved = _signed(alarm.reference_change)
        unknown = f"its reference executions changed by {moved}, which leaves the cause open"
        parts.append(_CAUSES[alarm.cause].format(change=moved) if alarm.cause != "unknown" else unknown)
    return "; ".join(parts)


def format_report(report: DriftReport) -> str:
    """Return the text of a report: devices, alarms, links, and what was not judged."""
    lines = []
    if report.devices:
        header = ["device", "executions", "measured / predicted", "residual sd", "neighbours", "10 % found after"]
        lines.append(format_table(header, map(_device_row, report.devices)))
    lines.append("")
    lines += [f"drift: {format_alarm(alarm)}" for alarm in report.alarms]
    if any(alarm.since_begin for alarm in report.alarms):
        lines.append(
            "the profile describes another service than this one: refit it once with --out, and watch with the new one"
        )
    if not report.alarms:
        judged = any(device.judged for device in report.devices)
        lines.append("no drift" if judged else "no verdict: too few executions (240 of one device are needed)")
    for link in report.links:
        change = f"{duration(link.first_s)} at first, {duration(link.last_s)} at last"
        lines.append(f"for information: median transfer of {link.device} {change}")
    for reason, many in report.left_out.items():
        lines.append(f"not judged: {many:,} {'request' if many == 1 else 'requests'} ({reason})")
    if report.torn_lines:
        lines.append("the last line was half written and is left out")
    if report.unknown_events:
        lines.append(f"{report.unknown_events:,} lines of events that this version does not know")
    return "\n".join(lines).strip("\n")


def format_refit(path: str, result: Refit, *, of_whole_log: bool) -> str:
    """Return one line about a new profile; `of_whole_log`: False if the log begins with requests that took other times."""
    how = "a new plane" if result.shape == "plane" else "the plane rescaled, its shape kept"
    errors = f"held-out error {percent(result.heldout_error)} (before {percent(result.heldout_error_before)})"
    level = f"{digits(result.level)} times the seconds before, {result.executions:,} executions"
    line = f"{path}: {how}, {level}, {errors}"
    return line if of_whole_log else f"{line}; start a new log for it, since this one also has the requests before the change"


def report_document(report: DriftReport, refits: Mapping[str, Refit]) -> dict[str, Any]:
    """Return a report and the refits by path as a JSON document in SI units."""
    written = {path: {key: getattr(result, key) for key in _REFIT_KEYS} for path, result in refits.items()}
    return {"drift": bool(report.alarms), **asdict(report), "profiles": written}


_REFIT_KEYS = ("executions", "shape", "level", "heldout_error", "heldout_error_before")


def _device_row(device: DeviceReport) -> list[str]:
    name = f"{device.device}, batched" if device.batched else device.device
    cells = [name, f"{device.executions:,}"]
    if device.ratio is None or device.residual_sd is None or device.neighbours is None:
        return [*cells, "too few", "", "", ""]
    return [
        *cells,
        f"{device.ratio:.3f}",
        percent(device.residual_sd),
        f"{device.neighbours:.2f}",
        f"{device.expected_delay:,}",
    ]


def _signed(share: float) -> str:
    return percent(share, signed=True)
