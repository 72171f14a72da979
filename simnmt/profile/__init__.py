"""Device profiles and cost models: what one device running one model costs in seconds and joules, and how that is known.

Start with `device_profile.py` (the schema: `DeviceProfile`), `batch_cost.py` (seconds of encoding and of decode steps) and
`execution_plane.py` (seconds of one sentence alone, CNMT-05). `profile_file.py` reads and writes profiles; `doubts.py` says
what makes a profile doubtful. `simnmt.calibrate` measures profiles. This room imports no other room than `simnmt.base`, and
never torch.
"""

from __future__ import annotations

from simnmt.profile.batch_cost import DecodingCost, EncoderCost, StepCost
from simnmt.profile.blocks import ProfileError
from simnmt.profile.decoder_block import DecoderBlock, DecoderVariant
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_cost import DiskCost, DiskFit, EnergyCost, ReadTable, TokenBucket, fit_disk, fit_energy
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import Doubt, profile_doubts
from simnmt.profile.execution_fit import (
    FittedExecution,
    RelativePlaneFit,
    fit_execution,
    fit_relative_plane,
    heldout_error_of_means,
    heldout_ordinary_errors,
    heldout_plane_error,
    r2_of_means_per_tgt_len,
)
from simnmt.profile.execution_plane import ExecutionPlane, LognormalResidual, PlaneFit, fit_plane
from simnmt.profile.least_squares import OverheadFit, fit_overhead
from simnmt.profile.profile_file import checked_profile, read_profile, write_profile
from simnmt.profile.profile_variant import DecoderChoice

__all__ = [
    "DecoderBlock",
    "DecoderChoice",
    "DecoderSettings",
    "DecoderVariant",
    "DecodingCost",
    "DeviceProfile",
    "DiskCost",
    "DiskFit",
    "Doubt",
    "EncoderCost",
    "EnergyCost",
    "ExecutionPlane",
    "FittedExecution",
    "LognormalResidual",
    "OverheadFit",
    "PlaneFit",
    "ProfileError",
    "ReadTable",
    "RelativePlaneFit",
    "StepCost",
    "TokenBucket",
    "checked_profile",
    "fit_disk",
    "fit_energy",
    "fit_execution",
    "fit_overhead",
    "fit_plane",
    "fit_relative_plane",
    "heldout_error_of_means",
    "heldout_ordinary_errors",
    "heldout_plane_error",
    "profile_doubts",
    "r2_of_means_per_tgt_len",
    "read_profile",
    "write_profile",
]
