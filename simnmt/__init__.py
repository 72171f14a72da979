"""simnmt: where should neural machine translation run, on the edge gateway or on the cloud server?

`simnmt.run(scenario)` replays a workload through every policy of a scenario; see `simnmt.api`. The rooms, from the ground:
`base`; `workload`, `network`, `profile` (device profiles and cost models); `policies`, `batching` and `streaming.plan` (pure
decisions); `results`; `kernels`; `nmt` (real models); `streaming`; `devices` (execution kinds); `world` (the simulation);
`scenario` (the YAML schema); `experiment` (runs of a scenario); `service`; `calibrate`; `live` (gateway and server); `report`;
`papers`; `api`; `cli`. A room imports only from rooms before it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from simnmt.base import VERSION as __version__

# The library reports on the loggers `simnmt.ROOM` and leaves it to the program where that goes.
logging.getLogger("simnmt").addHandler(logging.NullHandler())

_MODULES = {
    "simnmt.api": ("Scenario", "compare", "load", "load_sweep", "plan", "run", "sweep"),
    "simnmt.base.errors": ("InputError",),
    "simnmt.batching.batcher": ("Batcher", "Encode", "Join"),
    "simnmt.network.series": ("BandwidthSeries", "RttSeries"),
    "simnmt.policies.decision": ("DecisionView", "Knowledge", "PolicySettings"),
    "simnmt.profile.device_profile": ("DeviceProfile",),
    "simnmt.report.notebook": ("Run",),
    "simnmt.results.comparison": ("Comparison",),
    "simnmt.workload.length_table": ("LengthTable",),
}
"""The public names by module: stable by promise (docs/reference/python.md); everything else may change."""
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = [
    "BandwidthSeries", "Batcher", "Comparison", "DecisionView", "DeviceProfile", "Encode", "InputError", "Join", "Knowledge",
    "LengthTable", "PolicySettings", "RttSeries", "Run", "Scenario", "__version__", "compare", "load",
    "load_sweep", "plan", "run", "sweep",
]  # fmt: skip

if TYPE_CHECKING:
    from simnmt.api import Scenario, compare, load, load_sweep, plan, run, sweep
    from simnmt.base.errors import InputError
    from simnmt.batching.batcher import Batcher, Encode, Join
    from simnmt.network.series import BandwidthSeries, RttSeries
    from simnmt.policies.decision import DecisionView, Knowledge, PolicySettings
    from simnmt.profile.device_profile import DeviceProfile
    from simnmt.report.notebook import Run
    from simnmt.results.comparison import Comparison
    from simnmt.workload.length_table import LengthTable


def __dir__() -> list[str]:
    return [*__all__]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `simnmt --help` waits for no numpy.
    if name not in _HOMES:
        raise AttributeError(f"module 'simnmt' has no attribute {name!r}")
    from importlib import import_module

    from simnmt.base.packages import named_if_missing

    with named_if_missing():
        return getattr(import_module(_HOMES[name]), name)
