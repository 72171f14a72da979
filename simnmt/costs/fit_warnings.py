"""What a reader must be warned of in the fits of a profile, one sentence each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simnmt.costs.decoder_words import against_step

if TYPE_CHECKING:
    from simnmt.costs.profile import DeviceProfile
    from simnmt.costs.sti_block import StiBlock

LEVEL_BOUND = 1.10
"""On a box that is left alone the mean lies a few hundredths above the least of a few repeats."""
DISTURBED_BOUND = 0.10
DISK_BOUND = 0.10
STI_BOUND = 0.10
STI_R2_BOUND = 0.90
"""Of the line through reads by bits (STI-07)."""
DECODER_BOUND = 1.25
"""Either way: steps of the same decoder, measured twice within an hour on a box that is left alone, differ by less."""


def fit_warnings(profile: DeviceProfile) -> list[str]:
    """Of all blocks of a measured profile."""
    said = execution_warnings(profile.execution.fit) if profile.execution.kind == "measured" else []
    said += [] if profile.disk is None else disk_warnings(profile.disk.heldout_error)
    said += [] if profile.sti is None else sti_warnings(profile.sti)
    return said + decoder_warnings(against_step(profile))


def execution_warnings(fit: Mapping[str, Any]) -> list[str]:
    """Of `execution.fit`: where the mean lies more than a tenth above the undisturbed time, or much was disturbed."""
    level, disturbed = fit.get("level"), fit.get("disturbed_share")
    said = []
    if level is not None and level > LEVEL_BOUND:
        said.append(
            f"the mean of the executions lies {100 * (level - 1):.0f} % above their undisturbed time: the box was busy, or its "
            "times are unsteady (measure again on a quiet box)"
        )
    if disturbed is not None and disturbed > DISTURBED_BOUND:
        said.append(
            f"{100 * disturbed:.0f} % of the executions were disturbed and count neither for the plane's level nor for its "
            "spread (measure again on a quiet box)"
        )
    return said


def disk_warnings(heldout_error: float | None) -> list[str]:
    """Of the disk's cost: where it misses left-out sizes by more than a tenth."""
    if heldout_error is None or heldout_error <= DISK_BOUND:
        return []
    return [f"the disk's cost misses sizes that it was not fitted to by {100 * heldout_error:.0f} %: its rate is not steady"]


def decoder_warnings(against_step: Mapping[int, float]) -> list[str]:
    """Where the decoder's base took much longer or shorter than step and gap tell; by batch size."""
    off = [f"{ratio:.3g} at batch {batch}" for batch, ratio in against_step.items() if not _near_one(ratio, DECODER_BOUND)]
    if not off:
        return []
    return [
        f"steps of the decoder's base took {', '.join(off)} times what step and gap tell: variants were not measured under the "
        "conditions of the rest (measure step and decoder again, on a quiet box)"
    ]


def _near_one(ratio: float, bound: float) -> bool:
    """Whether a ratio lies within a factor of 1, either way."""
    return 1.0 / bound <= ratio <= bound


def sti_warnings(block: StiBlock) -> list[str]:
    """Of block `sti`: where whole submodels take another time than the table tells, or no line explains the reads."""
    error, r2, said = block.compute.heldout_error, block.io.r2, []
    if error is not None and error > STI_BOUND:
        said.append(f"sti: a held-out error of {100 * error:.0f} % on whole submodels (measure again on a quiet box)")
    if block.kind == "measured" and (r2 is None or r2 < STI_R2_BOUND):
        told = "none" if r2 is None else f"{r2:.2f}"
        said.append(f"sti: R2 of reads by bits {told}, below {STI_R2_BOUND}: fixed part and bandwidth cannot be told apart")
    return said
