"""What is known of a box, as it goes into a profile. None wherever the box does not tell."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class GpuDescription:
    """One GPU as the CUDA runtime or NVML shows it."""

    index: int
    """N of `cuda:N`; NVML's own number where torch is not there."""
    name: str
    memory_bytes: int | None = None
    compute_capability: str | None = None
    """Such as 8.7."""
    driver: str | None = None
    seen_by: tuple[str, ...] = ()
    """Which of torch and nvml see it."""


@dataclass(frozen=True, slots=True)
class JetsonDescription:
    """What NVIDIA's Linux for Tegra says of itself."""

    l4t: str
    """Release, such as 36.4.3."""
    jetpack: str | None = None
    """The JetPack series that this release belongs to, such as 6.2."""
    power_mode: str | None = None
    """nvpmodel's mode, such as MAXN."""


@dataclass(frozen=True, slots=True)
class BoxDescription:
    """One box at one moment."""

    machine: str
    """Instruction set: x86_64, aarch64."""
    system: str
    """Kernel and its release."""
    cpu_model: str | None = None
    board: str | None = None
    """The model in the device tree: Jetson and Raspberry Pi have one."""
    physical_cores: int | None = None
    logical_cores: int | None = None
    allowed_cpus: tuple[int, ...] = ()
    """Numbers of the logical CPUs that this process may run on; empty where the system does not tell."""
    allowed_cores: int | None = None
    """Cores that these are threads of; None where the system does not tell."""
    cpu_quota: float | None = None
    """CPUs' worth of time that the control group grants; None without a quota."""
    simd: tuple[str, ...] = ()
    """Vector extensions that matter to matrix products, in the kernel's spelling."""
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """The control group's limit; None without one."""
    governor: str | None = None
    """Of the clock; several are joined by +."""
    frequency_mhz: float | None = None
    """Mean over the CPUs at this moment."""
    frequency_min_mhz: float | None = None
    frequency_max_mhz: float | None = None
    on_battery: bool | None = None
    """None where the box tells of no mains supply, as servers do not."""
    load_average: tuple[float, float, float] | None = None
    """Over 1, 5 and 15 minutes."""
    virtualisation: str | None = None
    """A hint at the hypervisor or container."""
    jetson: JetsonDescription | None = None
    gpus: tuple[GpuDescription, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """Python's, and those of the libraries that decide the speed, by name; one that is not installed is not named."""

    @property
    def usable_cpus(self) -> int:
        """Threads that can truly run at once: allowed CPUs, less where a quota is smaller; at least 1."""
        return self._granted(len(self.allowed_cpus) or self.logical_cores or 1)

    @property
    def usable_cores(self) -> int:
        """Threads that can run at once without sharing a core's vector units; at least 1."""
        return min(self.usable_cpus, self._granted(self.allowed_cores or self.physical_cores or self.usable_cpus))

    def _granted(self, cpus: int) -> int:
        return max(1, cpus if self.cpu_quota is None else min(cpus, int(self.cpu_quota)))

    def as_json(self) -> dict[str, Any]:
        """As it stands in a profile and in `simnmt doctor --json`."""
        return asdict(self) | {"usable_cpus": self.usable_cpus, "usable_cores": self.usable_cores}
