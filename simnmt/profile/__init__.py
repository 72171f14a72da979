"""Device profiles and cost models: what one device running one model costs in seconds and joules, and how that is known.

Start with `device_profile.py` (the schema: `DeviceProfile`), `batch_cost.py` (seconds of encoding and of decode steps) and
`execution_plane.py` (seconds of one sentence alone, CNMT-05). `profile_file.py` reads and writes profiles; `doubts.py` lists
what makes a profile doubtful; `profile_variant.py` moves a profile to another decoder configuration; `execution_fit.py`
fits what `simnmt.calibrate` measures. This room imports no other room than `simnmt.base`, and never torch.
"""

from __future__ import annotations

from simnmt.profile.batch_cost import BatchCost, DecodingCost
from simnmt.profile.blocks import ProfileError
from simnmt.profile.decoder_block import DecoderBlock, DecoderVariant
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.disk_block import ReadTable, TokenBucket
from simnmt.profile.doubts import Doubt, profile_doubts
from simnmt.profile.execution_plane import ExecutionPlane, LognormalResidual, PlaneFit, fit_plane
from simnmt.profile.profile_file import checked_profile, read_profile, write_profile
from simnmt.profile.profile_variant import DecoderChoice

__all__ = [
    "BatchCost",
    "DecoderBlock",
    "DecoderChoice",
    "DecoderSettings",
    "DecoderVariant",
    "DecodingCost",
    "DeviceProfile",
    "Doubt",
    "ExecutionPlane",
    "LognormalResidual",
    "PlaneFit",
    "ProfileError",
    "ReadTable",
    "TokenBucket",
    "checked_profile",
    "fit_plane",
    "profile_doubts",
    "read_profile",
    "write_profile",
]
