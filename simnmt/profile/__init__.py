"""Device profiles and cost models: what one device running one model costs in seconds and joules, and how that is known.

Start with `device_profile.py` (the schema and the file: `DeviceProfile`), `cost.py` (the two forms of costs: `Plane` of a
sentence alone, CNMT-05, and `CostTable` of batches) and `blocks.py` (the cost blocks, with the words for their fields).
`doubts.py` lists what makes a profile doubtful; `profile_variant.py` moves it to another decoder configuration;
`profile_summary.py` prints and compares; `execution_fit.py` fits what `simnmt.calibrate` measures, and
`calibration_error.py` draws profiles within the error of that fit. This room imports no other room than `simnmt.base`,
and never torch.
"""

from __future__ import annotations

from simnmt.profile.blocks import ProfileError
from simnmt.profile.cost import CostTable, DecodingCost, Plane
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile, read_profile, write_profile
from simnmt.profile.doubts import profile_doubts

__all__ = [
    "CostTable",
    "DecoderSettings",
    "DecodingCost",
    "DeviceProfile",
    "Plane",
    "ProfileError",
    "profile_doubts",
    "read_profile",
    "write_profile",
]
