"""Cost models and the device profile bundle."""

from simnmt.costs.batch_cost import EncoderCost, StepCost
from simnmt.costs.batch_decoding import DecodingCost
from simnmt.costs.batch_fit import fit_encoder_cost, fit_step_cost
from simnmt.costs.decoder_block import DecoderBlock, DecoderVariant
from simnmt.costs.decoder_choice import DecoderChoice
from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.costs.disk import DiskCost, DiskFit, ReadTable, fit_disk
from simnmt.costs.doubts import Doubt, profile_doubts
from simnmt.costs.energy import EnergyCost, fit_energy
from simnmt.costs.execution_fit import FittedExecution, fit_execution
from simnmt.costs.heldout import heldout_error_of_means, heldout_ordinary_errors, heldout_plane_error
from simnmt.costs.overhead_fit import OverheadFit, fit_overhead
from simnmt.costs.plane import ExecutionPlane, PlaneFit, fit_plane
from simnmt.costs.profile import DeviceProfile
from simnmt.costs.profile_error import ProfileError
from simnmt.costs.profile_file import checked_profile, read_profile, write_profile
from simnmt.costs.relative_plane import (
    RelativePlaneFit,
    fit_relative_plane,
    r2_of_means_per_tgt_len,
)
from simnmt.costs.residual import LognormalResidual
from simnmt.costs.samples import cell_samples, samples_by_tgt_len
from simnmt.costs.split_totals import split_totals
from simnmt.costs.token_bucket import TokenBucket

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
    "cell_samples",
    "checked_profile",
    "fit_disk",
    "fit_encoder_cost",
    "fit_energy",
    "fit_execution",
    "fit_overhead",
    "fit_plane",
    "fit_relative_plane",
    "fit_step_cost",
    "heldout_error_of_means",
    "heldout_ordinary_errors",
    "heldout_plane_error",
    "profile_doubts",
    "r2_of_means_per_tgt_len",
    "read_profile",
    "samples_by_tgt_len",
    "split_totals",
    "write_profile",
]
