"""Cost models and the device profile bundle."""

from simnmt.costs.plane import ExecutionPlane, PlaneFit, fit_plane
from simnmt.costs.profile import DeviceProfile, ProfileError, read_profile, write_profile
from simnmt.costs.residual import LognormalResidual

__all__ = [
    "DeviceProfile",
    "ExecutionPlane",
    "LognormalResidual",
    "PlaneFit",
    "ProfileError",
    "fit_plane",
    "read_profile",
    "write_profile",
]
