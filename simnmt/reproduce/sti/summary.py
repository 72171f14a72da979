"""The reproduction in a few lines, for the top of its page."""

from __future__ import annotations

from simnmt.reproduce.sti import ways
from simnmt.reproduce.sti.reproduction import Reproduction
from simnmt.reproduce.sti.studies import NEEDS
from simnmt.reproduce.verdicts import counted


def summary(found: Reproduction) -> str:
    """A line for what planning gains on each model and device, then how many claims hold."""
    lines = []
    for study in found.studies:
        for device in study.devices:
            planned = ways.of(study, device, "STI")
            if not planned:
                continue
            in_time, gains_all_deadlines = [], []
            for method in ("Load&Exec", "StdPL-32", "StdPL-2", "StdPL-6", "PreloadModel-32"):
                other = ways.of(study, device, method)
                gain, kept = ways.gain(study, planned, other), ways.in_time(planned, other)
                if gain is None:
                    continue
                gain_in_time = ways.gain(study, planned, other, kept)
                points = "none" if gain_in_time is None else f"{ways.POINTS * gain_in_time.difference:+.1f}"
                in_time.append(f"{points} over {method} ({len(kept)})")
                gains_all_deadlines.append(f"{ways.POINTS * gain.difference:+.1f}")
            if in_time:
                count = len(planned)
                lines.append(
                    f"{study.name}, costs of {device.name}: points where both are in time, and under how many of {count} "
                    f"deadlines, {', '.join(in_time)}; late answers included {', '.join(gains_all_deadlines)}; "
                    f"{count - len(ways.missed(planned))} of {count} kept."
                )
    if not found.studies:
        lines.append(f"Published figures alone; what is ours {NEEDS}.")
    return "\n".join([*lines, f"{counted(found.claims)}."])
