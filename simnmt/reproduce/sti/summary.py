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
            parts = []
            for method in ("Load&Exec", "StdPL-32", "StdPL-2", "StdPL-6", "PreloadModel-32"):
                gain = ways.gain(study, own, ways.of(study, device, method))
                if gain is not None:
                    parts.append(f"{ways.POINTS * gain.difference:+.1f} over {method}")
            if parts:
                said.append(
                    f"{study.name}, costs of {device.name}: {100 * ways.accuracy(own):.1f} % on average over "
                    f"{len(own)} deadlines, in points {', '.join(parts)}."
                )
    if not found.studies:
        said.append(f"Published figures alone; what is ours {NEEDS}.")
    return "\n".join([*said, f"{counted(found.claims)}."])
