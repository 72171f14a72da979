"""What this box can measure, what it cannot, and why, with a remedy each. Needs neither torch nor numpy."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from simnmt.calibrate import busy, doctor_backends, doctor_box
from simnmt.calibrate.box import BoxDescription, describe
from simnmt.calibrate.box.tree import Tree
from simnmt.calibrate.finding import Finding


@dataclass(frozen=True, slots=True)
class Examination:
    """The box and what was found."""

    box: BoxDescription
    findings: tuple[Finding, ...]

    def as_json(self) -> dict[str, Any]:
        """As `simnmt doctor --json` prints it."""
        return {"box": self.box.as_json(), "findings": [asdict(finding) for finding in self.findings]}


def examine(root: str | os.PathLike[str] = "/", folder: str | os.PathLike[str] = ".") -> Examination:
    """Look at the box under `root`; `folder` is where disk reads would be measured. Never raises for what is missing.

    Another root than `/` is a recorded tree: libraries, GPUs and disks then do not belong to it and are left out.
    """
    # The load first: what loads the libraries is a load too. What runs elsewhere cannot be watched.
    tree = Tree.at(root)
    others_cpus = busy.others_cpus() if tree.is_this_box else None
    box = describe(root)
    findings = [
        *doctor_box.threads(box),
        *doctor_box.simd(box),
        *doctor_box.memory(box),
        *doctor_box.clock(box, tree),
        *doctor_box.load(box, others_cpus),
        *doctor_box.shared(box),
    ]
    if tree.is_this_box:
        findings += [*doctor_backends.torch_finding(box), *doctor_backends.ctranslate2_finding(box)]
        findings += doctor_backends.gpu_finding(box)
    devices = ["cpu", *(f"cuda:{gpu.index}" for gpu in box.gpus if "torch" in gpu.seen_by)]
    findings += [finding for device in devices for finding in doctor_box.energy(device, root)]
    if tree.is_this_box:
        findings += doctor_box.disk(folder)
    return Examination(box, tuple(findings))
