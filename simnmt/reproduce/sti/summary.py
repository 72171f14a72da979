"""The reproduction in a few lines, for the top of its page."""

from __future__ import annotations

from simnmt.reproduce.sti import ways
from simnmt.reproduce.sti.reproduction import Reproduction
from simnmt.reproduce.sti.studies import NEEDS
from simnmt.reproduce.verdicts import counted


def summary(found: Reproduction) -> str:
    """A line for what planning gains on each model and device, then how many claims hold."""
    said = []
    for study in found.studies:
        for device in study.devices:
            own = ways.of(study, device, "STI")
            if not own:
                continue
            in_time, mixed = [], []
            for method in ("Load&Exec", "StdPL-32", "StdPL-2", "StdPL-6", "PreloadModel-32"):
                other = ways.of(study, device, method)
                gain, kept = ways.gain(study, own, other), ways.in_time(own, other)
                if gain is None:
                    continue
                gain_in_time = ways.gain(study, own, other, kept)
                points = "none" if gain_in_time is None else f"{ways.POINTS * gain_in_time.difference:+.1f}"
                in_time.append(f"{points} over {method} ({len(kept)})")
                mixed.append(f"{ways.POINTS * gain.difference:+.1f}")
            if in_time:
                deadlines_kept = f"{len(own) - len(ways.missed(own))} of {len(own)} kept"
                said.append(
                    f"{study.name}, costs of {device.name}: points where both are in time, and under how many of {len(own)} "
                    f"deadlines, {', '.join(in_time)}; late ones included {', '.join(mixed)}; {deadlines_kept}."
                )
    if not found.studies:
        said.append(f"Published figures alone; what is ours {NEEDS}.")
    return "\n".join([*said, f"{counted(found.claims)}."])
