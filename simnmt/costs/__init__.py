"""Cost models and the device profile bundle."""

from simnmt.costs.batch_cost import EncoderCost, StepCost
from simnmt.costs.batch_fit import fit_encoder_cost, fit_step_cost
from simnmt.costs.disk import DiskCost, DiskFit, fit_disk
from simnmt.costs.energy import EnergyCost, fit_energy
from simnmt.costs.execution_fit import FittedExecution, cell_samples, fit_execution
from simnmt.costs.plane import ExecutionPlane, PlaneFit, fit_plane
from simnmt.costs.profile import DeviceProfile
from simnmt.costs.profile_error import ProfileError
from simnmt.costs.profile_file import checked_profile, read_profile, write_profile
from simnmt.costs.relative_plane import (
    RelativePlaneFit,
    fit_relative_plane,
    heldout_plane_error,
    r2_of_means_per_tgt_len,
)
from simnmt.costs.residual import LognormalResidual
from simnmt.costs.split_totals import split_totals
from simnmt.costs.token_bucket import TokenBucket

__all__ = [
    "DeviceProfile",
    "DiskCost",
    "DiskFit",
    "EncoderCost",
    "EnergyCost",
    "ExecutionPlane",
    "FittedExecution",
    "LognormalResidual",
    "PlaneFit",
    "ProfileError",
    "RelativePlaneFit",
    "StepCost",
    "TokenBucket",
    "cell_samples",
    "checked_profile",
    "fit_disk",
    "fit_encoder_cost",
    "fit_energy",
    "fit_execution",
    "fit_plane",
    "fit_relative_plane",
    "fit_step_cost",
    "heldout_plane_error",
    "r2_of_means_per_tgt_len",
    "read_profile",
    "split_totals",
    "write_profile",
]
