"""simnmt: where should neural machine translation run, on the edge gateway or on the cloud server?

`simnmt.run(scenario)` replays a workload through every policy of a scenario; see `simnmt.api`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["InputError", "RunResult", "run"]

if TYPE_CHECKING:
    from simnmt.api import run
    from simnmt.errors import InputError
    from simnmt.results.result import RunResult


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `simnmt --help` waits for no numpy.
    homes = {"run": "simnmt.api", "InputError": "simnmt.errors", "RunResult": "simnmt.results.result"}
    if name not in homes:
        raise AttributeError(f"module 'simnmt' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(homes[name]), name)
