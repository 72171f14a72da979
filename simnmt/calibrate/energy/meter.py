"""Which energy counter a device has, and why it has none."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol


class EnergyMeter(Protocol):
    """A counter of the energy that a device has used since the meter was opened."""

    source: str
    """rapl, ina3221 or nvml."""
    scope: str
    """What the joules are of, for a reader: the processor packages, the whole module, the GPU's board."""
    domains: tuple[str, ...]
    """The counters or rails that are summed, by the system's names."""
    resolution_s: float
    """Differences over less time than this mean nothing: measure at least a hundred times as long."""

    def read_j(self) -> float | None:
        """Joules since the meter was opened; None from the first failed reading on, never 0 for unknown."""

    def close(self) -> None:
        """Let go of the counter; a sampling thread ends. Twice does no harm."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why one source gives no energy."""

    source: str
    why: str
    remedy: str | None = None
    """What the user can do, as an imperative; None where nothing helps."""

    def __str__(self) -> str:
        return f"{self.source}: {self.why}" + (f" ({self.remedy})" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class FoundMeter:
    """A meter, or the reasons why there is none."""

    meter: EnergyMeter | None
    obstacles: tuple[Obstacle, ...] = ()


def find_energy_meter(device: str, root: str | os.PathLike[str] = "/") -> FoundMeter:
    """Open the first counter that counts for `device` ("cpu" or "cuda:N") and moves; else say why each source does not."""
    return FoundMeter(None, (Obstacle("rapl", "not read yet"),))


def open_energy_meter(device: str, root: str | os.PathLike[str] = "/") -> EnergyMeter | None:
    """Open the energy counter of `device`, or None; `find_energy_meter` tells why not. Close it when done."""
    return find_energy_meter(device, root).meter
