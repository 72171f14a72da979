"""simnmt: where should neural machine translation run, on the edge gateway or on the cloud server?

`simnmt.run(scenario)` replays a workload through every policy of a scenario; see `simnmt.api`. The rooms, from the ground:
`base`; `workload`, `network`, `profile` (device profiles and cost models); `policies`, `batching` and `streaming.plan` (pure
decisions); `results`; `world` (the simulation), `kernels`; `nmt` (real models); `streaming`; `scenario` (the YAML schema);
`experiment` (runs of a scenario); `calibrate`; `report`; `papers`; `api`; `cli`. A room imports only from rooms before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simnmt.base import VERSION as __version__

__all__ = ["InputError", "RunResult", "__version__", "run"]

if TYPE_CHECKING:
    from simnmt.api import RunResult, run
    from simnmt.base.errors import InputError


def __dir__() -> list[str]:
    return [*__all__]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `simnmt --help` waits for no numpy.
    homes = {"run": "simnmt.api", "InputError": "simnmt.base.errors", "RunResult": "simnmt.api"}
    if name not in homes:
        raise AttributeError(f"module 'simnmt' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(homes[name]), name)
